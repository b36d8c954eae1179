"""Shards that go step by step, none ahead of the others: a sink's option `steps_together`.

The law: no transaction with rows of step s + 1 is begun before every shard has all of step s. A shard
that cannot go on stops all of them after the same step.

A worker (a thread, or a task) has one shard or several, and takes them through a step one after the
other; then it arrives at the barrier. Rounds are steps: a shard that has a step already only arrives, so
that those which are behind catch up while nobody goes ahead. Who cannot go on proposes so, at the time
of the step, and arrives as well: what all are given of the sequencer after a round is the same
(decision 0020).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from lockstep.control.coordination.barrier import Barrier
from lockstep.control.coordination.memory import MemoryCarrier
from lockstep.control.coordination.progress import Carrier
from lockstep.control.coordination.sequencer import Sequencer
from lockstep.threads import MAX_THREADS, in_parallel
from lockstep_engine.sinks.kafka_plan import Message, ShardLink, ShardWork, send_shard

__all__ = ["StepRounds", "rounds_of", "send_by_threads", "send_together"]

_STOP = "stop"


class StepRounds:
    """One worker's side of the rounds of a publish; a round is a step. Raises what carriers raise."""

    def __init__(
        self, carrier_of: Callable[[str], Carrier], worker: str, workers: Collection[str]
    ) -> None:
        self._barrier = Barrier(carrier_of("steps"), worker, workers)
        self._sequencer = Sequencer(carrier_of("stops"), worker, workers)

    def stop(self) -> None:
        """Propose that all stop after the step under way."""
        self._sequencer.push(_STOP)
        self._sequencer.send()

    def end(self, step: int) -> bool:
        """Arrive at the end of a step, wait for the others, and say whether all go on.

        Each worker has advanced when it arrives, and none advances again before all have left: what
        was proposed in this step is complete to each of them, and nothing of later steps is.
        """
        self._sequencer.advance(step + 1)
        self._barrier.wait()
        return self._sequencer.next() is None


def rounds_of(works: Collection[ShardWork]) -> range:
    """The steps that one or more of the shards have not."""
    return range(min(work.after for work in works) + 1, max(work.last_step for work in works) + 1)


def send_together(
    works: Sequence[ShardWork],
    steps: range,
    messages: Iterator[tuple[int, Message]],
    link_of: Callable[[ShardWork], ShardLink],
    rounds: StepRounds,
    row_limit: int,
) -> int:
    """Publish one worker's shards, in rounds with the others; returns how many messages were sent.

    `messages` come with their shards, in the order of steps and then of shards; `steps` are the rounds,
    the same to all workers. Where another worker cannot go on, this one stops after the same step and
    returns; where this one cannot, it raises what `send_shard` and `link_of` raise, after that step.
    """
    pieces = _Pieces(messages)
    sent = 0
    for step in steps:
        try:
            for work in sorted(works, key=lambda one: one.shard):
                sent += _send_step(work, step, pieces, link_of(work), row_limit)
        except BaseException:
            rounds.stop()
            # In Spark the others would be ended with this task, in the middle of the step.
            rounds.end(step)
            raise
        if not rounds.end(step):
            break
    return sent


def send_by_threads(
    works: Sequence[ShardWork],
    messages_of: Callable[[ShardWork], Iterator[Message]],
    link_of: Callable[[ShardWork], ShardLink],
    row_limit: int,
) -> int:
    """Publish all shards from here, by a thread each, or by as many as there may be."""
    count = min(MAX_THREADS, len(works))
    workers = [str(worker) for worker in range(count)]
    carriers = {"steps": MemoryCarrier(), "stops": MemoryCarrier()}

    def messages(own: Sequence[ShardWork]) -> Iterator[tuple[int, Message]]:
        found = [(work.shard, message) for work in own for message in messages_of(work)]
        yield from sorted(found, key=lambda one: (one[1].step, one[0]))

    def send(worker: int) -> int:
        own = works[worker::count]
        rounds = StepRounds(carriers.__getitem__, str(worker), workers)
        return send_together(own, rounds_of(works), messages(own), link_of, rounds, row_limit)

    return sum(in_parallel(send, range(count)))


def _send_step(work: ShardWork, step: int, pieces: _Pieces, link: ShardLink, row_limit: int) -> int:
    """Publish what a shard has not of one step, though it is a marker alone."""
    if step <= work.after or step > work.last_step:
        return 0
    try:
        only = replace(work, last_step=step)
        return send_shard(only, pieces.of(work.shard, step), link, row_limit)
    except BaseException:
        # Its readers need not wait for the other shards as well.
        link.abort()
        raise


class _Pieces:
    """Messages by step and shard, out of one stream in that order."""

    def __init__(self, messages: Iterator[tuple[int, Message]]) -> None:
        self._messages = messages
        self._held: tuple[tuple[int, Message], ...] = ()

    def of(self, shard: int, step: int) -> Iterator[Message]:
        """Those of one shard's step; what comes before them is passed over."""
        held, self._held = self._held, ()
        for piece in chain(held, self._messages):
            found, message = piece
            if (message.step, found) > (step, shard):
                self._held = (piece,)
                return
            if (message.step, found) == (step, shard):
                yield message
