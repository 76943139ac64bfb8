"""What a model needs to be loaded, and whether a given chip and software version have it (cli.md 13, 8)."""

from __future__ import annotations

import os
import platform
import re
from typing import Any, NamedTuple

from gecli.errors import InvalidOption
from gecli.records import dataclass
from gecli.report.inspect.run_needs import why_not_run, why_other_record
from gecli.report.inspect.subject import Subject
from gecli.report.sizes import counted, size_text

MEMORY = (("memory_size", "features"), ("weight_size", "weights"), ("p2p_memory_size", "peer to peer"),
          ("session_scope_memory_size", "session"), ("host_svm_size", "shared"))  # fmt: skip
WRITTEN = "its writer"
READ_BY_ALL = "header v1 is read by every version"
BLOCKING = ("SoC", "version", "host", "loader", "weight file")  # without one of these the model cannot be loaded
SHOWN_NAMELESS = 20  # nodes whose weight file has no name; the others are counted
_STAGE = r"(?:\.(alpha|beta|RC|T)(\d+))?"
CANN_VERSION = re.compile(rf"(\d+)(?:\.(\d+))?(?:\.(\d+))?{_STAGE}{_STAGE}(?:[._-]|$)", re.IGNORECASE)
STAGES = {"alpha": -3, "beta": -2, "t": -2, "rc": -1}
HOST_SUFFIX = re.compile(r"_(linux)_(x86_64|aarch64|arm64)$")


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """Where the model shall be loaded; None where it is not asked."""

    soc: str | None = None
    version: str | None = None

    @property
    def is_asked(self) -> bool:
        return self.soc is not None or self.version is not None


ANYWHERE = LoadTarget()


class Version(NamedTuple):
    """A CANN version; `stage` is 0 for a release and negative before it (alpha -3, beta -2, RC -1).

    What comes before a release candidate, as `8.0.RC1.alpha003`, has a second stage.
    """

    major: int
    minor: int = 0
    patch: int = 0
    stage: int = 0
    number: int = 0
    second_stage: int = 0
    second_number: int = 0

    def __str__(self) -> str:
        stages = ((self.stage, self.number), (self.second_stage, self.second_number))
        patch = [] if self.stage and not self.patch else [self.patch]
        names = [{-3: f"alpha{number:03}", -2: f"beta{number}", -1: f"RC{number}"}[stage]
                 for stage, number in stages if stage]  # fmt: skip
        return ".".join(map(str, (self.major, self.minor, *patch, *names)))


# What forms of the file need; om-format.md 1.1, 1.2, 5 and 12.1.
HEADER_2 = Version(5, 0, 4)
WIDE_TABLE = Version(7)
COMPRESSED_NAMES = Version(8, 0, 0, -3, 3)
# CANN versions of atc's own numbers, newest first; om-format.md 12.1.
_OF_ATC: tuple[tuple[re.Pattern[str], Version], ...] = (
    (re.compile(r"7\.6\.T"), Version(8, 0, 0, -3, 3)),
    (re.compile(r"7\.[6-9]\."), Version(8)),
    (re.compile(r"7\.[2-5]\."), Version(7)),
    (re.compile(r"1\.81\."), Version(5, 1, 0, -1, 1)),
    (re.compile(r"1\.80\."), Version(5, 0, 4)),
    (re.compile(r"1\."), Version(3)),
)
# 2.x and 4.x were never there. 20.0 to 20.2 of the year 2020 and the numbers of drivers, 21.x and later, are in no
# order with the others.
_NEVER, _NEWEST_MAJOR = frozenset((0, 2, 4)), 19


def _atc_number(text: str) -> tuple[tuple[int, int], ...] | None:
    """The parts of a number of atc such as `1.80.T15.0.B156`, a test build before a release; None for other texts."""
    plain = _plain(text)
    if not any(pattern.match(f"{plain}.") for pattern, _ in _OF_ATC):
        return None
    parts = [re.fullmatch(r"([TB]?)(\d+)", part, re.IGNORECASE) for part in plain.split(".")]
    return tuple((part[1].upper() != "T", int(part[2])) for part in parts if part is not None)


def _plain(text: str) -> str:
    return re.sub(r"(?i)^\s*(cann|atc)?\s*v?", "", text).strip()


