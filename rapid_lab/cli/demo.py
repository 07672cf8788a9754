"""The six methods on three seeds of the embedded twin: minutes on a laptop, no GPU, no network.

The twin's texts are generated and its models small, so the table shows how the laboratory works, not which method is
better on real data. Every option of `suite` is one of `demo`.
"""

from collections.abc import Sequence

from rapid_lab.cli import suite
from rapid_lab.cli.parsing import Parser

CLOSING = """
Tables, tests, figures and a report of them:  rapid-lab compare
Browse the runs:  mlflow ui --backend-store-uri {uri}
Twin texts are generated: no number above is a result on real data."""


def run(arguments: Sequence[str]) -> None:
    """The suite on the twin, and where to look next."""
    suite.run(["--data", "twin", "--log-model", "false", *arguments])
    if "--json" not in arguments:
        from rapid_lab.tracking.door import tracking_uri
        from rapid_lab.tracking.redaction import without_secrets

        print(CLOSING.format(uri=without_secrets(tracking_uri())))


def parser() -> Parser:
    """The options of this command: those of the suite."""
    return suite.parser()
