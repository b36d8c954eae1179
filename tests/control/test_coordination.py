"""The laws of barrier and sequencer, over random orders of turns, deaths and restarts.

Workers are greenlets, which change hands at every call to their carrier and nowhere else. A worker
that dies there loses all that it has in memory, before or after the call was heard; it comes again.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

import greenlet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.control.coordination.barrier import Barrier
from lockstep.control.coordination.memory import MemoryCarrier
from lockstep.control.coordination.progress import (
    END,
    Carrier,
    Notice,
    Progress,
    Proposal,
    decoded,
    encoded,
)
from lockstep.control.coordination.sequencer import Sequencer
from lockstep.errors import AttemptLost, WrongUse

IS_LARGE = os.environ.get("LOCKSTEP_LAW") == "large"
EXAMPLES = 10_000 if IS_LARGE else 150

WORKERS = ("a", "b", "c")
ROUNDS = 4
MOST_TURNS = 12_000

DEATHS_END = 2_000
"""Turns after which nobody dies any more, and all go on in turn: all must come to their ends."""

SEEDS = st.integers(0, 2**32)
"""Of all that is random in a run: shrinking would not make a history of turns any plainer."""


class DeathError(BaseException):
    """Unwinds a worker's stack."""


def give_way() -> None:
    greenlet.getcurrent().parent.switch()


class WatchedCarrier:
    """In memory, with a change of hands around each call; `frontiers` and `order` is what was heard."""

    def __init__(self) -> None:
        self.memory = MemoryCarrier()
        self.writes: Counter[tuple[str, int]] = Counter()
        self.frontiers: dict[str, int] = defaultdict(int)
        self.order: set[Proposal] = set()

    def publish(self, worker: str, notice: Notice) -> Progress:
        give_way()
        recorded = self.memory.publish(worker, notice)
        self.writes[worker, notice.frontier] += 1
        self.frontiers[worker] = max(self.frontiers[worker], notice.frontier)
        self.order.update(recorded.proposals)
        give_way()
        return recorded

    def read(self) -> Mapping[str, Progress]:
        give_way()
        return self.memory.read()

    def rest(self, known: Mapping[str, Progress]) -> None:
        del known
        give_way()


def run(lives: Mapping[str, Callable[[], None]], random: Random) -> None:
    """Run all to their ends; a life that is ended by death begins again."""
    running = {name: greenlet.greenlet(life) for name, life in lives.items()}
    deaths_per_turn = random.choice((0, 0.01, 0.05, 0.2))
    favourite = random.choice(sorted(lives))
    for turn in range(MOST_TURNS):
        if not running:
            return
        there = sorted(running)
        name = there[turn % len(there)]
        if turn < DEATHS_END:
            name = favourite if random.random() < 0.3 else random.choice(there)
        one = running.get(name)
        if one is None:
            continue
        if turn < DEATHS_END and one and random.random() < deaths_per_turn:
            with pytest.raises(DeathError):
                one.throw(DeathError)
            running[name] = greenlet.greenlet(lives[name])
            continue
        one.switch()
        if one.dead:
            del running[name]
    raise AssertionError(f"still running after {MOST_TURNS} turns: {sorted(running)}")


@settings(max_examples=EXAMPLES, deadline=None)
@given(SEEDS)
def test_nobody_leaves_a_round_before_all_have_arrived_and_then_all_leave(seed: int) -> None:
    carrier = WatchedCarrier()
    arrived: dict[int, set[str]] = defaultdict(set)
    left: dict[int, set[str]] = defaultdict(set)

    def life(worker: str) -> None:
        barrier = Barrier(carrier, worker, WORKERS)
        while barrier.round <= ROUNDS:
            number = barrier.round
            arrived[number].add(worker)
            assert barrier.wait() == number
            assert arrived[number] == set(WORKERS)
            left[number].add(worker)

    run({worker: lambda worker=worker: life(worker) for worker in WORKERS}, Random(seed))
    assert left == {number: set(WORKERS) for number in range(1, ROUNDS + 1)}
    once = {(worker, number): 1 for worker in WORKERS for number in range(1, ROUNDS + 1)}
    assert carrier.writes == once


@dataclass
class Proposing:
    """What a worker does, one action after another. What it remembers over its deaths is `at`."""

    actions: list[str]
    at: int = 0

    def pushed(self) -> int:
        """How many elements it has pushed so far."""
        return self.actions[: self.at].count("push")


def some_actions(random: Random) -> Proposing:
    kinds = ("push", "push", "advance", "take one", "take all")
    return Proposing(random.choices(kinds, k=random.randrange(40)))


