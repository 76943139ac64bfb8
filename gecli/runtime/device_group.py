"""Several simulated devices at work together: a thread for each, which meet at collectives (runtime.md 7.2, 7.3).

A collective is complete when every rank has called one; the last to arrive computes it for all. A rank that ends, or
waits for something else, while others wait for it shows itself at once: then nobody computes any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from threading import TIMEOUT_MAX, Condition, Thread
from time import monotonic, perf_counter_ns
from typing import Any, NamedTuple, TypeVar

from gecli.errors import Diagnostic, GecliError, RuntimeFault
from gecli.ops.communication import Arrays, Call, Combine, Communicator, Message, Traffic, never_received, speaking_for
from gecli.ops.numeric import Array
from gecli.records import dataclass
from gecli.runtime.node_fault import KERNEL_ERRORS

T = TypeVar("T")
DEFAULT_TIMEOUT_S = 30.0
_Address = tuple[str, int, int, int]  # group, source, destination, tag


class Cancelled(RuntimeFault):
    """Another device failed, or the group cannot go on: this one stops at its collective."""


class Arrival(NamedTuple):
    """A rank at a collective."""

    call: Call
    arrays: Arrays


@dataclass(slots=True, eq=False)
class _Meeting:
    """One collective: who has arrived, and what each rank gets once all have."""

    arrived: dict[int, Arrival] = field(default_factory=dict)
    results: Sequence[Arrays] | None = None


@dataclass(slots=True)
class RankTraffic:
    """What a rank has sent: collectives and sends, bytes, and how long it waited for others."""

    calls: int = 0
    bytes_sent: int = 0
    waited_ns: int = 0


class Member(Communicator):
    """One device of a group."""

    def __init__(self, group: DeviceGroup, rank: int, device: int) -> None:
        super().__init__()
        self.rank, self.device = rank, device
        self.size = len(group.devices)
        self.traffic = RankTraffic()
        self._group = group

    def exchange(self, call: Call, arrays: Arrays, combine: Combine, traffic: Traffic) -> Arrays:
        return self._group.exchange(self, Arrival(call, arrays), combine, traffic)

    def send(self, call: Call, destination: int, tag: int, array: Array) -> None:
        self._group.send(self, call, (call.group, self.rank, destination, tag), array)

    def receive(self, call: Call, source: int, tag: int) -> Message:
        return self._group.receive(self, call, (call.group, source, self.rank, tag))

    def __str__(self) -> str:
        return f"rank {self.rank} (device {self.device})"


class DeviceGroup:
    """The devices of one command, in rank order. Every group name that a collective has means all of them."""

    def __init__(self, devices: Sequence[int], timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.devices = tuple(devices)
        self.members = tuple(Member(self, rank, device) for rank, device in enumerate(devices))
        self.stopped: list[str] = []  # what `run` says of the members that it cancelled
        self._timeout_s = min(timeout_s, TIMEOUT_MAX)
        self._changed = Condition()
        self._begin()

    def _begin(self) -> None:
        """As if nothing had been called before. All of this is looked at and changed under the condition only."""
        self._meetings: dict[str, _Meeting] = {}
        self._mail: dict[_Address, deque[Message]] = {}
        self._waiting: dict[int, tuple[Call, str]] = {}  # ranks that nothing has released yet, and for what they wait
        self._ended: set[int] = set()
        self._fault: RuntimeFault | None = None  # why the group cannot go on
        self._stopped_by = ""

    # ------------------------------------------------------------------ running

    def run(self, work: Callable[[Member], T]) -> list[T]:
        """What `work` gives for each member, each in a thread of its own.

        A member that fails cancels the others at their next collective. Raises what failed: of several devices that of
        the lowest number first, which decides the exit status.
        """
        self._begin()
        results: dict[int, T] = {}
        failed: dict[int, BaseException] = {}

        def perform(member: Member) -> None:
            try:
                with speaking_for(member):
                    results[member.rank] = work(member)
            except BaseException as error:  # raised again by the thread that waits for it
                failed[member.rank] = error
                self._end(member, f"device {member.device} failed")
            else:
                self._end(member, "")

        threads = [
            Thread(target=perform, args=(member,), daemon=True, name=f"gecli-device-{member.device}")
            for member in self.members
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException:
            self.cancel("the command was stopped")
            raise
        self.stopped = [
            f"device {self.devices[rank]} {error.first.message}"
            for rank, error in sorted(failed.items())
            if isinstance(error, Cancelled)
        ]
        self._raise(failed)
        return [results[rank] for rank in range(len(self.members))]

    def cancel(self, why: str) -> None:
        """Let every member stop at its next collective."""
        with self._changed:
            self._stopped_by = self._stopped_by or why
            self._changed.notify_all()

    def _end(self, member: Member, failure: str) -> None:
        with self._changed:
            self._ended.add(member.rank)
            self._stopped_by = self._stopped_by or failure
            self._require_progress()
            self._changed.notify_all()

    def _raise(self, failed: Mapping[int, BaseException]) -> None:
        """Raises the faults of the devices, else that of the group, else that of a tensor which nobody took."""
        own = {self.devices[rank]: error for rank, error in failed.items() if not isinstance(error, Cancelled)}
        for device in sorted(own):
            if not isinstance(own[device], GecliError):
                raise own[device]
        if own:
            raise _joined({device: error for device, error in own.items() if isinstance(error, GecliError)})
        if self._fault is not None:
            raise self._fault
        for error in failed.values():
            raise error
        self.require_all_taken()

    # ------------------------------------------------------------------ collectives

    def exchange(self, member: Member, arrival: Arrival, combine: Combine, traffic: Traffic) -> Arrays:
        """What the member gets from a collective. Raises Cancelled."""
        call = arrival.call
        with self._changed:
            self._require_going(call)
            meeting = self._meetings.setdefault(call.group, _Meeting())
            meeting.arrived[member.rank] = arrival
            if len(meeting.arrived) < len(self.members):
                self._wait(member, call, call.group, lambda: meeting.results is not None)
                assert meeting.results is not None
                return meeting.results[member.rank]
            del self._meetings[call.group]
            for rank in meeting.arrived:
                self._waiting.pop(rank, None)
        try:
            given = self._agreed(meeting)
            results, sent = combine(given), traffic(given)
        except (RuntimeFault, *KERNEL_ERRORS) as error:
            with self._changed:
                self._stop(error, call)
                raise self._told(call) from error
        with self._changed:
            meeting.results = results
            for each, size in zip(self.members, sent, strict=True):
                each.traffic.calls += 1
                each.traffic.bytes_sent += size
            self._changed.notify_all()
        return results[member.rank]

    def send(self, member: Member, call: Call, address: _Address, array: Array) -> None:
        """Leave a copy of a tensor for another rank. Raises Cancelled."""
        with self._changed:
            self._require_going(call)
            self._mail.setdefault(address, deque()).append(Message(call.node, array.copy()))
            member.traffic.calls += 1
            member.traffic.bytes_sent += array.nbytes if address[1] != address[2] else 0
            receiver = self._waiting.get(address[2])
            if receiver is not None and receiver[1] == _mail_text(address):
                del self._waiting[address[2]]
            self._changed.notify_all()

    def receive(self, member: Member, call: Call, address: _Address) -> Message:
        """The next tensor from another rank. Raises Cancelled."""
        with self._changed:
            self._require_going(call)
            if not self._mail.get(address):
                self._wait(member, call, _mail_text(address), lambda: bool(self._mail.get(address)))
            return self._mail[address].popleft()

    def _agreed(self, meeting: _Meeting) -> list[Arrays]:
        """What the ranks gave. Raises RuntimeFault (RT_COLLECTIVE_MISMATCH) when one of them means something else."""
        arrivals = [meeting.arrived[member.rank] for member in self.members]
        first = arrivals[0].call
        for member, (call, _) in zip(self.members, arrivals):
            if call != first:
                raise _mismatch(self.members[0], first, member, call)
        return [arrival.arrays for arrival in arrivals]

    def _wait(self, member: Member, call: Call, what: str, ready: Callable[[], bool]) -> None:
        """Wait until `ready`. Raises Cancelled when the group stops or nothing comes in time."""
        self._waiting[member.rank] = (call, what)
        self._require_progress()
        start = perf_counter_ns()
        limit = monotonic() + self._timeout_s
        while not ready() and not self._stopped_by:
            is_released = member.rank not in self._waiting
            left = limit - monotonic()
            if left <= 0 and not is_released:
                self._stop(self._too_late(member), call)
                break
            self._changed.wait(None if is_released else left)
        self._waiting.pop(member.rank, None)
        member.traffic.waited_ns += perf_counter_ns() - start
        if not ready():
            raise self._told(call)

    # ------------------------------------------------------------------ stopping

    def _require_going(self, call: Call) -> None:
        if self._stopped_by:
            raise self._told(call)

    def _told(self, call: Call) -> Cancelled:
        return Cancelled("G4015", f"stopped at {call.type} {call.node!r}: {self._stopped_by}", node=call.node)

    def _stop(self, error: BaseException, call: Call) -> None:
        """The group cannot go on."""
        if not self._stopped_by:
            self._stopped_by = "the collective failed"
            self._fault = error if isinstance(error, RuntimeFault) else _cannot_compute(call, error)
        self._changed.notify_all()

    def _require_progress(self) -> None:
        """Stop when every rank has ended or waits for another one."""
        if self._stopped_by or not self._waiting or len(self._waiting) + len(self._ended) < len(self.members):
            return
        self._stop(self._deadlock(), next(iter(self._waiting.values()))[0])

    def _deadlock(self) -> RuntimeFault:
        return RuntimeFault(
            "G4015",
            "the devices wait for each other" if not self._ended else "a device waits for one that has ended",
            kind="RT_COLLECTIVE_DEADLOCK",
            where="; ".join(self._state(member) for member in self.members),
            why=self._who_is_missing(),
            do="let every device run the same collectives in the same order and as often, and send before it receives",
        )

    def _too_late(self, member: Member) -> RuntimeFault:
        call, _ = self._waiting[member.rank]
        return RuntimeFault(
            "G4015",
            f"{call.type} {call.node!r} was not complete after {self._timeout_s:g} s",
            kind="RT_COLLECTIVE_DEADLOCK",
            where="; ".join(self._state(each) for each in self.members),
            why=self._who_is_missing(),
            do="let every device run the same collectives, or give a longer --collective-timeout",
            node=call.node,
        )

    def _state(self, member: Member) -> str:
        if member.rank in self._ended:
            return f"{member} has ended"
        if member.rank not in self._waiting:
            return f"{member} computes"
        call, what = self._waiting[member.rank]
        return f"{member} waits at {call.type} {call.node!r}" + ("" if what == call.group else f" for {what}")

    def _who_is_missing(self) -> str:
        """For each collective that has begun the ranks that are there and those that are not."""
        rows = []
        for group, meeting in sorted(self._meetings.items()):
            missing = ", ".join(str(each) for each in self.members if each.rank not in meeting.arrived)
            arrived = ", ".join(str(each) for each in self.members if each.rank in meeting.arrived)
            call = next(iter(meeting.arrived.values())).call
            rows.append(f"{call.type} {call.node!r} of group {group!r}: arrived {arrived}; missing {missing}")
        return "; ".join(rows) or "no tensor is on its way"

    def require_all_taken(self) -> None:
        """Raises RuntimeFault (RT_COLLECTIVE_DEADLOCK) when what was sent was never received."""
        for (group, source, destination, tag), messages in sorted(self._mail.items()):
            if messages:
                receiver = f"HcomReceive on {self.members[destination]} with sr_tag {tag} and src_rank {source}"
                raise never_received(messages, f"{receiver} in group {group!r}", f" of {self.members[source]}")


def _mail_text(address: _Address) -> str:
    return f"a tensor with tag {address[3]} from rank {address[1]}"


def _mismatch(one: Member, mine: Call, other: Member, theirs: Call) -> RuntimeFault:
    """What two ranks call at the same time, and what differs."""
    if (mine.type, mine.node) != (theirs.type, theirs.node):
        left, right = f"{mine.type} {mine.node!r}", f"{theirs.type} {theirs.node!r}"
    elif mine.operands != theirs.operands:
        left, right = _operands_text(mine), _operands_text(theirs)
    else:
        pairs = [(a, b) for a, b in zip(mine.attributes, theirs.attributes) if a != b]
        left, right = (", ".join(f"{each[side][0]} {each[side][1]}" for each in pairs) for side in (0, 1))
    return RuntimeFault(
        "G4015",
        f"{one} and {other} do not call the same collective",
        kind="RT_COLLECTIVE_MISMATCH",
        where=f"{mine.type} {mine.node!r} of group {mine.group!r}",
        why=f"{one} has {left}, {other} has {right}",
        do="let every device run the same collectives in the same order, on tensors of one type and size",
        node=mine.node,
        expected=left,
        actual=right,
    )


def _operands_text(call: Call) -> str:
    shown = [dtype if count < 0 else f"{count} elements of {dtype}" for dtype, count in call.operands]
    return ", ".join(shown) or "no tensor"


def _cannot_compute(call: Call, error: BaseException) -> RuntimeFault:
    return RuntimeFault(
        "G4015",
        f"{call.type} {call.node!r} cannot be computed from what the devices gave",
        kind="RT_COLLECTIVE_MISMATCH",
        why=str(error) or type(error).__name__,
        node=call.node,
    )


def _joined(errors: Mapping[int, GecliError]) -> GecliError:
    """One error of all: what several devices say alike is told once, with their numbers."""
    devices: dict[Any, list[int]] = {}
    found: dict[Any, Diagnostic] = {}
    for device in sorted(errors):
        for each in errors[device].diagnostics:
            key = (each.code, each.message, each.where, each.why, each.do)
            devices.setdefault(key, []).append(device)
            found.setdefault(key, each)
    first = errors[min(errors)]
    return type(first).of(
        replace(each, where=f"device{'s' if len(devices[key]) > 1 else ''} {', '.join(map(str, devices[key]))}"
                + (f": {place}" if (place := each.place()) else ""))
        for key, each in found.items()
    )  # fmt: skip
