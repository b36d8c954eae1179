"""A rolling upgrade: two versions of the wheel work on one pipeline, host by host, and take up what the
other has left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from driven import kill_other_at, own_settings, run_other, variables_of
from long_lived import Totals

from lockstep import scaling
from lockstep.adapters.settings import Settings
from lockstep.control.interval import Point
from lockstep.control.layout.layouts import Change, Layout, ReplaceHost, difference
from lockstep.control.layout.scaling import scaled
from lockstep.runtime import recorded

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ROOT = Path(__file__).parents[2]
OLD, NEW = "0.1.0", "0.1.1"


def installed(folder: Path, version: str) -> Mapping[str, str]:
    """A wheel of this code that says it is that version, in a folder of its own, and nothing else there;
    the environment in which it comes first."""
    sources, target = folder / "sources", folder / "installed"
    sources.mkdir(parents=True)
    without_caches = shutil.ignore_patterns("__pycache__")
    for name in ("plugins", "spark_jobs", "dags"):
        shutil.copytree(ROOT / name, sources / name, ignore=without_caches)
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert f'version = "{OLD}"' in text
    text = text.replace(f'version = "{OLD}"', f'version = "{version}"', 1)
    (sources / "pyproject.toml").write_text(text, "utf-8")
    uv = str(Path(sys.executable).with_name("uv"))
    alone = ("--offline", "--no-deps", "--no-build-isolation", "--target", str(target))
    command = [uv, "pip", "install", "--quiet", "--python", sys.executable, *alone, str(sources)]
    subprocess.run(command, check=True, timeout=120)
    return {"PYTHONPATH": str(target)}


def version_of(settings: Settings, more: Mapping[str, str]) -> str:
    """The version that a process in this environment works with."""
    code = (
        "import lockstep, lockstep_engine, importlib.metadata as m; "
        "print(m.version('lockstep'), lockstep.__file__, lockstep_engine.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables_of(settings), **more},
        capture_output=True,
        text=True,
        check=True,
    )
    version, *files = done.stdout.split()
    assert all(file.startswith(more["PYTHONPATH"]) for file in files)
    return version


class Upgraded(Totals):
    """A pipeline of which each interval is driven by one version or the other."""

    def relayout(self, *changes: Change) -> Layout:
        plan = scaling.plan_change("totals", lambda _: changes, self.settings, at_once=False)
        return scaling.change(plan, self.settings).layout

    def advance(self, version: Mapping[str, str]) -> None:
        done = run_other("totals", self.settings, version)
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_takes_up_what_the_other_has_left(
    tmp_path: Path, spark_server: Any, broker: Any, database: str
) -> None:
    settings = own_settings(spark_server, broker, tmp_path / "home")
    old, new = (installed(tmp_path / version, version) for version in (OLD, NEW))
    assert [version_of(settings, one) for one in (old, new)] == [OLD, NEW]
    totals = Upgraded(settings, f"{database}_", seed=17)
    totals.deploy(tmp_path / "project")
    first = totals.relayout(*scaled(Layout(), 2, 2))
    totals.change(rows=60)
    totals.advance(old)

    one = totals.relayout(ReplaceHost("host-0", "new-0"))
    totals.change(rows=60)
    totals.advance(new)
    # While both are there, whoever dies is followed by the other.
    for point, dies, follows in (
        (Point.PLAN_RECORDED, new, old),
        (Point.RUN_APPENDED, new, old),
        (Point.COMMIT_LANDED, old, new),
        (Point.PUBLISH_INTENDED, old, new),
    ):
        totals.change(rows=40)
        kill_other_at(point, "totals", settings, dies)
        totals.advance(follows)

    both = totals.relayout(ReplaceHost("host-1", "new-1"))
    totals.change(rows=60)
    totals.advance(new)
    # Each shard has moved to another host once, and no worker has changed.
    moves = [difference(first, one), difference(one, both)]
    assert [move.share for move in moves] == [0, 0]
    assert sum(move.between_hosts for move in moves) == 1
    state = recorded("totals", settings)
    assert (state.version.layout_epoch, set(state.layout.hosts.values())) == (3, {"new-0", "new-1"})
    assert totals.is_settled
    findings = totals.check(totals.sent)
    assert findings.clean, findings
