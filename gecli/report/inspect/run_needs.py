"""Whether `gecli run` takes a model: its operators can be executed, its variable record is that of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gecli.ir.attributes import SRC_VAR_NAME

if TYPE_CHECKING:
    from gecli.report.inspect.subject import Subject
    from gecli.variables.var_match import VarDescCache

SHOWN_TYPES = 6


def why_not_run(subject: Subject, *, thoroughly: bool) -> str:
    """Why `gecli run` refuses the model; empty when nothing is known against it.

    `thoroughly` looks at kernels and attributes, too: the operators and numpy are imported for it.
    """
    from gecli.ops.index import FAMILY_OF_TYPE

    if thoroughly:
        from gecli.runtime.model import cannot_be_executed

        found = {node.type for _, _, node, _ in subject.nodes() if cannot_be_executed(node)}
    else:
        found = {node.type for _, _, node, _ in subject.nodes() if node.type not in FAMILY_OF_TYPE}
    types = sorted(found)
    if types:
        more = f" and {len(types) - SHOWN_TYPES} more" if len(types) > SHOWN_TYPES else ""
        return f"gecli run cannot execute {', '.join(types[:SHOWN_TYPES])}{more}"
    return why_other_record(subject)


def why_other_record(subject: Subject) -> str:
    """Why the readable record beside the OM is not that of its variables; empty when it is, or there is none."""
    record = subject.variable_record()
    name = "" if record is None else _contradicted(subject, record.after)
    return f"its variable record is that of another model: it has no {name!r} in this form" if name else ""


def _contradicted(subject: Subject, record: VarDescCache) -> str:
    """The first variable that the record does not have as the OM stores it, as the loader sees it."""
    known = record.var_desc_map
    for _, _, node, _ in subject.nodes():
        if not node.is_variable or node.ref_variable is not None or not node.output_descs:
            continue
        recorded = known.get(node.name)
        source = known.get(str(node.attrs.get(SRC_VAR_NAME) or ""))
        is_twin = recorded is not None and source is not None and recorded.same_storage(source)
        if recorded is None or not (is_twin or recorded.same_storage(node.output_descs[0])):
            return node.name
    return ""
