"""What a session holds in simulated device memory: for --plan, --print-memory-map and --mem-limit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gecli.errors import RuntimeFault
from gecli.runtime.model import LoadedModel
from gecli.runtime.session import Session
from gecli.variables.sizes import padded_bytes, span_bytes

SHOWN_USERS = 8


class Region(NamedTuple):
    """One block: what uses it, its logical address (None: the loader decides), its size."""

    kind: str
    name: str
    address: int | None
    size_bytes: int


def memory_map(sessions: Iterable[Session], models: Sequence[LoadedModel]) -> list[Region]:
    """Feature maps and weights of every model, then the variables, and the constants stored as such, by address.

    An area that holds the variables stands for all of them.
    """
    regions = []
    for model in models:
        regions.append(Region("features", model.name, None, model.memory_bytes))
        regions.append(Region("weights", model.name, None, model.weight_bytes))
    for session in sessions:
        if session.external_bytes is not None:
            base = session.table.manager.logic_base if session.table else None
            regions.append(Region("external", "area of --external-var", base, session.external_bytes))
            continue
        rows = []
        for name in session.store.names():
            form = session.store[name].current
            if form is not None:
                size = span_bytes(padded_bytes(form.desc))
                rows.append(Region("variable", f"{name} {form.desc.format.name}", form.logical_address, size))
        rows += _constants(model for model in models if model.store is session.store)
        regions += sorted(rows, key=lambda row: (row.address or 0, row.name))
    return [region for region in regions if region.size_bytes]


def _constants(models: Iterable[LoadedModel]) -> list[Region]:
    """The blocks of constants in variable memory; equal constants share one, in one model and in several."""
    found: dict[tuple[int, int], Region] = {}
    for model in models:
        for each in model.constants:
            size = span_bytes(padded_bytes(each.desc))
            name = f"{each.name} {each.desc.format.name}"
            found.setdefault((each.address, size), Region("constant", name, each.address, size))
    return list(found.values())


def total_bytes(regions: Iterable[Region]) -> int:
    return sum(region.size_bytes for region in regions)


def require_memory(regions: Sequence[Region], limit_bytes: int | None) -> None:
    """Raises RuntimeFault (RT_OOM) with the largest users when the session needs more than the device has."""
    needed = total_bytes(regions)
    if limit_bytes is None or needed <= limit_bytes:
        return
    largest = sorted(regions, key=lambda region: -region.size_bytes)[:SHOWN_USERS]
    raise RuntimeFault(
        "G4005",
        f"the models need {needed} bytes of device memory, --mem-limit is {limit_bytes}",
        why="largest users: " + "; ".join(f"{each.kind} {each.name} {each.size_bytes}" for each in largest),
        do="raise --mem-limit, or compile for a smaller batch or input shape",
        kind="RT_OOM",
        option="--mem-limit",
        expected=limit_bytes,
        actual=needed,
    )


def map_lines(regions: Sequence[Region]) -> list[str]:
    """A table for people: address, size, use; then the sum."""
    lines = [
        f"{'-' if region.address is None else f'{region.address:#x}':>14}  {region.size_bytes:>12}  "
        f"{region.kind:8}  {region.name}"
        for region in regions
    ]
    return [f"{'address':>14}  {'bytes':>12}  use", *lines, f"{'':>14}  {total_bytes(regions):>12}  in all"]
