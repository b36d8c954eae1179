"""What `make torture` chooses and says, and a few of its strikes, on servers of their own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import reader
from long_lived import Stock, Totals
from stopping import POINTS, KafkaPoint, name_of
from torture import BY_AIRFLOW, DRIVEN, Results, choose, torture
from torture_strikes import RANDOM, Action, Outcome, Strike, Victim

from lockstep.control.interval import Point

STRIKES = [
    Strike(Totals.name, Victim.SPARK, Action.KILL, Point.RUN_BEGUN, 0, 0),
    Strike(Stock.name, Victim.BROKER, Action.KILL, KafkaPoint.SENT, 0, 0),
    # It sleeps for longer than its lease lasts, and wakes up while another one is at work.
    Strike(Totals.name, Victim.TASK, Action.STOP, Point.COMMIT_CHECKED, 0, 17),
]


@pytest.mark.spark
@pytest.mark.kafka
def test_nothing_is_lost_where_servers_are_killed_and_a_task_sleeps(tmp_path: Path) -> None:
    results = Results(seed=13)
    torture(tmp_path / "torture", STRIKES, results)
    assert results.clean, (results.failed, results.findings)
    assert results.points == Counter({strike.moment: 1 for strike in STRIKES})


def test_fifty_runs_strike_at_each_point_and_in_each_way() -> None:
    strikes = choose(50, seed=1)
    assert strikes == choose(50, seed=1)
    assert strikes != choose(50, seed=2)
    moments = Counter(strike.moment for strike in strikes)
    assert set(moments) == {*map(name_of, POINTS), RANDOM}
    kinds = {(strike.victim, strike.action) for strike in strikes}
    assert kinds == {*DRIVEN, *BY_AIRFLOW}


def test_results_count_what_the_last_reading_of_each_pipeline_found() -> None:
    results = Results(seed=1, normal_seconds=2.0)
    lost = reader.Findings(lost=[(3, ("totals", "c1"))])
    results.add(STRIKES[0], Outcome(4.0, 1, reader.Findings()))
    assert results.clean
    results.add(STRIKES[0], Outcome(7.0, 2, lost))
    results.add(STRIKES[1], Outcome(6.0, 1, reader.Findings()))
    assert not results.clean
    found = results.as_json()
    assert (found["runs"], found["lost"], found["duplicated"]) == (3, 1, 0)
    assert found["points"]["RUN_BEGUN"] == 2
    assert found["recovery_seconds"]["spark kill"] == {"count": 2, "median": 5.5, "max": 7.0}
    assert found["recovery_intervals"]["broker kill"] == {"count": 1, "median": 3.0, "max": 3.0}
