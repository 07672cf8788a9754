"""What nobody should type, and what the software must say to it."""

import string

from hypothesis import strategies as st

PASSWORD = "hunter22"  # noqa: S105
NUMBERS = (
    "nan", "NaN", "inf", "-inf", "1e400", "-1e400", "5e-324", "1e308", "-0", "0", "-1", "1.5", "0x10", "1e2", "1_0",
    "9" * 5000, "-" + "9" * 400, "1" * 31, "٣", "²", "1,2", "1:2", "2:1", "1,1", ",", ":", "0.5:", "+5", " 7 ",
)  # fmt: skip
WORDS = (
    "", " ", "\t", "none", "None", "null", "true", "TRUE", "yes", "[]", "{}", "[1]", "=", "x=y", "=x", "a=b=c", "-",
    "--", "-x", "--x=1", "--json", "auto", "all", "a" * 300, "a" * 100_000,
)  # fmt: skip
UNICODE = (
    "\0", "a\0b", "\ud800", "\udcff", "a\udc80/b", "\u202egnp.exe", "\u2066x\u2069", "é", "中文", "🙂", "\ufeff",
    "\u2028", "a\u0301", "ﬁ", "İ", "\x1b[31mred", "\x7f", "two\nlines", "\r\n",
)  # fmt: skip
NAMES = (
    "'", '"', "'; DROP TABLE runs; --", "$(touch trap)", "`touch trap`", "; touch trap", "| touch trap", "& touch trap",
    "../../trap", "..", ".", "/", "//", "./", "~", "~/", "~nobody-of-this-name/x", "/" + "a" * 300, "a/" * 3000,
    "/dev/null", "/dev/null/x", "/proc/self/mem/x", "/proc/nowhere", "<script>alert(1)</script>", "%s%n%x", "%", "_",
    "\\", "\\input{x}", "{method}", "{{7*7}}", "hub:", "hub:a", "hub:../..", "hub:a/b", "hub:a/b:c:d", "agnew", "sst3",
    "postgresql://", "postgresql://[", "postgresql://h:port/db", "sqlite://", "http://[", "foo://bar", "://",
)  # fmt: skip
SECRETS = (
    f"postgresql://me:{PASSWORD}@127.0.0.1/db",
    f"http://me:{PASSWORD}@127.0.0.1:1",
    f"postgresql://me@127.0.0.1/db?password={PASSWORD}",
    f"host=127.0.0.1 password={PASSWORD}",
)

TEXTS = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(WORDS),
    st.sampled_from(UNICODE),
    st.sampled_from(NAMES),
    st.sampled_from(SECRETS),
    st.integers().map(str),
    st.floats().map(str),
    st.text(max_size=20),
    st.text(string.printable, max_size=20),
)
# What an environment variable can hold: no NUL, and bytes that are no UTF-8 as Python writes them.
VARIABLE_TEXTS = TEXTS.map(
    lambda text: "".join(c for c in text if c != "\0" and not ("\ud800" <= c < "\udc80" or "\udcff" < c <= "\udfff"))
)
