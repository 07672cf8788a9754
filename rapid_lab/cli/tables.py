"""Plain-text tables for a terminal."""

from collections.abc import Sequence


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest cell: words to the left, numbers to the right.

    >>> print(text_table(["name", "count"], [["a", "10"], ["bb", "2"]]))
    name  count
    ----  -----
    a        10
    bb        2
    """
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    is_word = [not any(row[column][:1].isdigit() for row in rows) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if word else cell.rjust(width)
            for cell, width, word in zip(cells, widths, is_word, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *(line(row) for row in rows)])
