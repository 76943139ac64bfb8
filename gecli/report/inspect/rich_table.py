"""A table on a terminal."""

from __future__ import annotations

from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from gecli.report.inspect.view import Table


def print_table(table: Table, stream: TextIO) -> None:
    """Draw `table` for people; columns of numbers are at the right."""
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in table.columns:
        drawn.add_column(name, justify="right" if name in table.right else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console(file=stream, highlight=False).print(drawn)
