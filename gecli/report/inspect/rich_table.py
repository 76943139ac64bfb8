"""A table on a terminal."""

from __future__ import annotations

from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from gecli.report.inspect.view import Table

WORD = 16  # columns up to this width are never folded: half a number or a format says nothing
LEAST = 20  # of a column that is folded
BORDER = 3  # a column's padding and its separator


def print_table(table: Table, stream: TextIO) -> bool:
    """Draw `table` for people, numbers at the right, long names folded; False when the terminal is too narrow."""
    console = Console(file=stream, highlight=False)
    widths = [max(map(len, column)) for column in zip(table.columns, *table.rows)]
    folded = [width > WORD and name not in table.right for name, width in zip(table.columns, widths)]
    least = sum(min(width, LEAST) if fold else width for width, fold in zip(widths, folded)) + BORDER * len(widths)
    if least > console.width:
        return False
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, fold in zip(table.columns, folded):
        drawn.add_column(name, justify="right" if name in table.right else "left", overflow="fold", no_wrap=not fold)
    for row in table.rows:
        drawn.add_row(*(Text(cell) for cell in row))
    console.print(drawn)
    return True
