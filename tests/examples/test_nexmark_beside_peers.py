"""The benchmark beside the peers: what they are asked, how rows are compared, what an aim says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import nexmark
import pytest
from nexmark_aims import aims
from nexmark_data import write_events
from nexmark_lockstep import ToldApart, told_apart
from nexmark_rows import EQUAL, compared, read_rows
from peers.task import Answer, Task, write_rows
from peers.texts import columns, own_text, query

from lockstep.cli.bench import EXAMPLE, QUERIES, load_generator


def test_the_texts_are_those_of_the_example() -> None:
    assert query("q2") == "SELECT auction, price\nFROM bid\nWHERE auction % 123 = 0"
    assert columns("bid").startswith("auction BIGINT, bidder BIGINT, price BIGINT, channel STRING")
    assert columns("bid").endswith("extra STRING"), "what no record holds is no column"


@pytest.mark.parametrize("name", QUERIES)
def test_each_query_has_a_text_for_flink_that_reads_its_tables(name: str) -> None:
    text = own_text("flink_sql", name)
    assert text is not None
    words = set(text.replace("(", " ").replace(",", " ").split())
    assert words & {"person", "auction", "bid"} >= set(QUERIES[name]), "the same tables"


def test_a_task_comes_back_from_its_line() -> None:
    task = Task("q3", ("person", "auction"), "127.0.0.1:1", "bench.", "", 3, "/work", "/rows")
    assert Task.from_json(task.as_json()) == task


def test_rows_are_equal_whatever_their_order_and_the_last_digits(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    moment = datetime(2025, 7, 1, 0, 0, 1, tzinfo=UTC)
    write_rows([(1, "a", Decimal("0.908"), moment), (2, None, 1 / 3, moment)], str(ours))
    lines = ([2, None, 0.333333333333, 1751328001000], [1, "a", 0.908, 1751328001000])
    theirs.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert compared(read_rows(ours), read_rows(theirs)) == EQUAL


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ([[1]], "part: 1 of 2 rows"),
        ([[1], [1], [2]], "WRONG: 0 rows are missing, 1 are unexpected"),
        ([[1], [3]], "WRONG: 1 rows are missing, 1 are unexpected"),
    ],
)
def test_what_a_peer_found_is_judged(tmp_path: Path, found: list[list[int]], verdict: str) -> None:
    for name, rows in (("expected", [[1], [2]]), ("found", found)):
        write_rows(rows, str(tmp_path / name))
    assert compared(read_rows(tmp_path / "expected"), read_rows(tmp_path / "found")) == verdict


def test_the_file_of_events_has_them_all_in_their_order(tmp_path: Path) -> None:
    generator = load_generator(EXAMPLE)
    path = tmp_path / "events"
    write_events(generator, 120, path)
    lines = [line.rstrip("\n").split("\t") for line in path.read_text().splitlines()]
    assert [kind for kind, _ in lines[48:56]] == [
        *["bid"] * 2,
        "person",
        *["auction"] * 3,
        *["bid"] * 2,
    ]
    (block,) = generator.blocks(120)
    for kind in ("person", "auction", "bid"):
        assert [record for of, record in lines if of == kind] == getattr(block, kind)


def test_an_aim_counts_the_queries_that_both_take() -> None:
    found = aims(
        {
            "q0": {"lockstep": 300, "flink_sql": 100, "structured_streaming": None},
            "q1": {"lockstep": 100, "flink_sql": 200},
        }
    )
    assert set(found) == {
        "above Flink SQL on every query",
        "3 times Flink SQL in the mean",
    }
    assert found["above Flink SQL on every query"] == {
        "target": "a ratio of 1",
        "measured": "1.22 in the geometric mean of 2 queries, 1 of them at 1 or above, least 0.50 (q1)",
        "holds": False,
    }


def test_the_engine_alone_and_all_of_lockstep_have_aims_of_their_own() -> None:
    rates = {"lockstep_engine": 9, "lockstep_decoded": 7, "spark_batch_decoded": 10}
    found = {name.split(":")[0]: aim for name, aim in aims({"q0": rates}).items()}
    assert found.keys() == {"engine alone", "with its writes"}
    assert found["engine alone"]["holds"]
    assert not found["with its writes"]["holds"]


def test_what_a_run_writes_is_told_from_what_it_works_out() -> None:
    of_tables = {"append v_changes": 0.5, "append _trace_1": 0.4}
    parts = {"read": 0.25, "operators": 0.1, "sort": 0.05, "append": 0.5, "heads": 0.125}
    assert told_apart(1.125, {**parts, **of_tables}) == ToldApart(engine=0.5, operators=0.15)
    assert told_apart(1.125, {**parts, "plans": 0.1}) is None, "Spark has worked on it"
    assert told_apart(1.125, {one: parts[one] for one in ("read", "operators", "sort")}) is None


def test_engine_and_operators_have_rates_of_their_own(tmp_path: Path) -> None:
    def recorded(engine: str, answer: Answer, checked: str) -> dict[str, int | None]:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        nexmark.record(engine, "q0", (answer, checked), (1000, 2000), path)
        found = nexmark.results.load(path)
        assert found["nexmark"]["queries"]["q0"].keys() == found["events_per_second"]["q0"].keys()
        rates: dict[str, int | None] = found["events_per_second"]["q0"]
        return rates

    answer = Answer((9.0, 2.0, 4.0), engine=(8.0, 1.0, 2.0), operators=(8.0, 0.5, 0.25))
    names = ("lockstep_decoded", "lockstep_engine", "lockstep_operators")
    # Of the best run but the cold one.
    rates = recorded(names[0], answer, "equal")
    assert rates == dict(zip(names, (500, 1000, 4000), strict=True))
    wrong = recorded(names[0], answer, "WRONG: other rows")
    assert wrong == dict.fromkeys(names)
    by_spark = recorded(names[0], Answer((9.0, 2.0)), "equal")
    assert by_spark == dict(zip(names, (500, None, None), strict=True)), "Spark has worked on it"
    assert recorded("dbsp", Answer((1.0,)), "") == {"dbsp": 1000}


@pytest.mark.parametrize(
    ("is_in_turn", "said"),
    [
        (False, "+a a1 a2 -a +b b1 b2 -b"),
        (True, "+a a1 +b b1 a2 b2 -b -a"),
    ],
)
def test_engines_are_asked_one_after_the_other_or_query_by_query(
    monkeypatch: pytest.MonkeyPatch, is_in_turn: bool, said: str
) -> None:
    place, noted = running_engines(monkeypatch, ())
    engines = [nexmark.Engine(name, place, "") for name in "ab"]
    found = [query for _, query, _ in nexmark.asked_of(engines, "12", is_in_turn)]
    assert " ".join(noted) == said
    assert found == (["1", "1", "2", "2"] if is_in_turn else ["1", "2", "1", "2"])


def test_an_engine_whose_process_ends_is_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    place, noted = running_engines(monkeypatch, ("a2",))
    found = nexmark.asked_of([nexmark.Engine("a", place, "")], "123", is_in_turn=False)
    assert [answer.failed for _, _, (answer, _) in found] == ["", "a2 ended", ""]
    assert " ".join(noted) == "+a a1 a2 -a +a a3 -a"


def running_engines(
    monkeypatch: pytest.MonkeyPatch, ending: tuple[str, ...]
) -> tuple[Any, list[str]]:
    """Engines that note when they begin, what they are asked, and when they end."""
    noted: list[str] = []

    @contextmanager
    def opened(engine: str, place: Any, namespace: str) -> Iterator[Any]:
        del place, namespace

        def ask(query: str) -> Any:
            noted.append(engine + query)
            if engine + query in ending:
                raise RuntimeError(f"{engine}{query} ended")
            return Answer((1.0,)), ""

        noted.append(f"+{engine}")
        yield ask
        noted.append(f"-{engine}")

    monkeypatch.setattr(nexmark, "opened", opened)
    return None, noted
