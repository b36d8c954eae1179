"""Shards of the hash space and their owners: how many there are, and who gets which (seeds 000, 003).

A shard is a range of the key hash's most significant bits, so that another number of shards splits
ranges or merges them, and no key's place depends on how many workers there are. The law of `assign`:
every shard has an owner, owners differ by at most one shard, no other such assignment moves less of
the hash space, and the same input gives the same answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

__all__ = [
    "BUCKETS",
    "NOBODY",
    "Dynamic",
    "Fixed",
    "Holdings",
    "Owners",
    "Sharding",
    "assign",
    "moved",
    "power_of_two",
    "resharded",
]

BUCKETS = 1 << 16
"""Places of the hash space that a shard's bounds can be at: a trace row's `_bucket` is one of them."""


@dataclass(frozen=True)
class Fixed:
    """Always so many shards, a power of two. Above as many workers, some own none."""

    shards: int

    def __post_init__(self) -> None:
        if not _is_power_of_two(self.shards) or self.shards > BUCKETS:
            raise ValueError(f"a power of two up to {BUCKETS} is needed, not {self.shards} shards")

    def count(self, workers: int) -> int:  # noqa: ARG002 - both kinds are asked alike
        return self.shards


@dataclass(frozen=True)
class Dynamic:
    """So many shards that the most loaded worker has at most about `inaccuracy` more than its part: the
    next power of two of workers / inaccuracy."""

    inaccuracy: Fraction = Fraction(1, 10)

    def __post_init__(self) -> None:
        if not 0 < self.inaccuracy < 1:
            raise ValueError(f"an inaccuracy lies between 0 and 1, not at {self.inaccuracy}")

    def count(self, workers: int) -> int:
        return power_of_two(-(-workers // self.inaccuracy))


Sharding = Fixed | Dynamic

NOBODY = -1

Owners = Sequence[int]
"""The worker of each shard, by the shard's number; NOBODY's where there are no workers."""

Holdings = Sequence[Mapping[int, int]]
"""Of each shard, how many of its equal parts each worker holds at present."""


def assign(held: Holdings, workers: Iterable[int]) -> tuple[int, ...]:
    """The owner of each shard among `workers`, from who holds how much of each at present.

    What a worker holds that is not among them has to move in any case.
    """
    among = sorted(workers)
    return _Assignment(held, among).balanced() if among else (NOBODY,) * len(held)


def resharded(owners: Owners, shards: int) -> Holdings:
    """Who holds how much of each shard where there are `shards` of them: splits of those that `owners`
    own, or merges."""
    if shards >= len(owners):
        times = shards // len(owners)
        return [_parts(owners[shard // times : shard // times + 1]) for shard in range(shards)]
    times = len(owners) // shards
    return [_parts(owners[shard * times : (shard + 1) * times]) for shard in range(shards)]


def _parts(owners: Owners) -> Mapping[int, int]:
    return Counter(owner for owner in owners if owner != NOBODY)


def moved(held: Holdings, owners: Owners) -> int:
    """How many parts of shards, as `held` counts them, change their owner; what had none does not."""
    return sum(
        count
        for parts, owner in zip(held, owners, strict=True)
        for holder, count in parts.items()
        if holder != owner
    )


class _Assignment:
    """A flow of shards between workers at the least cost. Each shard starts with whoever holds most of
    it, so that nothing moves that need not. Then single shards are handed on along the cheapest chains
    of workers until each has its number: cheapest chains keep the whole at the least cost that it can
    have (successive shortest paths)."""

    def __init__(self, held: Holdings, workers: Sequence[int]) -> None:
        self._workers = workers
        index = {worker: number for number, worker in enumerate(workers)}
        self._held = [
            {index[worker]: count for worker, count in parts.items() if worker in index}
            for parts in held
        ]
        self._owned: list[set[int]] = [set() for _ in workers]
        self._least, self._more = divmod(len(held), len(workers))

    def balanced(self) -> tuple[int, ...]:
        """The owner of each shard."""
        most = self._least + bool(self._more)
        self._place()
        self._even_out(lambda count: count > most, lambda count: count < most)
        self._even_out(lambda count: count > self._least, lambda count: count < self._least)
        owners = [NOBODY] * len(self._held)
        for worker, shards in zip(self._workers, self._owned, strict=True):
            for shard in shards:
                owners[shard] = worker
        return tuple(owners)

    def _place(self) -> None:
        """Each shard to who holds most of it; what nobody holds, neighbours together, to who lacks
        some."""
        free = []
        for shard, parts in enumerate(self._held):
            if parts:
                self._owned[min(parts, key=lambda one: (-parts[one], one))].add(shard)
            else:
                free.append(shard)
        free.reverse()
        larger = self._more - sum(len(shards) > self._least for shards in self._owned)
        for shards in self._owned:
            wanted = self._least + (larger > 0 and len(shards) <= self._least)
            while free and len(shards) < wanted:
                shards.add(free.pop())
                larger -= len(shards) > self._least
        self._owned[0].update(free)

    def _even_out(self, has_too_many: Callable[[int], bool], takes: Callable[[int], bool]) -> None:
        while True:
            counts = [len(shards) for shards in self._owned]
            sources = [worker for worker, count in enumerate(counts) if has_too_many(count)]
            targets = [worker for worker, count in enumerate(counts) if takes(count)]
            if not (sources and targets):
                return
            self._hand_on(sources, targets)

    def _hand_on(self, sources: list[int], targets: list[int]) -> None:
        """One shard more for one of the targets, one less for one of the sources."""
        edges = self._edges()
        cost = dict.fromkeys(sources, 0)
        before: dict[int, tuple[int, int]] = {}
        changed = True
        while changed:
            changed = False
            for giver, taker, price, shard in edges:
                if giver in cost and cost[giver] + price < cost.get(
                    taker, len(self._held) * BUCKETS
                ):
                    cost[taker], before[taker] = cost[giver] + price, (giver, shard)
                    changed = True
        taker = min(targets, key=lambda worker: (cost[worker], worker))
        while taker in before:
            giver, shard = before[taker]
            self._owned[giver].remove(shard)
            self._owned[taker].add(shard)
            taker = giver

    def _edges(self) -> list[tuple[int, int, int, int]]:
        """For each pair of workers (giver, taker), the price of the shard that is cheapest to hand over,
        which is how much more of it moves then, and that shard."""
        found = []
        for giver, shards in enumerate(self._owned):
            if not shards:
                continue
            cheapest = min((self._held[shard].get(giver, 0), shard) for shard in shards)
            by_taker = dict.fromkeys(range(len(self._workers)), cheapest)
            for shard in sorted(shards):
                parts = self._held[shard]
                for taker, count in parts.items():
                    price = parts.get(giver, 0) - count
                    by_taker[taker] = min(by_taker[taker], (price, shard))
            found += [
                (giver, taker, price, shard)
                for taker, (price, shard) in by_taker.items()
                if taker != giver
            ]
        return found


def power_of_two(shards: int) -> int:
    """The least number of shards that there can be, and is no less: 1 to BUCKETS."""
    return min(BUCKETS, 1 << (max(1, shards) - 1).bit_length())


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0
