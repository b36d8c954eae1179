"""The changes that take a layout to so many workers on so many hosts, with as few of them as can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from lockstep.control.layout.layouts import Change, Join, Layout, Leave, Reshard
from lockstep.control.layout.sharding import Sharding
from lockstep.control.preconditions import require

__all__ = ["scaled"]


def scaled(
    layout: Layout, workers: int, hosts: int | None = None, sharding: Sharding | None = None
) -> tuple[Change, ...]:
    """What makes a layout of `workers` workers, spread evenly over `hosts` hosts (None: as many as there
    are, at least one, and no more than workers).

    Hosts with the fewest workers go first; new ones are called host-0, host-1, ...; new workers get the
    lowest numbers that are free. No changes where all is so already. Raises Precondition.
    """
    require(workers >= 1, lambda: f"at least 1 worker is needed, not {workers}")
    there = _by_host(layout.hosts)
    wanted = min(workers, max(1, len(there))) if hosts is None else hosts
    require(
        1 <= wanted <= workers,
        lambda: f"{workers} workers run on 1 to {workers} hosts, not on {wanted}",
    )
    kept = sorted(there, key=lambda host: (-len(there[host]), host))[:wanted]
    names = [*kept, *_new_names(there, wanted - len(kept))]
    # The larger parts to those who have most, so that nobody leaves only to come again elsewhere.
    parts = [workers // wanted + (place < workers % wanted) for place in range(wanted)]
    leaving = set(layout.hosts)
    joining: dict[int, str] = {}
    numbers = (number for number in count() if number not in layout.hosts)
    for host, part in zip(names, parts, strict=True):
        staying = there.get(host, ())[:part]
        leaving -= set(staying)
        joining |= {next(numbers): host for _ in range(part - len(staying))}
    changes: list[Change] = []
    if sharding is not None and sharding != layout.sharding:
        changes.append(Reshard(sharding))
    if leaving:
        changes.append(Leave(frozenset(leaving)))
    if joining:
        changes.append(Join(joining))
    return tuple(changes)


def _by_host(hosts: Mapping[int, str]) -> Mapping[str, Sequence[int]]:
    found: dict[str, list[int]] = {}
    for worker, host in sorted(hosts.items()):
        found.setdefault(host, []).append(worker)
    return found


def _new_names(there: Mapping[str, object], wanted: int) -> list[str]:
    free = (f"host-{number}" for number in count() if f"host-{number}" not in there)
    return [next(free) for _ in range(wanted)]