def _is_new_enough(version: str, writer: str) -> bool | None:
    """Whether a version is that of the writer or a later one; None for a number of atc that stops before it differs."""
    given, needed = cann_version(version), cann_version(writer)
    assert given is not None and needed is not None  # both were looked at before
    if given != needed:
        return given > needed
    one, other = _atc_number(version), _atc_number(writer)
    if one is None or other is None:  # of CANN and of atc: the same release
        return True
    return None if len(one) < len(other) and other[: len(one)] == one else one >= other


def cann_version(text: str) -> Version | None:
    """The CANN version of `8.0.RC1`, `5.0.4`, or of a number of atc such as `7.6.0.1`; None for other texts.

    So it is for numbers that are in no order with these: CANN 20.x, and those of drivers.
    """
    plain = _plain(text)
    known = next((version for pattern, version in _OF_ATC if pattern.match(f"{plain}.")), None)
    if known is not None and re.match(r"\d", plain):
        return known
    match = CANN_VERSION.match(plain)
    if match is None or (match[1] == "5" and match[2] == "20"):  # 5.20 numbers a branch of its own
        return None
    if int(match[1]) in _NEVER or int(match[1]) > _NEWEST_MAJOR:
        return None
    stages = [(STAGES.get((match[k] or "").lower(), 0), int(match[k + 1] or 0)) for k in (4, 6)]
    return Version(int(match[1]), int(match[2] or 0), int(match[3] or 0), *stages[0], *stages[1])


def check_target(target: LoadTarget, recorded_soc: str | None) -> None:
    """Raises InvalidOption for a version that is none and for a chip that does not exist, unless the file names it."""
    if target.version is not None and not _is_own(target.version) and cann_version(target.version) is None:
        why, do = "expected the version of CANN or atc, such as 8.0.RC1, 5.0.4 or 7.6.0.1", "--for-version 8.0.0"
        if re.match(r"2\d\.", _plain(target.version)):
            why = "CANN 20.x of the year 2020 and drivers (21.x and later) are numbered otherwise than CANN 3.x to 8.x"
            do = "--for-version with the number of atc, such as 1.75.22, or with that of CANN, such as 5.0.4"
        raise InvalidOption(
            "E10001", f"value {target.version!r} for --for-version is invalid", option="--for-version", why=why, do=do
        )
    if target.soc is not None and target.soc != recorded_soc:
        from gecli.layout.platform import platform_of

        try:
            platform_of(target.soc)
        except InvalidOption as error:
            found = error.first
            raise InvalidOption(
                "E10001", f"value {target.soc!r} for --target is invalid: no SoC has this name", option="--target",
                why=found.why, do=found.do.replace("--soc-version", "--target"), expected=found.expected,
                actual=target.soc,
            ) from error  # fmt: skip


def load_needs(subject: Subject, facts: dict[str, Any], target: LoadTarget) -> list[dict[str, Any]]:
    """A row for each thing: `found` is null where nobody asked or this machine cannot say."""
    needs: list[dict[str, Any]] = []
    if subject.kind in ("bundle", "flow", "preload"):
        needs.append(_need("loader", f"gecli run does not support {subject.kind} models", found=False))
    elif subject.om is None:
        needs.append(_need("loader", "no loader reads a graph without its OM container", found=False))
    elif subject.om.is_mobile:
        needs.append(_need("loader", "only the mobile (HiAI) tools load it", found=False))
    model = facts.get("model")
    if model:
        for_device = subject.om is not None and not subject.om.is_mobile
        if model["soc"] is not None or target.soc is not None or for_device:
            needs.append(_soc_need(model["soc"], target.soc))
        if for_device:
            needs += _version_needs(subject, model, target.version, asked=target.is_asked)
    needs += _host_needs(subject)
    needs += _file_needs(subject, facts)
    memory = facts.get("memory") or {}
    held = facts.get("held_weights")
    if subject.om is None and facts.get("laid_out") != "at run time":
        held = None  # of a graph that was not compiled the weights alone say nothing
    if any(memory.get(name) for name, _ in MEMORY) or (held and held["bytes"]):
        needs.append(_memory_need(memory, facts))
    return needs


def loads(needs: list[dict[str, Any]], sound: bool, target: LoadTarget) -> bool | None:
    """False when something is missing, None when something is not known."""
    blocking = [need["found"] for need in needs if need["what"] in BLOCKING]
    if False in blocking or not sound:
        return False
    answered = {need["what"]: need["found"] for need in needs if need["what"] in ("SoC", "version")}
    asked = [answered.get("SoC")] * (target.soc is not None) + [answered.get("version")] * (target.version is not None)
    return True if asked and all(asked) else None


