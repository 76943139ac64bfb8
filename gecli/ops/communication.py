"""How a collective operator reaches the other devices: through the communicator of the thread that runs its device.

A thread without one runs a device that is alone: every collective gives back what it was given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import local
from typing import NamedTuple

import numpy as np

from gecli.errors import RuntimeFault
from gecli.ops.numeric import Array

WORLD_GROUP = "hccl_world_group"  # every device of the command, in the order of --device

Arrays = tuple[Array, ...]
# What every rank gets, from what every rank gave; both in rank order. The arrays of a result may be shared by ranks.
Combine = Callable[[Sequence[Arrays]], Sequence[Arrays]]
# How many bytes each rank sends, from what every rank gave.
Traffic = Callable[[Sequence[Arrays]], Sequence[int]]


class Call(NamedTuple):
    """A collective as one rank calls it. What is in it must be the same on every rank."""

    type: str
    node: str
    group: str
    attributes: tuple[tuple[str, object], ...]
    operands: tuple[tuple[str, int], ...]  # type and number of elements of each tensor


class Message(NamedTuple):
    """A tensor on its way from HcomSend to HcomReceive."""

    node: str
    array: Array


class Communicator:
    """The communicator of a device that is alone. That of several devices is `runtime.device_group.Member`."""

    rank = 0
    size = 1

    def __init__(self) -> None:
        self._sent: dict[tuple[str, int], deque[Message]] = {}

    def exchange(self, call: Call, arrays: Arrays, combine: Combine, traffic: Traffic) -> Arrays:
        """What `combine` gives this rank, once every rank of the group has called. Raises RuntimeFault."""
        return combine([arrays])[0]

    def send(self, call: Call, destination: int, tag: int, array: Array) -> None:
        """Leave a copy of a tensor for another rank; never waits. Raises RuntimeFault."""
        self._sent.setdefault((call.group, tag), deque()).append(Message(call.node, array.copy()))

    def receive(self, call: Call, source: int, tag: int) -> Message:
        """The next tensor with this tag from another rank. Raises RuntimeFault."""
        waiting = self._sent.get((call.group, tag))
        if not waiting:
            raise RuntimeFault(
                "G4015",
                f"{call.type} {call.node!r} waits for a tensor that nothing sends",
                kind="RT_COLLECTIVE_DEADLOCK",
                why=f"there is one device, and it has not sent a tensor with tag {tag} before",
                do="order the receiver behind its HcomSend by a control edge",
                node=call.node,
            )
        return waiting.popleft()

    def require_all_taken(self) -> None:
        """Raises RuntimeFault (RT_COLLECTIVE_DEADLOCK) when what was sent was never received; it is gone then."""
        sent, self._sent = self._sent, {}
        for (group, tag), messages in sorted(sent.items()):
            if messages:
                raise never_received(messages, f"HcomReceive with sr_tag {tag} in group {group!r}")


_of_thread = local()


def current() -> Communicator:
    """The communicator of this thread's device."""
    found: Communicator | None = getattr(_of_thread, "communicator", None)
    if found is None:
        found = _of_thread.communicator = Communicator()
    return found


@contextmanager
def speaking_for(communicator: Communicator) -> Iterator[None]:
    """Let what this thread loads and runs belong to the device of `communicator`."""
    before = getattr(_of_thread, "communicator", None)
    _of_thread.communicator = communicator
    try:
        yield
    finally:
        _of_thread.communicator = before


def never_received(messages: deque[Message], receiver: str, sender: str = "") -> RuntimeFault:
    """The error for tensors that wait in vain for `receiver`."""
    count = f"{len(messages)} tensor{'s are' if len(messages) > 1 else ' is'} left"
    return RuntimeFault(
        "G4015",
        f"what HcomSend {messages[0].node!r}{sender} sent was never received",
        kind="RT_COLLECTIVE_DEADLOCK",
        why=f"{count}; there is no {receiver} that takes {'them' if len(messages) > 1 else 'it'}",
        do="let the receiver receive as often as the sender sends",
        node=messages[0].node,
    )


def require_rank(call: Call, name: str, rank: int, size: int) -> None:
    """Raises RuntimeFault when an attribute names a rank that the group does not have."""
    if 0 <= rank < size:
        return
    others = f"ranks 0 to {size - 1}" if size > 1 else "rank 0 only"
    raise RuntimeFault(
        "G4015",
        f"{call.type} {call.node!r} has {name} {rank}, which is no rank of group {call.group!r}",
        kind="PARAM_INVALID",
        why=f"{size} device{'s have' if size > 1 else ' has'} {others}",
        do=f"run it on more devices: --device {','.join(map(str, range(rank + 1)))}" if 0 < rank < 8 else "",
        node=call.node,
        expected=size,
        actual=rank,
    )


def require_size(call: Call, rank_size: int, size: int) -> None:
    """Raises RuntimeFault when a node was made for another number of ranks."""
    if rank_size == size:
        return
    raise RuntimeFault(
        "G4015",
        f"{call.type} {call.node!r} is made for {rank_size} ranks, group {call.group!r} has {size}",
        kind="RT_COLLECTIVE_MISMATCH",
        do=f"--device {','.join(map(str, range(rank_size)))}"
        if 0 < rank_size <= 8
        else "compile it for 8 ranks or less",
        node=call.node,
        expected=rank_size,
        actual=size,
    )


def operands_of(arrays: Sequence[Array]) -> tuple[tuple[str, int], ...]:
    """What ranks compare of the tensors they give."""
    return tuple((np.dtype(array.dtype).name, int(array.size)) for array in arrays)
