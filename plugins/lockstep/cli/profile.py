"""Where the time of one interval went: the client's stages as bars, and what Spark's tasks took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from lockstep.adapters.spark_stages import Stage, TaskTimes

__all__ = ["SparkWork", "profile_text", "spark_work"]

BAR_WIDTH = 40
_SIDE_BY_SIDE = "append "
"""Parts of a run that go on at the same time begin so; `append` is all of them."""


@dataclass(frozen=True, kw_only=True)
class SparkWork(TaskTimes):
    """What Spark did in an interval, over all tasks; and `idle`, the seconds in which no stage ran:
    plans, commits, the client."""

    stages: int
    tasks: int
    idle: float


def spark_work(stages: Sequence[Stage], started: float, ended: float) -> SparkWork:
    """Of the stages that began between two times (seconds since the epoch), in the order in which they
    began."""
    busy, reached = 0.0, started
    for stage in stages:
        until = min(stage.ended, ended)
        busy += max(0.0, until - max(stage.started, reached))
        reached = max(reached, until)

    times = asdict(sum((stage.times for stage in stages), TaskTimes()))
    return SparkWork(
        stages=len(stages),
        tasks=sum(stage.tasks for stage in stages),
        idle=round(ended - started - busy, 3),
        **{name: round(seconds, 3) for name, seconds in times.items()},
    )


def profile_text(
    name: str,
    whole: float,
    stages: Mapping[str, float],
    inside_run: Mapping[str, float],
    spark: SparkWork | None,
) -> str:
    """The stages, below `run` its parts, below `append` the tables, each with a bar. `whole` is what
    the stages took together, as it is shown elsewhere too: added up once more, its last digit could
    differ."""
    rows = list(_rows(stages, inside_run))
    width = max(len(label) for label, _ in rows)
    lines = [f"{name}: {whole:.2f} s"]
    for label, seconds in rows:
        bar = "█" * round(BAR_WIDTH * seconds / whole) if whole else ""
        lines.append(f"{label:{width}} {seconds:7.2f}  {bar}".rstrip())
    if spark is not None:
        lines.append(
            f"  Spark: {spark.stages} stages, {spark.tasks} tasks of together {spark.run:.2f} s: "
            f"computing {spark.cpu:.2f}, garbage {spark.garbage:.2f}, shuffle written "
            f"{spark.shuffle_write:.2f}, waited for {spark.shuffle_wait:.2f}"
        )
        lines.append(f"  no task ran for {spark.idle:.2f} s: plans, commits, the store, the client")
    return "\n".join(lines)


def _rows(
    stages: Mapping[str, float], inside_run: Mapping[str, float]
) -> Iterator[tuple[str, float]]:
    for stage, seconds in stages.items():
        yield f"  {stage}", seconds
        if stage != "run":
            continue
        parts = {p: s for p, s in inside_run.items() if not p.startswith(_SIDE_BY_SIDE)}
        for part, taken in parts.items():
            yield f"    {part}", taken
            if part == "append":
                tables = (p for p in inside_run if p.startswith(_SIDE_BY_SIDE))
                for table in sorted(tables, key=lambda p: -inside_run[p]):
                    yield f"      {table.removeprefix(_SIDE_BY_SIDE)}", inside_run[table]
        yield "    other", max(0.0, seconds - sum(parts.values()))
