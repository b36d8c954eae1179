"""Layouts: numbered, immutable records of which worker owns which shards and runs on which host.

A shard controller: `Join`, `Leave` and `Move` make the next layout from the newest, nothing changes an
old one, and `query` gives any of them back. All of it is pure. A worker is a number, and keeps it for
life; a host is a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby

from lockstep.control.layout.sharding import (
    BUCKETS,
    NOBODY,
    Dynamic,
    Sharding,
    assign,
    resharded,
)
from lockstep.control.preconditions import Precondition, require

__all__ = [
    "Change",
    "Join",
    "Layout",
    "Leave",
    "Move",
    "Moved",
    "OwnedRange",
    "ReplaceHost",
    "Reshard",
    "after",
    "difference",
    "query",
]


@dataclass(frozen=True)
class OwnedRange:
    """The places low <= bucket < high of the hash space are a worker's."""

    low: int
    high: int
    worker: int


@dataclass(frozen=True)
class Layout:
    """`hosts` says where each worker runs, `owners` whose each shard is (NOBODY's without workers).

    Epoch 0 is the layout before any worker has joined.
    """

    epoch: int = 0
    sharding: Sharding = field(default_factory=Dynamic)
    hosts: Mapping[int, str] = field(default_factory=dict, hash=False)
    owners: tuple[int, ...] = (NOBODY,)

    @property
    def ranges(self) -> tuple[OwnedRange, ...]:
        """Whose each part of the hash space is, neighbours of one worker as one range. Other numbers of
        shards with the same owners give the same ranges."""
        width, low, found = BUCKETS // len(self.owners), 0, []
        for worker, shards in groupby(self.owners):
            high = low + width * len(list(shards))
            found.append(OwnedRange(low, high, worker))
            low = high
        return tuple(found)

    def shards_of(self, worker: int) -> tuple[int, ...]:
        """The numbers of the shards that a worker owns."""
        return tuple(shard for shard, owner in enumerate(self.owners) if owner == worker)


@dataclass(frozen=True)
class Join:
    """Workers come in, each on its host; refused for one that is there."""

    hosts: Mapping[int, str] = field(hash=False)


@dataclass(frozen=True)
class Leave:
    """Workers go; refused for one that is not there."""

    workers: frozenset[int]


@dataclass(frozen=True)
class Move:
    """A shard goes to a worker by name, however uneven that is, until workers come or go."""

    shard: int
    worker: int


@dataclass(frozen=True)
class Reshard:
    """Another way to tell how many shards there are."""

    sharding: Sharding


@dataclass(frozen=True)
class ReplaceHost:
    """All workers of one host run on another, which was not there; no shard changes its owner."""

    old: str
    new: str


Change = Join | Leave | Move | Reshard | ReplaceHost


def after(layout: Layout, *changes: Change) -> Layout:
    """The next layout, with all changes at once: shards move once, to where they are to be in the end.

    Raises Precondition.
    """
    hosts, sharding = dict(layout.hosts), layout.sharding
    pinned: dict[int, int] = {}
    for change in changes:
        match change:
            case Join(joining):
                _refuse("joins, and is there", joining.keys() & hosts.keys())
                hosts.update(joining)
            case Leave(workers):
                _refuse("leaves, and is not there", workers - hosts.keys())
                hosts = {worker: host for worker, host in hosts.items() if worker not in workers}
            case Move(shard, worker):
                pinned[shard] = worker
            case Reshard():
                sharding = change.sharding
            case ReplaceHost(old, new):
                _check_hosts(old, new, frozenset(hosts.values()))
                hosts = {worker: new if host == old else host for worker, host in hosts.items()}
    owners = list(layout.owners)
    if hosts.keys() != layout.hosts.keys() or sharding != layout.sharding:
        owners = list(assign(resharded(layout.owners, sharding.count(len(hosts))), hosts))
    for shard, worker in pinned.items():
        _check_move(shard, worker, len(owners), hosts)
        owners[shard] = worker
    return Layout(layout.epoch + 1, sharding, hosts, tuple(owners))


def query(history: Sequence[Layout], epoch: int) -> Layout:
    """The layout of an epoch; the newest for -1, and for one that is not there yet. `history` is all
    layouts from epoch 0 on."""
    return history[epoch] if 0 <= epoch < len(history) else history[-1]


@dataclass(frozen=True)
class Moved:
    """What a change of layout moves: ranges of the hash space with their new owner, which share of the
    whole that is, and which share is of another host then, as its worker is or has moved. What had
    no owner does not move."""

    ranges: tuple[OwnedRange, ...]
    share: Fraction
    between_hosts: Fraction


def difference(before: Layout, later: Layout) -> Moved:
    """What has to move between two layouts."""
    shards = max(len(before.owners), len(later.owners))
    old, new = (_finer(layout.owners, shards) for layout in (before, later))
    is_moved = [was not in (NOBODY, now) for was, now in zip(old, new, strict=True)]
    taken = tuple(now if moves else NOBODY for moves, now in zip(is_moved, new, strict=True))
    ranges = tuple(one for one in Layout(owners=taken).ranges if one.worker != NOBODY)
    hosts = [
        before.hosts.get(was) not in (None, later.hosts.get(now))
        for was, now in zip(old, new, strict=True)
    ]
    return Moved(ranges, Fraction(sum(is_moved), shards), Fraction(sum(hosts), shards))


def _finer(owners: Sequence[int], shards: int) -> list[int]:
    times = shards // len(owners)
    return [owner for owner in owners for _ in range(times)]


def _refuse(what: str, workers: Iterable[int]) -> None:
    named = ", ".join(map(str, sorted(workers)))
    require(not named, lambda: f"worker {named} {what}")


def _check_hosts(old: str, new: str, there: frozenset[str]) -> None:
    known = ", ".join(sorted(there)) or "none"
    require(old in there, lambda: f"no worker runs on host {old}; hosts are: {known}")
    require(new not in there, lambda: f"workers run on host {new} already; hosts are: {known}")


def _check_move(shard: int, worker: int, shards: int, hosts: Mapping[int, str]) -> None:
    require(0 <= shard < shards, lambda: f"shards are 0 to {shards - 1}, there is no {shard}")
    if worker not in hosts:
        raise Precondition(f"shard {shard} cannot move to worker {worker}, which is not there")
