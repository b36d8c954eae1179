"""`scale`, `layout`: how many workers on how many hosts, and which of them owns which shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lockstep.adapters.settings import Settings
from lockstep.cli.names import pipeline_name
from lockstep.cli.output import command, progress, show, table
from lockstep.control.layout import layouts
from lockstep.control.layout.autoscaling import Load, Proposal
from lockstep.control.layout.drawing import strips, svg
from lockstep.control.layout.layouts import Layout, Moved, difference
from lockstep.control.layout.readers import Reader
from lockstep.control.layout.records import LayoutRecord
from lockstep.control.layout.scaling import scaled
from lockstep.control.layout.sharding import Dynamic, Fixed, Sharding
from lockstep.control.model import PipelineState, RunState
from lockstep.errors import WrongUse

if TYPE_CHECKING:
    from lockstep.scaling import LayoutPlan

__all__ = ["register"]


def register(cli: click.Group) -> None:
    """Add the commands of this module."""
    command(cli, "scale", "lockstep scale shop --workers 4 --hosts 2")(scale)
    group = click.Group("layout", help="Which worker owns which shards, on which host.")
    cli.add_command(group)
    command(group, "show", "lockstep layout show shop --svg layout.svg")(show_layout)
    command(group, "history", "lockstep layout history shop")(history)
    command(group, "diff", "lockstep layout diff shop 1 2")(diff)
    command(group, "propose", "lockstep layout propose shop")(propose)
    command(group, "move", "lockstep layout move shop 17 0")(move)
    command(group, "replace-host", "lockstep layout replace-host shop host-0 host-7")(replace_host)


@click.argument("pipeline", metavar="PIPELINE|DIR")
@click.option("--workers", required=True, type=click.IntRange(1), help="Tasks that work at a time.")
@click.option("--hosts", type=click.IntRange(1), help="Default: as many as there are.")
@click.option("--shards", type=click.IntRange(1), help="So many, a power of two, for any workers.")
@click.option(
    "--dynamic",
    metavar="K",
    help="So many shards that a worker's part is off by about K at most, as 1/10 (the default).",
)
@click.option("--now", is_flag=True, help="Under the interval under way: what it has done is void.")
@click.option(
    "--hot/--cold",
    default=True,
    show_default=True,
    help="While intervals go on; or in a pipeline that is paused before, and stays so.",
)
@click.option("--dry-run", is_flag=True, help="Say what would move; change nothing.")
def scale(
    pipeline: str,
    workers: int,
    hosts: int | None,
    shards: int | None,
    dynamic: str | None,
    now: bool,
    hot: bool,
    dry_run: bool,
) -> None:
    """Have a pipeline run on so many workers, spread evenly over so many hosts.

    Shards move as little as can be. The new layout holds from the next interval on: what is under way
    is committed first. No row of a view changes.
    """
    name = pipeline_name(pipeline)
    sharding = _sharding(shards, dynamic, name)
    if not hot and not dry_run:
        _pause(name, now)
    _change(
        name,
        lambda newest: scaled(newest, workers, hosts, sharding),
        at_once=now,
        dry_run=dry_run,
    )


@click.argument("pipeline", metavar="PIPELINE|DIR")
@click.option("--epoch", type=click.IntRange(0), help="Default: the one that intervals run under.")
@click.option("--svg", "drawing", metavar="FILE", help="Write it as a picture, too.")
def show_layout(pipeline: str, epoch: int | None, drawing: str | None) -> None:
    """Show a layout: each worker, its host, and its part of the hash space; and which worker reads
    which partition of the topics, as far as steps have."""
    from lockstep import runtime

    state = _recorded(pipeline)
    record = _of_epoch(state, state.layout.epoch if epoch is None else epoch)
    if drawing:
        Path(drawing).write_text(svg(record.layout, _title(record)), "utf-8")
    found = runtime.partition_readers(state, Settings.load(), record.layout.epoch)
    shown = ShownReaders(**vars(_shown(record)), partitions=found)
    show(shown, lambda: "\n".join((_text(record), *_readers_text(found))))


@click.argument("pipeline", metavar="PIPELINE|DIR")
def history(pipeline: str) -> None:
    """Show all layouts that there were, and which part of the state each has moved."""
    records = _recorded(pipeline).layouts
    befores = [records[0], *records]
    found = [
        _shown_change(record, difference(before.layout, record.layout))
        for before, record in zip(befores, records, strict=False)
    ]

    def text() -> str:
        rows = [
            (
                one.layout.epoch,
                "waits" if one.layout.from_step is None else one.layout.from_step,
                len(one.layout.workers),
                len({worker.host for worker in one.layout.workers}),
                one.layout.shards,
                _percent(one.moved),
                _percent(one.between_hosts),
            )
            for one in found
        ]
        headers = ("epoch", "from step", "workers", "hosts", "shards", "moved", "between hosts")
        return table(headers, rows)

    show(found, text)


@click.argument("pipeline", metavar="PIPELINE|DIR")
@click.argument("before", metavar="EPOCH", type=click.IntRange(0))
@click.argument("later", metavar="EPOCH", type=click.IntRange(0))
def diff(pipeline: str, before: int, later: int) -> None:
    """Show what moves between two layouts."""
    state = _recorded(pipeline)
    one, other = (_of_epoch(state, epoch) for epoch in (before, later))
    moved = difference(one.layout, other.layout)
    shown = _shown_change(other, moved)
    show(shown, lambda: f"layout {before} to {later}: {_moved_text(moved)}\n{_ranges_text(moved)}")


@click.argument("pipeline", metavar="PIPELINE|DIR")
def propose(pipeline: str) -> None:
    """Show what the last intervals took, and how many workers the project's policy would have."""
    from lockstep import scaling
    from lockstep.control.autoscaler import text_of

    state = _recorded(pipeline)
    proposal = scaling.propose(state, Settings.load())

    def text() -> str:
        rows = [
            (load.last_step, load.epoch, f"{load.seconds:.1f}", f"{load.lag_seconds:.1f}")
            for load in state.loads
        ]
        taken = table(("up to step", "layout", "seconds", "lag (s)"), rows)
        return (
            f"{taken}\n{'nothing to change' if proposal is None else text_of(state.name, proposal)}"
        )

    show(ProposedScale(state.loads, proposal), text)