class Sequence:
    """Workers that propose, and a guest that proposes through the first of them.

    `given` is what each life was given, by worker, and `dealt_with` how much of the order a later life
    must not be given again.
    """

    def __init__(self, random: Random) -> None:
        self.carrier = WatchedCarrier()
        self.plans = {name: some_actions(random) for name in WORKERS}
        self.elements_of_guest = random.randrange(6)
        self.guest_is_done = False
        self.given: dict[str, list[tuple[int, list[Proposal]]]] = {name: [] for name in WORKERS}
        self.dealt_with = dict.fromkeys(WORKERS, 0)

    def worker(self, name: str) -> None:
        plan, given = self.plans[name], list[Proposal]()
        self.given[name].append((self.dealt_with[name], given))
        sequencer = Sequencer(self.carrier, name, WORKERS)
        for place in range(plan.pushed()):
            sequencer.push(f"{name}{place}", place)
        while plan.at < len(plan.actions):
            self.act(name, plan, sequencer, given)
            plan.at += 1
        while not self.guest_is_done:
            give_way()
        sequencer.close()
        while not sequencer.is_over:
            self.take(sequencer, given)

    def act(self, name: str, plan: Proposing, sequencer: Sequencer, given: list[Proposal]) -> None:
        match plan.actions[plan.at]:
            case "push":
                sequencer.push(f"{name}{plan.pushed()}", plan.pushed())
            case "advance":
                sequencer.advance(sequencer.frontier + 1)
            case "take one":
                self.take(sequencer, given)
            case _:
                while self.take(sequencer, given):
                    pass
                sequencer.advance(sequencer.frontier)
                if given:
                    order = sorted(self.carrier.order)
                    self.dealt_with[name] = order.index(given[-1]) + 1

    def take(self, sequencer: Sequencer, given: list[Proposal]) -> bool:
        one = sequencer.next()
        if one:
            assert all(self.carrier.frontiers[worker] > one.time for worker in WORKERS)
            given.append(one)
        return one is not None

    def guest(self) -> None:
        sequencer = Sequencer(self.carrier, WORKERS[0], WORKERS, proposer="guest")
        for place in range(self.elements_of_guest):
            sequencer.push(f"guest{place}", place)
            sequencer.send()
        self.guest_is_done = True

    def expected(self) -> set[str]:
        counts = {name: plan.pushed() for name, plan in self.plans.items()}
        counts["guest"] = self.elements_of_guest
        return {f"{name}{place}" for name, count in counts.items() for place in range(count)}


@settings(max_examples=EXAMPLES, deadline=None)
@given(SEEDS)
def test_all_are_given_all_elements_once_in_one_order(seed: int) -> None:
    random = Random(seed)
    sequence = Sequence(random)
    lives: dict[str, Callable[[], None]] = {
        name: lambda name=name: sequence.worker(name) for name in WORKERS
    }
    run({**lives, "guest": sequence.guest}, random)
    order = sorted(sequence.carrier.order)
    assert Counter(one.element for one in order) == dict.fromkeys(sequence.expected(), 1)
    for name in {one.proposer for one in order}:
        own = [one.element for one in order if one.proposer == name]
        assert own == [f"{name}{place}" for place in range(len(own))]
    for worker in WORKERS:
        reached = 0
        for dealt_with, life in sequence.given[worker]:
            # A life goes on where the one before it was, or with some of that again; it skips nothing.
            start = order.index(life[0]) if life else reached
            assert dealt_with <= start <= reached
            assert life == order[start : start + len(life)]
            reached = max(reached, start + len(life))
        assert reached == len(order)


def test_a_worker_that_waits_goes_on_with_other_work() -> None:
    carrier, pieces = MemoryCarrier(), []
    late = Barrier(carrier, "late", ["early", "late"])

    def work() -> bool:
        pieces.append(f"piece {len(pieces)}")
        if len(pieces) == 3:
            # Nobody but the waiting worker itself can bring this about.
            late_arrives(carrier)
        return len(pieces) < 3

    assert late.round == 1
    assert Barrier(carrier, "early", ["early", "late"]).wait(work) == 1
    assert len(pieces) == 3
    assert late.wait() == 1


def late_arrives(carrier: Carrier) -> None:
    carrier.publish("late", Notice(1))


def test_there_is_no_rest_while_there_is_work() -> None:
    calls: list[str] = []

    class Resting(MemoryCarrier):
        def rest(self, known: Mapping[str, Progress]) -> None:
            assert known == self.read()
            calls.append("rest")
            if len(calls) > 5:
                late_arrives(self)

    def work() -> bool:
        calls.append("work")
        return len(calls) < 4

    Barrier(Resting(), "early", ["early", "late"]).wait(work)
    assert calls == ["work", "work", "work", "work", "rest", "work", "rest"]


