"""The text of atc mode 6 (cli.md 2.3)."""

from __future__ import annotations

from typing import Any

from gecli.artifacts.om_file import OmFile
from gecli.artifacts.partition_table import PartitionType
from gecli.report.inspect.subject import Subject
from gecli.report.inspect.view import View, cell
from gecli.wire.om_faults import om_problem

START = "============ Display Model Info start ============"
END = "============ Display Model Info end   ============"
# Order of the model attribute om_info_list; files before 2024 have no fifth number.
LISTED = (
    ("weight_data_size", PartitionType.WEIGHTS_DATA),
    ("tbe_kernels_size", PartitionType.TBE_KERNELS),
    ("cust_aicpu_kernel_store_size", PartitionType.CUST_AICPU_KERNELS),
    ("task_info_size", PartitionType.TASK_INFO),
    ("so_store_size", PartitionType.SO_BINS),
)
CMDLINE_LIMIT = 100_000


def info_view(subject: Subject) -> View:
    """Sizes come from the partition table; om_info_list, which atc prints, is compared with it."""
    attrs = subject.model().attrs
    om = subject.om
    sizes: dict[str, int | None]
    if om is None:  # there is no table
        is_text = subject.data is not None  # a ModelDef in binary form is not there, either
        sizes = {"modeldef_size": None if is_text else subject.size_bytes, **{name: None for name, _ in LISTED}}
        note = "no OM container around the model, so there are no other sizes"
        if is_text:
            note = "a text dump has none of the sizes of an OM"
    else:
        sizes = {"modeldef_size": _size(om, PartitionType.MODEL_DEF)}
        sizes |= {name: _size(om, number) for name, number in LISTED}
        note = compare_info_list(subject, sizes)
    document = {
        "original_atc_cmdline": _text(attrs, "atc_cmdline"),
        "system": {name: _text(attrs, name) for name in ("atc_version", "soc_version", "framework_type")},
        "resource": {name: _integer(attrs, name) for name in ("memory_size", "weight_size", "stream_num", "event_num")},
        "om": sizes,
        "note": note or None,
    }
    return View("info", document, [*_lines(document), *([f"note: {note}"] if note else [])])


def _lines(document: dict[str, Any]) -> list[str]:
    system = ", ".join(f"{name}[{cell(value or '')}]" for name, value in document["system"].items())
    resource = ", ".join(
        f"{name}[{_number(value)}{' B' if name.endswith('size') else ''}]"
        for name, value in document["resource"].items()
    )
    om = ", ".join(f"{name}[{value} B]" for name, value in document["om"].items() if value is not None) or "none"
    return [
        START,
        f"Original Atc command line: {cell(document['original_atc_cmdline'] or '', CMDLINE_LIMIT)}",
        f"system   info: {system}.",
        f"resource info: {resource}.",
        f"om       info: {om}.",
        END,
    ]


def compare_info_list(subject: Subject, sizes: dict[str, int | None] | None = None) -> str:
    """Warn of every size in om_info_list that is not the table's; returns a note when there is nothing to compare.

    A list of four leaves out the last of `sizes`.
    """
    om, model = subject.om, subject.model_or_none()
    if om is None or om.kind != "om" or model is None or subject.cut_parts:
        return ""
    stated = model.attrs.get("om_info_list")
    if sizes is None:
        sizes = {name: _size(om, number) for name, number in LISTED}
    if not isinstance(stated, tuple) or len(stated) not in (4, 5) or {*map(type, stated)} != {int}:
        state = "is not a list of 4 or 5 sizes" if "om_info_list" in model.attrs else "missing"
        return f"om_info_list {state}, sizes from the partition table"
    place = om.root.partition(PartitionType.MODEL_DEF)
    assert place is not None  # the model was read from it
    if len(stated) == 4:
        sizes["so_store_size"] = None
    for (name, _), number in zip(LISTED, stated):
        if number != sizes[name]:
            message = f"om_info_list says {name} is {number} bytes, the partition table {sizes[name]}"
            fields = {"where": "MODEL_DEF", "expected": sizes[name], "actual": number}
            subject.warn(om_problem("bad-partition", subject.path, message, place.offset_bytes, **fields))
    return ""


def _size(om: OmFile, number: int) -> int:
    part = om.root.partition(number)
    return part.size_bytes if part is not None and not (om.is_mobile and number > 2) else 0


def _text(attrs: dict[str, Any], name: str) -> str | None:
    value = attrs.get(name)
    return value if isinstance(value, str) else None


def _integer(attrs: dict[str, Any], name: str) -> int | None:
    value = attrs.get(name)
    return value if isinstance(value, int) else None


def _number(value: int | None) -> int:
    return -1 if value is None else value
