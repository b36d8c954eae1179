"""Placements as layouts give them."""

from __future__ import annotations

from random import Random

from lockstep.control.job import Placement
from lockstep.control.layout.layouts import Layout, Move, Reshard, after
from lockstep.control.layout.scaling import scaled
from lockstep.control.layout.sharding import Dynamic, Fixed

__all__ = ["placed", "placements"]


def placed(workers: int) -> Placement:
    """That of so many workers, where nobody has chosen anything else."""
    found = Placement.of(after(Layout(), *scaled(Layout(), workers)))
    assert found is not None, "there are workers"
    return found


def placements(random: Random, count: int) -> list[Placement]:
    """Those of a pipeline that is scaled at random from one interval to the next."""
    layout = Layout()
    found: list[Placement] = []
    while len(found) < count:
        sharding = random.choice([None, None, Fixed(1), Fixed(16), Dynamic()])
        changes = scaled(layout, random.choice([1, 2, 3, 5]), sharding=sharding)
        layout = after(layout, *changes) if changes else layout
        if random.random() < 0.3:
            shard = random.randrange(len(layout.owners))
            layout = after(layout, Move(shard, random.choice(sorted(layout.hosts))))
        if random.random() < 0.2:
            layout = after(layout, Reshard(Fixed(4)))
        place = Placement.of(layout)
        assert place is not None, "there are workers"
        found.append(place)
    return found
