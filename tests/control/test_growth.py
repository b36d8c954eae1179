"""Topics that grow, as they are planned: SEP-5's cases, and the order of a key's records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from control_builders import slice_of
from growing_topics import Growers, GrowingTopic
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.control import interval as stages
from lockstep.control.changes import Landed, SetDesired
from lockstep.control.growth import Growth, GrowthRules, grown_meanwhile
from lockstep.control.job import IntervalResult
from lockstep.control.layout.partitions import Grouping
from lockstep.control.model import Attempt, Division, Interval, RunState
from lockstep.control.ports import PartitionBounds, TopicBounds
from lockstep.control.steps import StepLimits
from lockstep.errors import SourceChanged, WrongUse

KEYS = tuple(range(18))
MULTIPLE = {"s": Growth.MULTIPLE}


def growers(count: int = 2, growth: Growth = Growth.MULTIPLE, rows_per_step: int = 1000) -> Growers:
    """One source, of which one interval has read a record of each key."""
    limits = StepLimits(rows_per_step=rows_per_step, rows_per_interval=2 * rows_per_step)
    made = Growers({"s": GrowingTopic.of(count)}, {"s": growth}, limits)
    made.topics["s"].send(KEYS, 0)
    made.catch_up()
    return made


# ── in which step ───────────────────────────────────────────────────────────────────────────────


def test_new_partitions_are_named_where_the_old_ones_end_and_read_in_the_next_interval() -> None:
    made = growers()
    topic = made.topics["s"]
    topic.send(KEYS, 2)
    topic.grow(4)
    topic.send(KEYS, 3)
    made.second = 10
    planned = made.plan()
    assert planned.interval is not None
    assert planned.interval.divisions[-1].slices == (
        slice_of("s", (0, 9, 23), (1, 9, 23), (2, 0, 0), (3, 0, 0)),
    )
    assert planned.behind
    assert made.said[-2] == (
        "source s: topic topic_s has grown from 2 to 4 partitions; what was written before is read up "
        "to step 1, partitions 2 to 3 after it"
    )
    made.catch_up()
    made.check_order("s")
    assert made.state.first_counts == {"s": 2}


def test_an_interval_with_nothing_else_in_it_is_recorded() -> None:
    """Here the producers had nothing to say to the old partitions."""
    made = growers()
    topic = made.topics["s"]
    topic.grow(4)
    topic.send([2, 3], 5)
    made.second = 10
    assert made.advance() == [[4]]
    assert made.state.version.last_step == 1
    assert made.advance() == [[4]]
    assert [step for *_, step in made.steps("s")][-2:] == [2, 2]
    assert made.advance() == []


def test_new_partitions_without_records_are_no_reason_for_an_interval() -> None:
    made = growers()
    made.topics["s"].grow(4)
    made.second = 10
    assert made.advance() == []
    made.topics["s"].partitions[0].append((0, made.topics["s"].sent, 10))
    assert made.advance() == [[2]]


def test_rows_without_keys_are_read_at_once_and_may_grow_to_any_number() -> None:
    made = growers(growth=Growth.FREE)
    made.topics["s"].grow(3)
    made.topics["s"].send(KEYS, 5)
    made.second = 10
    assert made.advance() == [[3]]
    assert not made.plan().behind
    assert (
        "source s: topic topic_s has grown from 2 to 3 partitions; the new ones are read from their "
        "first offset"
    ) in made.said
    assert len(made.steps("s")) == made.topics["s"].sent


def test_what_was_written_before_is_read_first_however_many_intervals_that_takes() -> None:
    """The new partitions come in where the old ones are read to their end, and not before."""
    made = growers(rows_per_step=8)
    topic = made.topics["s"]
    topic.send(KEYS * 3, 2)
    topic.grow(4)
    topic.send(KEYS, 3)
    made.second = 10
    assert made.advance() == [[2], [2]]
    assert "the new ones wait until what was written before is read" in made.said[-2]
    made.catch_up()
    made.check_order("s")


def test_a_chain_that_was_not_seen_is_read_in_the_order_of_its_links() -> None:
    """Key 7 was in partition 1, then in 3, then in 7."""
    made = growers()
    topic = made.topics["s"]
    for count in (2, 4, 8):
        topic.grow(count)
        topic.send(KEYS, 2)
    made.second = 10
    assert [made.advance() for _ in range(3)] == [[[4]], [[8]], [[8]]]
    made.check_order("s")
    assert [step for key, _, step in made.steps("s") if key == 7] == [0, 1, 2, 3]
    assert made.advance() == []


def test_where_a_stage_ends_is_none_of_the_numbers_that_there_were() -> None:
    """3, 9, 18: partitions up to 6 are a stage, and key 16 was in 7 before it was in 16."""
    made = growers(3)
    topic = made.topics["s"]
    for count in (9, 18):
        topic.grow(count)
        topic.send(KEYS * 2, 2)
    made.second = 10
    assert [made.advance() for _ in range(4)] == [[[6]], [[9]], [[18]], [[18]]]
    made.check_order("s")


def test_a_chain_that_is_seen_keeps_the_first_count() -> None:
    made = growers()
    topic = made.topics["s"]
    for count in (4, 8, 24):
        topic.grow(count)
        topic.send(KEYS, 2)
        made.second += 10
        made.catch_up()
    made.check_order("s")
    assert made.state.first_counts == {"s": 2}
    assert len(made.state.positions[0].ranges) == 24  # type: ignore[union-attr]
    tasks = made.parts.growth.tasks(made.state, Grouping.BY_PARTITION).tasks["s"]
    assert tasks == tuple(f"partition {number % 2}" for number in range(24))


def test_a_stop_before_the_end_leaves_the_new_partitions_out() -> None:
    made = growers(rows_per_step=8)
    topic = made.topics["s"]
    topic.send([0, 1] * 8, 2)
    topic.grow(4)
    topic.send([2, 3], 3)
    made.second = 10
    step = made.state.next_step
    stopped = SetDesired(RunState.STOP, step + 1)
    assert isinstance(made.store.apply("p", stopped), Landed)
    assert made.advance() == [[2]]
    assert made.advance() == []
    assert isinstance(made.store.apply("p", SetDesired(RunState.RUN)), Landed)
    made.catch_up()
    made.check_order("s")


def test_up_to_a_time_in_the_past_the_old_partitions_end_at_what_is_stable() -> None:
    """A time orders no records whose timestamps may lie: here the records of before the growth say that
    they are of later than those after it."""
    made = growers()
    topic = made.topics["s"]
    topic.send(KEYS, 55)
    topic.grow(4)
    topic.send(KEYS, 21)
    made.second = 60
    assert made.advance(40) == [[2], [2], [2], [4]]
    made.catch_up(40)
    made.catch_up(60)
    made.check_order("s")


def test_of_two_joined_topics_one_grows() -> None:
    made = Growers(
        {"orders": GrowingTopic.of(2), "payments": GrowingTopic.of(2)},
        {"orders": Growth.MULTIPLE, "payments": Growth.MULTIPLE},
    )
    for topic in made.topics.values():
        topic.send(KEYS, 0)
    made.catch_up()
    made.topics["orders"].grow(4)
    for topic in made.topics.values():
        topic.send(KEYS, 3)
    made.second = 10
    assert made.advance() == [[4, 2]]
    made.catch_up()
    for source in made.topics:
        made.check_order(source)
    tasks = made.parts.growth.tasks(made.state, Grouping.BY_PARTITION).tasks
    for key in KEYS:
        assert tasks["orders"][key % 4] == tasks["payments"][key % 2]


# ── whether ─────────────────────────────────────────────────────────────────────────────────────


def test_growth_by_no_multiple_is_refused() -> None:
    made = growers(4)
    made.topics["s"].grow(6)
    made.second = 10
    with pytest.raises(SourceChanged) as refused:
        made.plan()
    error = refused.value
    assert error.message == (
        "source s: topic topic_s has grown from 4 to 6 partitions, which is no multiple: keys have "
        "changed between partitions in a way that cannot be followed"
    )
    assert (error.expected, error.found) == ("a multiple of 4 partitions", "6 partitions")
    assert error.next_step == (
        "make it 8 partitions before more is sent to it; or, where the order of a key's records is seen "
        "to, declare the source with 'partition_growth' = 'any'; or lockstep reconcile DIR --forget s, "
        "which recomputes from what the topic holds now"
    )
    assert made.state.pending is None


def test_what_counts_is_how_many_there_were_last_not_how_many_at_first() -> None:
    made = growers(2)
    made.topics["s"].grow(4)
    made.topics["s"].send(KEYS, 2)
    made.second = 10
    made.catch_up()
    made.topics["s"].grow(6)
    with pytest.raises(SourceChanged, match="from 4 to 6 partitions, which is no multiple"):
        made.plan()


def test_a_topic_that_lost_partitions_is_refused() -> None:
    made = growers(4)
    del made.topics["s"].partitions[3]
    made.second = 10
    with pytest.raises(SourceChanged) as refused:
        made.plan()
    assert refused.value.message == "source s: partition 3 of topic topic_s has vanished"
    assert refused.value.expected == "partition 3, read up to offset 4"
    assert refused.value.found == "partitions 0, 1, 2"
    assert "lockstep reconcile DIR --forget s" in refused.value.next_step


def test_an_exempt_source_grows_to_any_number_and_what_was_before_comes_first() -> None:
    made = growers(4, Growth.ANY)
    made.mapper = by_halves
    made.topics["s"].grow(6)
    made.topics["s"].send(KEYS, 2)
    made.second = 10
    assert made.advance() == [[6]]
    made.catch_up()
    assert len(made.steps("s")) == made.topics["s"].sent
    tasks = made.parts.growth.tasks(made.state, Grouping.BY_PARTITION).tasks["s"]
    assert tasks == tuple(f"partition {number % 4}" for number in range(6))


def test_a_topic_made_anew_with_more_partitions_has_not_grown() -> None:
    made = growers(2)
    found = made.bounds("s")
    more = (*found.partitions, PartitionBounds(2, 0, 5))
    anew = TopicBounds("topic_s", "id2", more)
    growing = GrowthRules(MULTIPLE).growing(made.state, {"s": anew})
    assert (growing.ordered, growing.free) == ({}, ())


def by_halves(partition: int, count: int, first: int) -> int:
    """Of producers that split ranges of keys: the new partitions of one parent are neighbours."""
    return partition if partition < first else (partition - first) * first // (count - first)


def split(key: int, count: int) -> int:
    """Keys 0..7 are at first in partition 0, 8..15 in 1. With 6, each half keeps a third of its keys."""
    half, rest = divmod(key % 16, 8)
    if count == 2 or rest < 2:
        return half
    return 2 + 2 * half + (rest >= 5)


def test_a_custom_mapper_says_the_parents() -> None:
    made = Growers({"s": GrowingTopic.of(2)}, MULTIPLE, mapper=by_halves)
    made.topics["s"].send(KEYS, 0, split)
    made.catch_up()
    made.topics["s"].send(KEYS, 2, split)
    made.topics["s"].grow(6)
    made.topics["s"].send(KEYS, 3, split)
    made.second = 10
    made.catch_up()
    made.check_order("s")
    tasks = made.parts.growth.tasks(made.state, Grouping.BY_SOURCE_PARTITION).tasks["s"]
    assert tasks == ("s 0", "s 1", "s 0", "s 0", "s 1", "s 1")
    assert all(tasks[split(key, 6)] == tasks[split(key, 2)] for key in KEYS)


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (
            lambda p, _c, _f: p,
            "the mapper gives partition 2 of 4 the parent 2; there were 2 at first",
        ),
        (lambda p, _c, f: (p + 1) % f, "the mapper gives partition 0 of 4 the parent 1"),
        (lambda _p, _c, _f: None, "the mapper gives partition 0 of 4 the parent None"),
        (lambda p, _c, _f: p // 0, "ZeroDivisionError"),
    ],
)
def test_a_mapper_that_says_what_cannot_be_is_refused(wrong: object, found: str) -> None:
    made = growers(2)
    made.mapper = wrong  # type: ignore[assignment]
    made.topics["s"].grow(4)
    with pytest.raises(WrongUse) as refused:
        made.plan()
    assert refused.value.message == (
        "source s: lockstep.partition_mapper does not say where the keys of its 4 partitions were when "
        "there were 2"
    )
    assert found in refused.value.found


# ── the law ─────────────────────────────────────────────────────────────────────────────────────


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[str, int]]:
    """What happens to a topic and the pipeline over it: (what, how much), growth among it."""
    many = st.integers(1, 40)
    events = st.one_of(
        st.tuples(st.just("send"), many),
        st.tuples(st.just("send"), many),
        st.tuples(st.just("grow"), st.integers(2, 3)),
        st.tuples(st.just("plan"), st.just(0)),
        st.tuples(st.just("plan until"), st.integers(0, 30)),
        st.tuples(st.just("wait"), st.integers(1, 30)),
    )
    return draw(st.lists(events, min_size=3, max_size=25))


@settings(deadline=None, max_examples=80)
@given(
    lives(), st.integers(1, 3), st.sampled_from([3, 10, 1000]), st.randoms(use_true_random=False)
)
def test_a_keys_steps_never_go_back(
    life: list[tuple[str, int]], count: int, rows_per_step: int, random: object
) -> None:
    """While producers go on, whatever their timestamps are. Keys that are not followed hold, too."""
    limits = StepLimits(rows_per_step=rows_per_step, rows_per_interval=3 * rows_per_step)
    made = Growers({"s": GrowingTopic.of(count)}, MULTIPLE, limits)
    topic = made.topics["s"]
    # Of what a topic was before a source was first divided nothing is known.
    made.advance()
    for what, much in life:
        match what:
            case "send":
                for number in range(much):
                    topic.send([number * number % 24], random.choice((made.second, 0, 99)))  # type: ignore[attr-defined]
            case "grow" if len(topic.partitions) < 24:
                topic.grow(len(topic.partitions) * much)
            case "plan":
                made.advance()
            case "plan until":
                made.advance(made.second - much)
            case "wait":
                made.second += much
    made.second += 100
    made.catch_up()
    made.check_order("s")


# ── while steps run ─────────────────────────────────────────────────────────────────────────────


def topic_of(count: int) -> TopicBounds:
    return TopicBounds("t", "id1", tuple(PartitionBounds(n, 0, 9) for n in range(count)))


@pytest.mark.parametrize(
    ("kind", "count", "said"),
    [
        (
            Growth.MULTIPLE,
            8,
            [
                "topic t has grown from 4 to 8 partitions while steps 3..4 ran; the next interval takes "
                "them up once they hold records"
            ],
        ),
        (
            Growth.FREE,
            6,
            [
                "topic t has grown from 4 to 6 partitions while steps 3..4 ran; the next interval takes "
                "them up once they hold records"
            ],
        ),
        (Growth.MULTIPLE, 4, []),
    ],
)
def test_a_topic_that_grows_while_steps_run_is_told(
    kind: Growth, count: int, said: list[str]
) -> None:
    made = growers(4, kind)
    position = replace(made.state.positions[0], topic="t")
    state = replace(made.state, positions=(position,))
    ran = Interval((Division(3, made.now(), ()), Division(4, made.now(), ())))
    rules = GrowthRules({"s": kind})
    looks = {"s": topic_of(4)}, {"s": topic_of(count)}
    assert list(grown_meanwhile(rules, state, ran, *looks)) == said


def test_what_the_next_plan_refuses_is_told_in_its_words() -> None:
    made = growers(4)
    before, ran = {"s": made.bounds("s")}, Interval((Division(3, made.now(), ()),))
    made.topics["s"].grow(6)
    [told] = grown_meanwhile(made.parts.growth, made.state, ran, before, {"s": made.bounds("s")})
    with pytest.raises(SourceChanged) as refused:
        made.plan()
    error = refused.value
    assert told == (
        "topic topic_s has grown from 4 to 6 partitions while steps 3..3 ran; the next plan refuses it: "
        f"{error.message}; expected: {error.expected}; found: {error.found}; next: {error.next_step}"
    )


@pytest.mark.parametrize(("count", "said"), [(4, "the next interval takes"), (3, "refuses it")])
def test_a_run_tells_what_it_sees_and_ends_as_it_was_divided(count: int, said: str) -> None:
    made = growers(2)
    made.topics["s"].send(KEYS, 2)
    made.second = 10
    interval = made.plan().interval
    assert interval is not None
    begun = Attempt("b", interval.first_step, interval.last_step, made.state.version.attempt)

    class GrownUnder:
        def run(self, *_: object) -> IntervalResult:
            made.topics["s"].grow(count)
            return IntervalResult({}, (), {})

    engine: Any = GrownUnder()
    parts = replace(made.parts, engine=engine)
    job = stages.interval_job(parts, made.state, begun, made.state.version, interval)
    made.said.clear()
    stages.append(parts, made.state, job, made.said.append)
    [line] = made.said
    assert line.startswith(
        f"topic topic_s has grown from 2 to {count} partitions while steps 1..1 ran"
    )
    assert said in line
