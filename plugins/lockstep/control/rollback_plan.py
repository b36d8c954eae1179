"""What a rollback would do, decided before anything is done: the command line shows it, and sends its
change."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.control import opening
from lockstep.control.changes import RollBack, UndoRollBack
from lockstep.control.model import PipelineState, Version
from lockstep.control.opening import Opening
from lockstep.errors import WrongUse

__all__ = ["RollbackPlan", "plan_rollback", "plan_undo"]


@dataclass(frozen=True)
class RollbackPlan:
    """Going back to version `number`, which ends at `last_step`.

    `dropped` are the numbers of the versions that go, `ahead` the sinks that have published steps of
    theirs, `replayed` how many committed steps are run again. For taking a rollback back, `dropped` are
    the replays that were made since, and `replayed` is 0.
    """

    pipeline: str
    number: int
    last_step: int
    dropped: tuple[int, ...]
    replayed: int
    ahead: tuple[str, ...]
    change: RollBack | UndoRollBack

    @property
    def text(self) -> str:
        """What will be done, for people."""
        ends = f"version {self.number}, which ends at step {self.last_step}"
        if isinstance(self.change, UndoRollBack):
            versions = f"replayed so far, and dropped: {_numbers(self.dropped)}"
            return (
                f"pipeline {self.pipeline} returns to {ends}, as before the rollback\n  {versions}"
            )
        first, last = self.last_step + 1, self.last_step + self.replayed
        lines = [
            f"pipeline {self.pipeline} goes back to {ends}",
            f"  dropped: {_numbers(self.dropped)}; their snapshots stay until the replay has ended",
            f"  replayed by the next runs: steps {first}..{last}, an interval for each version dropped; "
            "what they give is compared with what they gave",
        ]
        if self.ahead:
            names = ", ".join(self.ahead)
            lines.append(f"  {names}: stays as it is, and is not sent these steps again")
        return "\n".join(lines)


def plan_rollback(recorded: PipelineState, number: int, found: Opening) -> RollbackPlan:
    """Raises WrongUse for a version that is not kept, or the newest; StateDiverged where it cannot be
    opened."""
    newest = recorded.version
    target = next((v for v in recorded.versions if v.number == number), None)
    if target is None or target is newest:
        others = recorded.versions[:-1]
        raise WrongUse(
            f"pipeline {recorded.name} cannot go back to version {number}",
            expected=f"one of the versions {_numbers(tuple(v.number for v in others))}"
            if others
            else "an older version than the only one kept",
            found=f"{number}, which is the newest" if target else f"{number}, which is not kept",
            next_step=f"lockstep versions {recorded.name}",
        )
    if recorded.replaced is not None or target.last_step < recorded.rebuilt_step:
        raise WrongUse(
            f"pipeline {recorded.name} cannot go back to version {number}: its queries, or what is read "
            "of its sources, have changed",
            expected="a version made by what is deployed, and no piece of the interval that changed it",
            found=f"{number}, which ends at step {target.last_step}",
            next_step="go back to a later one; or deploy the queries of before, and the next interval "
            "publishes the difference",
        )
    opening.require(recorded, number, found)
    return RollbackPlan(
        pipeline=recorded.name,
        number=number,
        last_step=target.last_step,
        dropped=tuple(v.number for v in recorded.versions if v.number > number),
        replayed=recorded.output_step - target.last_step,
        ahead=tuple(s.name for s in recorded.sinks if s.published_step > target.last_step),
        change=RollBack(number, target.attempt),
    )


def plan_undo(recorded: PipelineState, found: Opening) -> RollbackPlan:
    """Raises WrongUse where no rollback is under way; StateDiverged where what it dropped is gone.
    `found` is about the versions dropped."""
    if not recorded.dropped:
        raise WrongUse(
            f"pipeline {recorded.name} has no rollback that could be taken back",
            expected="a rollback whose steps are not all replayed yet",
            found=f"version {recorded.version.number} as the newest, and nothing to be replayed",
            next_step=f"lockstep versions {recorded.name}",
        )
    last: Version = recorded.dropped[-1]
    opening.require(recorded, last.number, found)
    return RollbackPlan(
        pipeline=recorded.name,
        number=last.number,
        last_step=last.last_step,
        dropped=tuple(
            v.number for v in recorded.versions if v.number >= recorded.dropped[0].number
        ),
        replayed=0,
        ahead=(),
        change=UndoRollBack(last.number, last.attempt),
    )


def _numbers(numbers: tuple[int, ...]) -> str:
    match numbers:
        case ():
            return "none"
        case (only,):
            return str(only)
        case _:
            return f"{numbers[0]}..{numbers[-1]}"
