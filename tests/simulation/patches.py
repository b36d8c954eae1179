"""How a fault is put in: a function of the real code rewritten, or a part of a twin replaced."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FunctionType, ModuleType
from typing import Any
from unittest import mock

from sim_kafka import Link
from sim_sinks import TopicPublish

from lockstep.control import interval
from lockstep.control.changes import Change, RecordInterval
from lockstep.control.job import PublishJob, SinkTarget
from lockstep.control.model import Attempt, PipelineState
from lockstep.ids import MAIN

Patch = Callable[[], AbstractContextManager[object]]


def rewritten(function: FunctionType, *changes: tuple[str, str]) -> Patch:
    """The function with texts replaced, each of which must be there once; wherever it is known."""

    @contextmanager
    def patch() -> Iterator[None]:
        source = textwrap.dedent(inspect.getsource(function))
        for old, new in changes:
            if source.count(old) != 1:
                raise AssertionError(
                    f"{function.__qualname__}: expected {old!r} once, found it {source.count(old)} "
                    "times; the mutant has to follow the code that it is made of"
                )
            source = source.replace(old, new)
        known: dict[str, Any] = {}
        code = compile(f"from __future__ import annotations\n{source}", function.__module__, "exec")
        exec(code, function.__globals__, known)
        with _everywhere(function, known[function.__name__]):
            yield

    return patch


@contextmanager
def _everywhere(old: FunctionType, new: object) -> Iterator[None]:
    """Put `new` in the place of `old` wherever that is known by its name."""
    with ExitStack() as stack:
        modules = [module for module in sys.modules.values() if isinstance(module, ModuleType)]
        for owner in (*modules, TopicPublish, Link):
            if vars(owner).get(old.__name__) is old:
                stack.enter_context(mock.patch.object(owner, old.__name__, new))
        yield


def both(*patches: Patch) -> Patch:
    @contextmanager
    def patch() -> Iterator[None]:
        with ExitStack() as stack:
            for one in patches:
                stack.enter_context(one())
            yield

    return patch


def replaced(owner: object, name: str, new: object) -> Patch:
    return lambda: mock.patch.object(owner, name, new)


def around(owner: type, name: str, change: Callable[..., object]) -> Patch:
    """A method that is told of the one that it stands in for, as its first argument."""
    old = getattr(owner, name)
    return replaced(owner, name, lambda *args, **named: change(old, *args, **named))


def main_anyhow(table: Any, snapshot_id: int, *rest: Any) -> dict[str, int]:
    """`main` goes where it is told, without a look at where it stands."""
    del table, rest
    return {MAIN: snapshot_id}


# ── what is put in, longer than a line ──


def publish_first(
    old: Callable[..., object],
    parts: Any,
    began: Any,
    attempt: Any,
    made: Any,
    result: Any,
    *rest: Any,
) -> object:
    """Commit, after the sinks have been moved."""
    _publish_unrecorded(parts, began, made.interval.last_step, result.tables)
    return old(parts, began, attempt, made, result, *rest)


def publish_undivided(old: Callable[..., object], parts: Any, change: Change) -> object:
    """Record a division, after its steps have been run and published."""
    if isinstance(change, RecordInterval):
        state, wanted = parts.store.read(parts.pipeline), change.interval
        base = state.version
        attempt = Attempt(parts.new_id(), wanted.first_step, wanted.last_step, base.attempt)
        job = interval.interval_job(parts, state, attempt, base, wanted)
        result = parts.engine.run(job, _silent)
        _publish_unrecorded(parts, state, wanted.last_step, result.tables)
    return old(parts, change)


def _publish_unrecorded(parts: Any, state: PipelineState, last_step: int, tables: Any) -> None:
    targets = [
        SinkTarget(s.name, s.view, s.provider, s.published_step + 1, last_step) for s in state.sinks
    ]
    job = PublishJob(
        pipeline=parts.pipeline,
        incarnation=state.incarnation,
        version=state.version.number + 1,
        last_step=last_step,
        tables=tables,
        sinks=tuple(targets),
        files=state.files,
        variables={},
        catalog=parts.catalog,
    )
    parts.engine.publish(job, _silent)


def _silent(_: str) -> None:
    """Task logs are not read here."""
