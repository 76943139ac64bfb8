"""Initial values of one variable in several models of a session."""

from __future__ import annotations

from collections.abc import Sequence

from gecli.errors import Diagnostic
from gecli.ir.attributes import VARIABLE_TYPES
from gecli.loading import LoadedModel
from gecli.variables.initial_values import Conflict, GivenValue, conflict, conflict_warnings


def initial_value_warnings(loaded: Sequence[LoadedModel]) -> list[list[Diagnostic]]:
    """For each model what it gives differently from the first one that gives the variable a value."""
    first: dict[str, GivenValue] = {}
    found: list[list[Diagnostic]] = []
    for model in loaded:
        conflicts: list[Conflict] = []
        for graph in model.graph.all_graphs():
            for node in graph.nodes_of(*sorted(VARIABLE_TYPES)):
                if node.init_value is None:
                    continue
                given = GivenValue(node.init_value, model.path)
                known = first.setdefault(node.name, given)
                if known is not given and (differs := conflict(node.name, known, given)) is not None:
                    conflicts.append(differs)
        found.append(conflict_warnings(conflicts))
    return found