@dataclass(frozen=True)
class ProposedScale:
    """What intervals took, oldest first, and what follows from it."""

    loads: tuple[Load, ...]
    proposal: Proposal | None


@click.argument("pipeline", metavar="PIPELINE|DIR")
@click.argument("shard", type=click.IntRange(0))
@click.argument("worker", type=click.IntRange(0))
def move(pipeline: str, shard: int, worker: int) -> None:
    """Give a shard to a worker, however uneven that is, until workers come or go."""
    name = pipeline_name(pipeline)
    _change(name, lambda _: (layouts.Move(shard, worker),))


@click.argument("pipeline", metavar="PIPELINE|DIR")
@click.argument("old", metavar="HOST")
@click.argument("new", metavar="HOST")
def replace_host(pipeline: str, old: str, new: str) -> None:
    """Have the workers of one host run on another that is new: each shard moves once, or not at all."""
    name = pipeline_name(pipeline)
    _change(name, lambda _: (layouts.ReplaceHost(old, new),))


# ── what is shown ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ShownWorker:
    """A worker, and how many shards it owns."""

    worker: int
    host: str
    shards: int


@dataclass(frozen=True)
class ShownLayout:
    """A layout as people ask for it."""

    epoch: int
    from_step: int | None
    shards: int
    sharding: str
    workers: tuple[ShownWorker, ...]
    ranges: tuple[layouts.OwnedRange, ...]


@dataclass(frozen=True)
class ShownReaders(ShownLayout):
    """The same, and who reads which partition."""

    partitions: tuple[Reader, ...]


@dataclass(frozen=True)
class ShownChange:
    """A layout, and what it moved: shares are numbers from 0 to 1; `waits_for` as in `LayoutPlan`."""

    layout: ShownLayout
    moved: float
    between_hosts: float
    ranges: tuple[layouts.OwnedRange, ...]
    waits_for: str | None = None


def _shown_change(record: LayoutRecord, moved: Moved, waits_for: str | None = None) -> ShownChange:
    shares = float(moved.share), float(moved.between_hosts)
    return ShownChange(_shown(record), *shares, moved.ranges, waits_for)


def _shown(record: LayoutRecord) -> ShownLayout:
    layout = record.layout
    workers = tuple(
        ShownWorker(worker, host, len(layout.shards_of(worker)))
        for worker, host in sorted(layout.hosts.items())
    )
    return ShownLayout(
        layout.epoch,
        record.from_step,
        len(layout.owners),
        _sharding_text(layout.sharding),
        workers,
        layout.ranges if workers else (),
    )


def _title(record: LayoutRecord) -> str:
    since = (
        "waits for the interval under way"
        if record.from_step is None
        else f"from step {record.from_step}"
    )
    return f"layout {record.layout.epoch}, {since}: {_size(record.layout)}"


