"""`gecli run --device LIST`: the models on several simulated devices at once, one thread each (runtime.md 7.2)."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from gecli.cli.console import Console
from gecli.cli.run import (
    Done,
    Job,
    Loaded,
    command_of,
    finish,
    give_values,
    load_all,
    perform,
    read_inputs,
    run_alone,
    save_requests,
    show_plan,
    tell,
    write_files,
)
from gecli.errors import Diagnostic, InvalidOption

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gecli.cli.run_compare import Golden
    from gecli.options.values import Options
    from gecli.report.comparison import Difference
    from gecli.runtime.device_group import DeviceGroup, Member
    from gecli.runtime.input_names import Command
    from gecli.runtime.runner import Outcome

DEVICE = "{device}"  # in the name of a file: the number of the device
SCHEMA = "gecli.run-devices/1"
# One file each, which several devices would write.
FILES = ("save-vars", "save-inputs", "export-times", "profile-out")
# Texts in which a file may be named, beside the options that are paths.
TEXTS = ("input", "set-var", "get-var", "placeholder")
SAME_EVERYWHERE = ("log-file", "session-out")
EXCLUDED = (
    ("jit", "--jit compiles for one device", "gecli compile MODEL -o X.om, then gecli run X.om --device LIST"),
    ("duration", "devices that stop by the clock run unequal numbers of collectives", "--loop N"),
)


class _Device(NamedTuple):
    """One device: its options, its part of the screen, its models with their inputs, what they are compared with."""

    member: Member
    options: Options
    console: Console
    loaded: Loaded
    golden: Golden | None
    jobs: list[Job]


class _Result(NamedTuple):
    """What the thread of a device gives."""

    outcomes: list[Outcome]
    differences: list[Difference] | None


class DeviceConsole(Console):
    """The screen as one of several devices writes on it: every line and every message says which."""

    def __init__(self, console: Console, device: int) -> None:
        self.__dict__.update(console.__dict__)
        self._screen = console
        self._device = f"device {device}"

    def result(self, text: str) -> None:
        super().result(self._marked(text))

    def say(self, text: str, level: int = 0, *, asked: bool = False) -> None:
        super().say(self._marked(text), level, asked=asked)

    def report(self, diagnostics: Iterable[Diagnostic]) -> None:
        super().report(
            replace(each, where=f"{self._device}: {place}" if (place := each.place()) else self._device)
            for each in diagnostics
        )

    def _note(self, text: str) -> None:
        self._screen._note(text)  # which keeps what is wrong with the log file

    def _marked(self, text: str) -> str:
        return "\n".join(f"{self._device}: {line}" for line in text.split("\n"))


class _SilentConsole(DeviceConsole):
    """For the second device and those behind it while the same models are loaded as on the first."""

    def result(self, text: str) -> None:
        pass

    def say(self, text: str, level: int = 0, *, asked: bool = False) -> None:
        pass

    def report(self, diagnostics: Iterable[Diagnostic]) -> None:
        pass


def device_numbers(options: Options) -> list[int]:
    """The devices of --device in rank order. Raises InvalidOption for one that is named twice."""
    text = options.text("device") or "0"
    numbers = [int(part) for part in text.split(",")]
    if len(set(numbers)) < len(numbers):
        once = ",".join(map(str, dict.fromkeys(numbers)))
        raise InvalidOption(
            "E10001", f'value "{text}" for --device is invalid', option="--device",
            why="every device has one rank", do=f"--device {once}",
        )  # fmt: skip
    return numbers


def run_on_devices(options: Options, paths: list[str], console: Console) -> int:
    """Run the models on the devices of --device. Raises what failed, that of the lowest device first."""
    numbers = device_numbers(options)
    own = [_options_of(options, number, alone=len(numbers) == 1) for number in numbers]
    for each in own[1:]:  # what variables are is the same on all devices: the first one saves it
        each.set(each.option("session-out"), None, "default")
    if len(numbers) == 1:
        return run_alone(own[0], paths, console)
    _refuse(options, numbers)
    _check_files(own, paths)
    from gecli.runtime.device_group import DeviceGroup

    return _run(DeviceGroup(numbers, options.number("collective-timeout") or 0.0), own, paths, console)


# ---------------------------------------------------------------- options


def _options_of(options: Options, device: int, *, alone: bool) -> Options:
    """The options of one device: its number in names of files, directories of its own below -o and --dump-dir."""
    own = options.copy()
    for option, value, origin in list(options.items()):
        if option.name in SAME_EVERYWHERE or not (option.type == "path" or option.name in TEXTS):
            continue
        if isinstance(value, str):
            own.set(option, value.replace(DEVICE, str(device)), origin)
        elif isinstance(value, tuple):
            own.set(option, tuple(text.replace(DEVICE, str(device)) for text in value), origin)
    if alone:
        return own
    for name in ("output", "dump-dir"):
        folder = options.text(name)
        if folder and DEVICE not in folder and not _is_one_file(folder):
            own.set(options.option(name), os.path.join(folder, f"device{device}"), options.origin(name))
    return own


def _is_one_file(output: str) -> bool:
    return output == "-" or output.endswith(".npz")


def _refuse(options: Options, numbers: Sequence[int]) -> None:
    """Raises one InvalidOption with everything that several devices cannot have in common."""
    shown = ",".join(map(str, numbers))
    problems = [
        Diagnostic("E10047", f"--device {shown} excludes --{name}", why=why, do=do, option=f"--{name}")
        for name, why, do in EXCLUDED
        if options.get(name)
    ]
    problems += list(_shared_files(options, len(numbers)))
    if problems:
        raise InvalidOption.of(problems)


def _shared_files(options: Options, count: int) -> Iterator[Diagnostic]:
    """Files that every device would write."""
    named = [(name, options.text(name) or "") for name in FILES]
    output = options.text("output") or ""
    named += [("output", output)] if _is_one_file(output) else []
    for name, path in [*named, *(("get-var", text) for text in options.texts("get-var") if "=" in text)]:
        if not path or DEVICE in path:
            continue
        stem, ending = os.path.splitext(path)
        do = "-o DIR" if path == "-" else f"--{name} '{stem}{DEVICE}{ending}'"
        yield Diagnostic(
            "E10047", f"--{name} {path} is one file for {count} devices", option=f"--{name}",
            why=f"each device writes its own; {DEVICE} in the name stands for its number", do=do,
        )  # fmt: skip


def _check_files(own: Sequence[Options], paths: list[str]) -> None:
    """Raises InvalidOption and OutputError as for the names that were typed."""
    from gecli.cli.output_places import check_places, places_of
    from gecli.cli.written_files import check_written_files

    for options in own:
        places = list(places_of("run", options, paths))
        check_written_files("run", options, paths, places)
        check_places(places)


# ---------------------------------------------------------------- running


def _run(group: DeviceGroup, own: list[Options], paths: list[str], console: Console) -> int:
    from gecli.artifacts.publish import publish_waiting, published_together

    devices = _loaded(group, own, paths, console)
    if own[0].flag("plan"):
        return show_plan(devices[0].loaded.regions, console, devices=list(group.devices))
    with published_together():  # nothing is left of a run that fails, but what --dump saw
        try:
            results = group.run(lambda member: _work(devices[member.rank]))
        except Exception:
            for device in devices:
                finish([dump for job in device.jobs for dump in job.dumps if dump.rows], device.console)
            publish_waiting()
            raise
        finally:
            for text in group.stopped:
                console.say(text, level=1)
        files = [_files(device, result, paths) for device, result in zip(devices, results, strict=True)]
    documents = [_told(*row) for row in zip(devices, results, files, strict=True)]
    if console.json:
        ok = all(document["ok"] for document in documents)
        console.document({"schema": SCHEMA, "ok": ok, "simulated": True, "devices": documents})
    return 0 if all(all(row.equal for row in result.differences or ()) for result in results) else 1


def _loaded(group: DeviceGroup, own: list[Options], paths: list[str], console: Console) -> list[_Device]:
    """Every model on every device, with the values of its inputs; all of it in this thread."""
    from gecli.ops.communication import speaking_for
    from gecli.runtime.shared_files import SharedFiles

    devices: list[_Device] = []
    files = SharedFiles()
    command: Command | None = None  # standard input has its bytes only once
    for member, options in zip(group.members, own, strict=True):
        with speaking_for(member):
            loaded = load_all(options, paths, _SilentConsole(console, member.device) if devices else console, files)
            screen = DeviceConsole(console, member.device)
            if options.flag("plan"):
                return [_Device(member, options, screen, loaded, None, [])]
            golden = give_values(options, loaded, screen)
            command = command or command_of(loaded)
            devices.append(_Device(member, options, screen, loaded, golden, read_inputs(options, loaded, command)))
    return devices


def _work(device: _Device) -> _Result:
    """What the thread of a device does."""
    outcomes = [perform(device.options, job) for job in device.jobs]
    requests = [job.feeds for job in device.jobs]
    return _Result(outcomes, None if device.golden is None else device.golden.differences(outcomes, requests))


def _files(device: _Device, result: _Result, paths: list[str]) -> dict[str, str]:
    finish([dump for job in device.jobs for dump in job.dumps], device.console)
    save_requests(device.options, device.jobs)
    return write_files(device.options, paths, result.outcomes, device.loaded.shared, device.console)


def _told(device: _Device, result: _Result, files: dict[str, str]) -> dict[str, Any]:
    """Show what a device did; its part of the document, which is empty without --json."""
    member, console = device.member, device.console
    sent = member.traffic
    if sent.calls:
        console.say(
            f"{sent.calls} collectives, {sent.bytes_sent} bytes sent, {sent.waited_ns / 1e6:.3f} ms waited for others"
        )
    done = Done(result.outcomes, device.jobs, files, result.differences)
    document = tell(device.options, device.loaded, done, device.golden, console)
    collectives = {"calls": sent.calls, "bytes_sent": sent.bytes_sent, "waited_ms": sent.waited_ns / 1e6}
    return document | {"device": member.device, "rank": member.rank, "collectives": collectives}
