"""Pages of variable memory (ge.variableUse1gHugePage; runtime.md 2.3, 8.2): what `--huge-page` adds to a memory map."""

from __future__ import annotations

from collections.abc import Sequence

from gecli.errors import RuntimeFault
from gecli.runtime.memory_map import Region, total_bytes
from gecli.variables.device_arena import DEVICE_BYTES, HUGE_PAGE_BYTES, DeviceArena, HugePages

GIB = 1 << 30
IN_PAGES = ("variable", "constant")


def with_pages(regions: Sequence[Region], mode: HugePages, limit_bytes: int | None) -> list[Region]:
    """The regions, and one for what pages of 1 GiB take beyond the variables in them.

    Variables lie behind each other in whole pages. When there is no page left, mode 1 has failed; mode 2 takes normal
    pages, still in chunks of 1 GiB, and where these do not fit either, exactly what a variable needs. Raises
    RuntimeFault (RT_PAGE_1G_FAILED).
    """
    variables = [region for region in regions if region.kind in IN_PAGES]
    others = total_bytes(region for region in regions if region.kind not in IN_PAGES)
    room = max((DEVICE_BYTES if limit_bytes is None else limit_bytes) - others, 0)
    arena = DeviceArena(capacity_bytes=room, huge_pages=mode)
    for variable in variables:
        if arena.reserve(variable.size_bytes) is None and mode is HugePages.ONLY:
            raise _no_page(variable, arena, room)
    unused = arena.mapped_bytes - arena.used_bytes
    if not unused:
        return list(regions)
    count = arena.mapped_bytes // HUGE_PAGE_BYTES
    return [*regions, Region("pages", f"unused part of {count} GiB for variables", None, unused)]


def _no_page(variable: Region, arena: DeviceArena, room: int) -> RuntimeFault:
    needed = -(-(arena.used_bytes + variable.size_bytes) // GIB)
    return RuntimeFault(
        "G4005", f"no page of 1 GiB is left for {variable.kind} {variable.name!r}", kind="RT_PAGE_1G_FAILED",
        why=f"it needs page {needed}; beside features and weights there is room for {room // GIB} ({room} bytes)",
        do="--huge-page 2 falls back to normal pages; --huge-page 0 takes only these", option="--huge-page",
        expected=needed * GIB, actual=room,
    )  # fmt: skip
