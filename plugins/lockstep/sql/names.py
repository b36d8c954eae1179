"""Names: new ones beside those that are taken, and the nearest to a wrong one."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

__all__ = ["closest", "fresh_name", "fresh_names"]


def fresh_name(wanted: str, taken: Collection[str]) -> str:
    """`wanted`, or `wanted_1`, `wanted_2`, … if that is taken."""
    name, number = wanted, 0
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    return name


def fresh_names(wanted: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """A name of its own for each of those wanted, beside each other and those taken."""
    used, found = set(taken), []
    for name in wanted:
        found.append(fresh_name(name, used))
        used.add(found[-1])
    return found


def closest(name: str, among: Iterable[str], limit: int = 8) -> list[str]:
    """Names to offer in place of a wrong one: the most similar first, then the others in order."""
    names = list(dict.fromkeys(among))
    lower = {one.lower(): one for one in names}
    near = [lower[one] for one in difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.5)]
    return [*near, *(one for one in names if one not in near)][:limit]