def test_who_gives_up_waiting_goes_on_in_the_same_round() -> None:
    carrier = MemoryCarrier()
    barrier = Barrier(carrier, "early", ["early", "late"])

    def give_up() -> bool:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        barrier.wait(give_up)
    assert (barrier.round, barrier.has_arrived) == (1, True)
    late_arrives(carrier)
    assert barrier.wait() == 1
    assert (barrier.round, barrier.has_arrived) == (2, False)


def test_a_worker_that_comes_again_is_in_the_round_of_its_last_arrival() -> None:
    carrier = MemoryCarrier()
    carrier.publish("a", Notice(3))
    again = Barrier(carrier, "a", ["a"])
    assert (again.round, again.has_arrived) == (3, True)
    assert [again.wait(), again.wait()] == [3, 4]


def test_elements_wait_for_the_slowest_and_come_by_time_then_proposer() -> None:
    carrier, names = MemoryCarrier(), ["a", "b"]
    a, b = (Sequencer(carrier, name, names) for name in names)
    b.push("b at 2")
    b.advance(2)
    a.push("a at 2")
    a.advance(2)
    assert (a.next(), b.next()) == (None, None)
    a.push("a at 5")
    a.advance(5)
    assert a.next() is None
    b.advance(3)
    for one in (a, b):
        assert [one.next(), one.next(), one.next()] == [
            Proposal(2, "a", 0, "a at 2"),
            Proposal(2, "b", 0, "b at 2"),
            None,
        ]


def test_of_a_worker_that_is_not_of_the_group_nothing_is_given() -> None:
    carrier = MemoryCarrier()
    carrier.publish("stranger", Notice(0, "stranger", {0: "its frontier holds nobody up"}))
    alone = Sequencer(carrier, "a", ["a"])
    alone.advance(5)
    assert alone.next() is None


def test_a_command_through_a_worker_takes_effect_at_its_next_step() -> None:
    carrier = MemoryCarrier()
    run_ = Sequencer(carrier, "run", ["run"])
    run_.advance(7)
    for _ in range(2):  # the command line does not know whether it was heard, and asks again
        operator = Sequencer(carrier, "run", ["run"], proposer="pause 81f3")
        operator.push("pause", place=0)
        operator.send()
    assert run_.next() is None
    run_.advance(8)
    assert run_.next() == Proposal(7, "pause 81f3", 0, "pause")
    assert run_.next() is None


def test_what_all_have_dealt_with_is_trimmed_and_its_places_stay_used() -> None:
    carrier, names = MemoryCarrier(), ["a", "b"]
    a, b = (Sequencer(carrier, name, names) for name in names)
    for step in range(10):
        a.push(f"element {step}")
        for one in (a, b):
            one.advance(step)
            while one.next():
                pass
        assert len(carrier.read()["a"].proposals) <= 4
    a.push("element 9", place=9)
    a.send()
    with pytest.raises(WrongUse, match="place 9 of proposer a holds another element") as refused:
        Sequencer(carrier, "a", names)._tell(Notice(0, "a", {9: "something else"}))
    assert refused.value.expected == "'element 9', which was proposed before"
    assert refused.value.found == "'something else'"
    a.close()
    b.close()
    assert [one.element for one in iter(b.next, None)] == ["element 9"]
    assert b.is_over


def test_an_earlier_life_that_would_miss_elements_is_told_so() -> None:
    carrier = MemoryCarrier()
    zombie = Sequencer(carrier, "a", ["a"])
    later = Sequencer(carrier, "a", ["a"])
    for step in range(3):
        later.push(f"element {step}")
        later.advance(step)
        while later.next():
            pass
    with pytest.raises(AttemptLost, match="worker a of a sequencer lives again elsewhere"):
        zombie.next()


def test_a_notice_again_or_late_changes_nothing_that_was_complete() -> None:
    first = Notice(3, "a", {0: "x"})
    recorded = Progress().after(first)
    assert recorded.after(first) == recorded
    ahead = recorded.after(Notice(9))
    late = ahead.after(Notice(4, "a", {1: "y"}))
    assert late == Progress(9, 0, (Proposal(3, "a", 0, "x"), Proposal(9, "a", 1, "y")))
    assert decoded(encoded(late)) == late


def test_what_cannot_be_proposed_is_refused() -> None:
    with pytest.raises(WrongUse, match="'z' cannot be element 2 of proposer a") as gap:
        Progress().after(Notice(0, "a", {2: "z"}))
    assert gap.value.expected == "place 0, of a worker that has not left"
    closed = Sequencer(MemoryCarrier(), "a", ["a"])
    closed.close()
    closed.push("too late")
    with pytest.raises(WrongUse) as left:
        closed.send()
    assert left.value.found == "a worker that has left"
    assert closed.frontier == END
    with pytest.raises(WrongUse, match="worker x is not of the group") as stranger:
        Barrier(MemoryCarrier(), "x", ["a", "b"])
    assert stranger.value.expected == "one of a, b"
