"""The simulation itself: the same seed gives the same history, some seeds at every check, and those that
failed once. `make sim` runs thousands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from checker import Checker
from mutants import MUTANTS, swap_unanswered
from patches import around
from scenarios import SCENARIOS
from sim_lake import Lake, SimulatedState
from sim_store import SimulatedStore
from sim_world import Killed, Process, Rates, StuckError, World
from simulate import simulate

from lockstep.errors import Unreachable

SEEDS = 25
ROW, NEXT = ("k", 1, 5, 544073140), ("k", 2, 7, 1531531398)
TWO_STEPS = [[("s", 0, 0, 1)], [("s", 0, 1, 2)]]
RIGHT = [(0, ROW, 1), (1, ROW, -1), (1, NEXT, 1)]


def kinds(findings: list[object]) -> list[str]:
    return [str(finding).split(":", maxsplit=1)[0] for finding in findings]


def checker() -> Checker:
    found = Checker(lambda _source, _partition: [(0, "k", 5), (1, "k", 2)])
    for step, ranges in enumerate(TWO_STEPS):
        assert found.recorded(step, ranges) == []
    return found


# ── the world ───────────────────────────────────────────────────────────────────────────────────


def test_a_seed_gives_one_history_byte_for_byte() -> None:
    """In another process, too, where texts have other hashes."""
    here = simulate(7)
    assert simulate(7).digest == here.digest
    program = "from simulate import simulate; print(simulate(7).digest)"
    there = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parent,
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert there.stdout.strip() == here.digest
    assert simulate(8).digest != here.digest


def test_the_faults_do_happen() -> None:
    """A simulation in which nothing goes wrong would find nothing."""
    meant, happened = set(Rates.__dataclass_fields__), set[str]()
    for seed in range(1, 4 * SEEDS):
        happened |= simulate(seed).faults.keys()
        if happened == meant:
            return
    assert happened == meant


def test_a_killed_process_does_nothing_more() -> None:
    world = World(1, Rates().without_faults())
    asked: list[str] = []
    process = Process("p")

    def work() -> None:
        try:
            world.exchange("first", lambda: asked.append("first"))
            world.kill(process)
            world.exchange("second", lambda: asked.append("second"))
        finally:
            with pytest.raises(Killed):
                world.exchange("in its finally", lambda: asked.append("third"))

    world.start(process, work)
    world.run()
    assert asked == ["first"]


def test_a_late_request_finds_what_it_named_moved() -> None:
    """A change of refs is compare and set, however late it comes."""
    world = World(3, Rates(**{**dict.fromkeys(Rates.__dataclass_fields__, 0.0)}))
    lake = Lake(world)
    lake.make("t", {})
    state = SimulatedState(lake, {"t": ("id",)})
    root = lake.table("t").refs["main"]

    def work() -> None:
        world.rates = Rates(**dict.fromkeys(Rates.__dataclass_fields__, 0.0) | {LATE: 1.0})
        with pytest.raises(Unreachable):
            state.settle("t", root, "v1_a", ())
        world.rates = world.rates.without_faults()
        newer = lake.append(lake.table("t"), "main", [(1,)], {})
        state.settle("t", newer.id, "v1_a", ())

    world.start(Process("p"), work)
    world.run()
    table = lake.table("t")
    assert table.refs["v1_a"] == table.refs["main"] != root


LATE = "late_request_per_call"


def test_what_never_ends_is_told() -> None:
    world = World(1, Rates().without_faults())
    world.start(Process("patient"), lambda: world.wait(lambda: False))
    with pytest.raises(StuckError, match="nothing can go on: patient"):
        world.run()
    world.close()


# ── the checker ─────────────────────────────────────────────────────────────────────────────────


def test_the_checker_says_nothing_of_what_is_right() -> None:
    judge = checker()
    assert judge.changes("outbox", 0, 1, RIGHT) == judge.order("topic", RIGHT) == []
    assert judge.view("view", 0, [ROW]) == judge.view("view", 1, [NEXT]) == []
    assert judge.trace("trace", 1, [(ROW, 1), (ROW, -1), (NEXT, 1)]) == []
    assert judge.input_read({("s", 0): 2}) == []


@pytest.mark.parametrize(
    ("judged", "kind"),
    [
        (lambda c: c.changes("o", 0, 1, RIGHT[:-1]), "lost"),
        (lambda c: c.changes("o", 0, 1, [*RIGHT, RIGHT[0]]), "duplicated"),
        (lambda c: c.changes("o", 0, 1, [*RIGHT, (1, ("z", 1, 1, 1), 1)]), "unexpected"),
        (lambda c: c.order("o", [RIGHT[2], RIGHT[0]]), "out of order"),
        (lambda c: c.order("o", [RIGHT[0], RIGHT[2], RIGHT[1]]), "out of order"),
        (lambda c: c.view("v", 1, [NEXT, NEXT]), "duplicated"),
        (lambda c: c.view("v", 2, [NEXT]), "unexpected"),
        (lambda c: c.input_read({("s", 0): 3}), "lost"),
        (lambda c: c.recorded(1, [("s", 0, 1, 3)]), "changed"),
        (lambda c: c.recorded(3, [("s", 0, 2, 3)]), "lost"),
    ],
)
def test_the_checker_names_what_is_wrong(
    judged: Callable[[Checker], list[object]], kind: str
) -> None:
    assert kinds(judged(checker())) == [kind]


# ── runs ────────────────────────────────────────────────────────────────────────────────────────


def test_some_seeds() -> None:
    """Exactly once, whatever the seed; more of them by `make sim`."""
    failed = {seed: found[:3] for seed in range(1, SEEDS + 1) if (found := simulate(seed).findings)}
    assert not failed


def test_some_seeds_with_changes_of_layout() -> None:
    runs = {seed: simulate(seed, scales=True) for seed in range(101, 101 + SEEDS)}
    assert not {seed: run.findings[:3] for seed, run in runs.items() if run.findings}


def test_a_swap_that_is_not_answered_keeps_its_snapshots() -> None:
    """Seed 28 found it: the swap had landed, its branches were dropped, and the version's snapshots
    expired. Mutant `swap_branch_dropped` is the code of then."""
    with around(SimulatedStore, "apply", swap_unanswered)():
        results = [simulate(seed, Rates().without_faults()) for seed in range(1, 11)]
    # `main` follows when the version is settled again; the version itself has lost nothing.
    found = [one for result in results for one in result.findings]
    assert [one for one in found if not one.where.startswith("main of")] == []


# ── the page ────────────────────────────────────────────────────────────────────────────────────


def test_what_the_page_names_is_there() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "testing.md").read_text()
    named = re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py|\w+\.py)", page)
    known = {path.name for path in (root / "tests" / "simulation").iterdir()}
    known |= {path.name for path in (root / "spark_jobs/lockstep_engine/sinks").iterdir()}
    assert named
    assert [name for name in named if not (root / name).exists() and name not in known] == []
    targets = set(re.findall(r"^([a-z]+):", (root / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z]+)", page)) <= targets


def test_the_page_names_what_each_fault_is() -> None:
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
    rows = page[page.index("| fault put in |") :].split("\n\n")[0].splitlines()[2:]
    named = [re.findall(r"`(\w+)`", row.split("|")[2]) for row in rows]
    known = {one.name for one in (*MUTANTS, *SCENARIOS)}
    assert len(rows) == 21
    assert all(named)
    assert [name for names in named for name in names if name not in known] == []
    assert {one.name for one in SCENARIOS} <= {name for names in named for name in names}