def _size(layout: Layout) -> str:
    if not layout.hosts:
        return "no workers are named, as many tasks work as Spark has"
    hosts = len(set(layout.hosts.values()))
    return (
        f"{_count(len(layout.hosts), 'worker')} on {_count(hosts, 'host')}, "
        f"{_count(len(layout.owners), 'shard')} ({_sharding_text(layout.sharding)})"
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _sharding_text(sharding: Sharding) -> str:
    match sharding:
        case Fixed():
            return "fixed"
        case Dynamic(inaccuracy):
            return f"dynamic, {inaccuracy}"


def _text(record: LayoutRecord) -> str:
    layout = record.layout
    if not layout.hosts:
        return _title(record)
    owned = strips(layout)
    rows = [
        (worker, layout.hosts[worker], len(layout.shards_of(worker)), owned[worker])
        for worker in sorted(layout.hosts)
    ]
    return f"{_title(record)}\n{table(('worker', 'host', 'shards', 'of the hash space'), rows)}"


def _readers_text(found: Sequence[Reader]) -> Sequence[str]:
    if not found:
        return ()
    rows = [(one.source, one.partition, one.task, one.worker) for one in found]
    return ("", table(("source", "partition", "task", "worker"), rows))


def _moved_text(moved: Moved) -> str:
    if not moved.share and not moved.between_hosts:
        return "nothing moves"
    return (
        f"{_percent(moved.share)} of the state changes its worker, "
        f"{_percent(moved.between_hosts)} its host"
    )


def _ranges_text(moved: Moved) -> str:
    return table(
        ("from", "to", "worker"), [(one.low, one.high, one.worker) for one in moved.ranges]
    )


def _percent(share: Fraction | float) -> str:
    return f"{float(share):.1%}"


# ── changing ────────────────────────────────────────────────────────────────────────────────────


def _change(
    name: str,
    changes: Callable[[Layout], tuple[layouts.Change, ...]],
    *,
    at_once: bool = False,
    dry_run: bool = False,
) -> None:
    from lockstep import scaling

    settings = Settings.load()
    plan = scaling.plan_change(name, changes, settings, at_once=at_once)
    record = LayoutRecord(plan.after, None) if dry_run else scaling.change(plan, settings)
    waits_for = plan.waits_for if record.from_step is None else None
    shown = _shown_change(record, plan.moved, waits_for)
    show(shown, lambda: _plan_text(plan, record, dry_run))


def _plan_text(plan: LayoutPlan, record: LayoutRecord, dry_run: bool) -> str:
    if plan.change is None:
        return f"pipeline {plan.pipeline} is so already\n{_text(record)}"
    moved = f"layout {plan.before.epoch} to {plan.after.epoch}: {_moved_text(plan.moved)}"
    if dry_run:
        return f"{moved}\nnothing is changed\n{_text(record)}"
    when = (
        f"holds from step {record.from_step} on"
        if record.from_step is not None
        else f"holds once {plan.waits_for} are committed"
    )
    return f"{moved}\n{when}\n{_text(record)}"


def _pause(name: str, now: bool) -> None:
    """Let what is under way end, so that a Spark server can be started anew with another size."""
    from lockstep import runtime

    if now:
        raise WrongUse(
            f"the layout of pipeline {name} cannot be changed both now and cold",
            expected="--now, or --cold, which waits for the interval under way",
            found="both",
            next_step=f"lockstep pause {name} --wait, and then lockstep scale {name} with --now",
        )
    settings = Settings.load()
    runtime.desire(name, RunState.PAUSE, settings)
    state = runtime.at_rest(name, settings)
    progress(
        f"pipeline {name} is paused before step {state.next_step}; to go on: lockstep resume {name}"
    )


def _sharding(shards: int | None, dynamic: str | None, name: str) -> Sharding | None:
    try:
        match shards, dynamic:
            case None, None:
                return None
            case int(), None:
                return Fixed(shards)
            case None, str():
                return Dynamic(Fraction(dynamic))
        raise ValueError("--shards and --dynamic exclude each other")
    except (ValueError, ZeroDivisionError) as error:
        raise WrongUse(
            f"the number of shards of pipeline {name} cannot be told so: {error}",
            expected="--shards with a power of two, or --dynamic with a part, as 1/10",
            found=f"--shards {shards}" if dynamic is None else f"--dynamic {dynamic}",
            next_step=f"lockstep layout show {name}",
        ) from error


def _recorded(pipeline: str) -> PipelineState:
    from lockstep import runtime

    return runtime.recorded(pipeline_name(pipeline), Settings.load())


def _of_epoch(state: PipelineState, epoch: int) -> LayoutRecord:
    if epoch < len(state.layouts):
        return state.layouts[epoch]
    raise WrongUse(
        f"pipeline {state.name} has no layout {epoch}",
        expected=f"an epoch from 0 to {len(state.layouts) - 1}",
        found=str(epoch),
        next_step=f"lockstep layout history {state.name}",
    )