def lacks(needs: list[dict[str, Any]]) -> list[str]:
    """What keeps the model from being loaded, in words."""
    return [lack(need) for need in needs if need["what"] in BLOCKING and need["found"] is False]


def lack(need: dict[str, Any]) -> str:
    why: str | None = need["why"]
    if why and need["what"] == "weight file":
        return f"weight file {need['name']}: {why}"
    return why or (need["name"] if need["what"] == "loader" else f"{need['what']} {need['name']} is missing")


def _need(
    what: str, name: str, *, found: bool | None = None, why: str | None = None, size: int | None = None
) -> dict[str, Any]:
    return {"what": what, "name": name, "found": found, "why": why, "bytes": size}


def _soc_need(soc: str | None, target: str | None) -> dict[str, Any]:
    if soc is None:
        return _need("SoC", "not recorded", why="the file does not say which chip it was compiled for")
    if target is None or target == soc:
        return _need("SoC", soc, found=None if target is None else True)
    if _family(soc) == _family(target):
        why = f"{target} is of the same family, but the number of its cores may differ"
        return _need("SoC", soc, why=why)
    return _need("SoC", soc, found=False, why=f"it is compiled for {soc}, not for {target}")


def _family(soc: str) -> str:
    """`Ascend910B` of Ascend910B3; core counts and clocks differ inside a family."""
    match = re.match(r"Ascend(?:910_93|910B(?=\d|$)|950|\d+[BP](?=\d|$)|\d+)", soc)
    return match[0] if match is not None else soc


def _version_needs(
    subject: Subject, model: dict[str, Any], version: str | None, *, asked: bool
) -> list[dict[str, Any]]:
    """The oldest software that reads the file, and for dynamic models the exact operator package."""
    om = subject.container
    writer = model["writer"] or ""
    if version is not None and _is_own(version):
        against = why_not_run(subject, thoroughly=True)
        return [_need("version", "gecli", found=not against, why=against or "gecli reads every generation of OM files")]
    written = None if _is_own(writer) else cann_version(writer)
    reasons: list[tuple[Version, str]] = []
    if written is not None and not (om.header.is_version_1 and written < HEADER_2):
        reasons.append((written, WRITTEN))
    forms = [(COMPRESSED_NAMES, "compression of attribute names")] * bool(model["compressed_names"])
    forms += [(WIDE_TABLE, "wide partition table")] * om.wide
    forms += [(HEADER_2, "header of version 2")] * (not om.header.is_version_1)
    # A test build of the release that brought a form had it already, when it wrote it.
    reasons += [form for form in forms if written is None or written[:3] != form[0][:3] or written >= form[0]]
    given = None if version is None else cann_version(version)
    if reasons:
        oldest, why = max(reasons, key=lambda reason: reason[0])
        found = [_oldest_need(oldest, why, writer, version)]
    else:
        found = [_need("version", "any", found=None if version is None else True, why=READ_BY_ALL)]
    package = subject.model().attrs.get("opp_version")
    if om.header.is_unknow_model and isinstance(package, str) and package:
        same = None if given is None else cann_version(package) == given
        found.append(_need("version", f"operator package {package}", found=same,
                           why="a model of dynamic shapes needs exactly this one"))  # fmt: skip
    if _is_own(writer) and subject.kind == "om":
        against = why_not_run(subject, thoroughly=asked)
        found.append(_need("loader", "gecli run", found=False if against else True if asked else None,
                           why=against or "its tasks are simulated: no device executes them"))  # fmt: skip
    return found


def _oldest_need(oldest: Version, why: str, writer: str, version: str | None) -> dict[str, Any]:
    """What the oldest software is that reads the file, and whether `version` is as new."""
    name = f"atc {writer} (CANN {oldest})" if why == WRITTEN else f"CANN {oldest}"
    given = None if version is None else cann_version(version)
    if version is None or given is None:
        return _need("version", f"{name} or later", why=why)
    good = _is_new_enough(version, writer) if why == WRITTEN else given >= oldest
    if good is None:
        why = f"{version} does not say whether it is as new as atc {writer}, which wrote it"
    if good is False:
        reason = f"it was written by atc {writer}" if why == WRITTEN else f"its {why} needs CANN {oldest}"
        why = f"{reason}, and {version} is older"
    return _need("version", f"{name} or later", found=good, why=why)


def _is_own(text: str) -> bool:
    return text.startswith("gecli")


