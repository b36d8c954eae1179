"""The control store behind a network: the real `MemoryStore`, with answers lost and late."""

from __future__ import annotations

from collections.abc import Callable

from sim_world import SECOND, World

from lockstep.adapters.memory_store import MemoryStore
from lockstep.control.changes import Change, Landed, Outcome, Unknown
from lockstep.control.model import Division, PipelineState, Version
from lockstep.errors import Unreachable

Seen = Callable[[Change, PipelineState, PipelineState], None]
"""Is told each change that has altered a state: the change, the state before and after."""


class SimulatedStore:
    """Implements `control.ports.Store`. Unknown is answered for what may have been committed; a
    failure before that is raised as Unreachable, as by the real store."""

    def __init__(self, world: World, seen: Seen) -> None:
        self.memory = MemoryStore()
        self._world = world
        self._seen = seen

    def pipelines(self) -> tuple[str, ...]:
        return self._world.exchange("pipelines", self.memory.pipelines)

    def read(self, pipeline: str) -> PipelineState:
        return self._asked("read", lambda: self.memory.read(pipeline))

    def divisions(self, pipeline: str, first_step: int, last_step: int) -> tuple[Division, ...]:
        question = f"divisions {first_step}..{last_step}"
        return self._asked(question, lambda: self.memory.divisions(pipeline, first_step, last_step))

    def versions(self, pipeline: str) -> tuple[Version, ...]:
        return self._asked("versions", lambda: self.memory.versions(pipeline))

    def _asked(self, question: str, act: Callable[[], object]) -> object:
        """A reading call; states are too long for the history."""
        box: list[object] = []
        self._world.exchange(question, lambda: box.append(act()))
        return box[0]

    def apply(self, pipeline: str, change: Change) -> Outcome:
        world = self._world
        what = f"apply {change}"
        world.pause()
        if world.chance("lost_request_per_call"):
            world.note(f"{world.process.name}: {what}: lost")
            raise Unreachable("the control store does not answer")
        if world.chance("slow_change"):
            world.pause(world.random.choice((SECOND, 10 * SECOND)))
        if world.chance("unknown_commit"):
            return self._unknown(pipeline, change, what)
        outcome = self.send(pipeline, change)
        world.note(f"{world.process.name}: {what}: {_shown(outcome)}")
        world.pause()
        return outcome

    def send(self, pipeline: str, change: Change) -> Outcome:
        """What happens at the store's end, at once and without faults."""
        known = pipeline in self.memory.pipelines()
        before = self.memory.read(pipeline) if known else None
        outcome = self.memory.apply(pipeline, change)
        if isinstance(outcome, Landed) and before is not None and outcome.state is not before:
            self._seen(change, before, outcome.state)
        return outcome

    def _unknown(self, pipeline: str, change: Change, what: str) -> Outcome:
        """It has happened, it never will, or it happens later."""
        world = self._world
        match world.random.choice(("landed", "never", "later")):
            case "landed":
                world.note(f"{world.process.name}: {what}: unknown: {self._late(pipeline, change)}")
            case "later":
                world.deliver_late(what, lambda: self._late(pipeline, change))
            case _:
                world.note(f"{world.process.name}: {what}: unknown, never")
        world.pause(15 * SECOND)
        return Unknown("the control store did not answer")

    def _late(self, pipeline: str, change: Change) -> str:
        return _shown(self.send(pipeline, change))


def _shown(outcome: Outcome) -> str:
    if isinstance(outcome, Landed):
        return f"revision {outcome.state.revision}"
    return f"{type(outcome).__name__}: {outcome.reason}"