def _host_needs(subject: Subject) -> list[dict[str, Any]]:
    """OS and CPU, where libraries for the host are inside."""
    if subject.om is None or not subject.om.header.need_check_os_cpu_info:
        return []
    model = subject.model_or_none()
    attrs = {} if model is None else model.attrs
    system, cpu = attrs.get("host_env_os"), attrs.get("host_env_cpu")
    suffix = HOST_SUFFIX.search(os.path.splitext(os.path.basename(subject.path))[0])
    if not (isinstance(system, str) and isinstance(cpu, str)):
        if suffix is None:
            return [_need("host", "not recorded", why="the host libraries inside fit one OS and CPU only")]
        system, cpu = suffix.groups()
    here = (platform.system().lower(), platform.machine().lower().replace("arm64", "aarch64"))
    same = (system.lower(), cpu.lower().replace("arm64", "aarch64")) == here
    return [_need("host", f"{system} {cpu}", found=same, why=f"this machine is {' '.join(here)}")]


def _file_needs(subject: Subject, facts: dict[str, Any]) -> list[dict[str, Any]]:
    needs: list[dict[str, Any]] = []
    variables = facts.get("variables")
    if variables and variables["count"] and subject.om is not None:
        needs.append(_record_need(subject))
    directory = os.path.dirname(subject.path)
    ends: dict[tuple[str, str], int] = {}
    nameless: list[str] = []
    more = 0
    for row in facts.get("external_weights", ()):
        name = os.path.basename(row["file"] or "")
        if not name:
            if len(nameless) < SHOWN_NAMELESS:
                nameless.append(row["node"])
            else:
                more += 1
            continue
        numbers = [row[key] for key in ("offset", "bytes") if isinstance(row[key], int)]
        key = (name, row["file"] if os.path.isabs(row["file"]) else "")
        ends[key] = max(ends.get(key, 0), sum(numbers))
    for (name, stored), end in ends.items():
        needs.append(_weight_file(directory, name, stored, end))
    nodes = [f"node {node}" for node in nameless] + ([counted(more, "more node")] if more else [])
    needs += [_need("weight file", f"of {each}", found=False, why="the file names none") for each in nodes]
    return needs


def _record_need(subject: Subject) -> dict[str, Any]:
    """The record of the variables' forms; a model runs without one."""
    name = os.path.basename(subject.record_path)
    if not os.path.exists(subject.record_path):
        why = "not there: it runs without, but values in declared formats cannot be converted to the stored ones"
    elif subject.variable_record() is None:
        why = "damaged"
    else:
        why = why_other_record(subject)
    return _need("variable record", name, found=not why, why=why or None)


def _weight_file(directory: str, name: str, stored: str, end: int) -> dict[str, Any]:
    """Where the loader looks: `weight/` beside the OM, beside it, then the absolute path in the OM (cli.md 3.7)."""
    for place in (os.path.join(directory, "weight", name), os.path.join(directory, name), stored):
        if place and os.path.isfile(place):
            size = os.path.getsize(place)
            why = f"it has {size} of the {end} bytes that are read" if size < end else None
            if why is None and place == stored:
                why = "only at the absolute path that the OM names"
            return _need("weight file", name, found=size >= end, why=why, size=end)
    return _need("weight file", name, found=False, size=end)


def _memory_need(memory: dict[str, int], facts: dict[str, Any]) -> dict[str, Any]:
    if facts["held_weights"] is not None:
        memory = {**memory, "weight_size": facts["held_weights"]["bytes"]}
    parts = [(label, memory[name]) for name, label in MEMORY if memory.get(name)]
    area = facts["variables"]
    external = sum(row["bytes"] for row in facts["external_weights"] if isinstance(row["bytes"], int))
    if area["bytes"]:
        named = (("external_weights", "external weights"), ("count", "variables"), ("constants", "constants"))
        labels = [label for key, label in named if area[key]]
        joined = " and ".join([", ".join(labels[:-1]), labels[-1]] if len(labels) > 1 else labels)
        parts.append((joined, area["bytes"]))
    if external and not area["external_weights"]:
        parts.append(("external weights", external))
    total = sum(size for _, size in parts)
    shown = ", ".join(f"{label} {size_text(size)}" for label, size in parts)
    if facts["laid_out"] == "at run time":
        shown = f"{shown}; features are laid out at run time"
        return _need("memory", f"{size_text(total)} and more", why=shown, size=total)
    return _need("memory", size_text(total), why=shown or None, size=total)
