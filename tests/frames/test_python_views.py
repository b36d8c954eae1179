"""Views in Python without Spark: what SQL they become, and that it has the plan of the SQL view."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from frame_views import CORPUS, each_project, each_view, made_corpus

from lockstep.adapters.python_views import with_python_views
from lockstep.errors import NotSupported, ProjectError
from lockstep.sql.circuit import ProjectFiles
from lockstep.sql.incremental import build_circuit
from lockstep.sql.project import parse_project, read_project_files

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "golden" / "frames"
NEXMARK = HERE.parents[1] / "examples" / "nexmark"
SPEC = (CORPUS / "spark-pipeline.yml").read_text("utf-8")
TABLES = (CORPUS / "transformations" / "tables.sql").read_text("utf-8")
HEAD = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

spark = SparkSession.active()


"""


def project(folder: Path, **files: str) -> ProjectFiles:
    """A project of the corpus's tables and of files by stem (`a_sql` is a.sql, `a` is a.py)."""
    below = folder / "transformations"
    below.mkdir()
    (folder / "spark-pipeline.yml").write_text(SPEC, "utf-8")
    (below / "tables.sql").write_text(TABLES, "utf-8")
    for name, text in files.items():
        file = f"{name.removesuffix('_sql')}.sql" if name.endswith("_sql") else f"{name}.py"
        (below / file).write_text(text, "utf-8")
    return read_project_files(folder)


def check_golden(name: str, text: str) -> None:
    """`GOLDEN_UPDATE=1 pytest tests/frames` writes the files anew; they are read in review."""
    if os.environ.get("GOLDEN_UPDATE"):
        (GOLDEN / name).write_text(text, "utf-8")
    assert text == (GOLDEN / name).read_text("utf-8")


def test_sql_of_the_corpus() -> None:
    files, _ = made_corpus()
    check_golden("views.py.sql", dict(files.files)["transformations/views.py.sql"])


def test_every_view_of_the_corpus_has_a_circuit() -> None:
    _, corpus = made_corpus()
    assert len(corpus.views) == 86
    assert build_circuit(corpus).operators


def test_nexmark_in_python_has_the_plans_of_nexmark_in_sql(tmp_path: Path) -> None:
    folder = tmp_path / "nexmark"
    shutil.copytree(NEXMARK, folder)
    shutil.copy(HERE / "nexmark_views.py", folder / "transformations" / "frames.py")
    variables = {"lockstep.kafka": "127.0.0.1:9"}
    files = with_python_views(read_project_files(folder), variables)
    plans = {view.name: view for view in parse_project(files, variables).views}
    frames = [name for name in plans if name.startswith("frame_")]
    assert len(frames) == 13
    for name in frames:
        by_sql = plans[name.removeprefix("frame_")]
        assert (plans[name].plan, plans[name].columns) == (by_sql.plan, by_sql.columns), name


def test_views_in_sql_and_in_python_read_each_other(tmp_path: Path) -> None:
    python = (
        f"{HEAD}@dp.materialized_view\ndef second():\n"
        '    return spark.read.table("lake.corpus.first").withColumn("m", F.col("n") + 1)\n'
    )
    sql = (
        "CREATE TEMPORARY VIEW first AS SELECT a, count(*) AS n FROM t GROUP BY a;\n"
        "CREATE MATERIALIZED VIEW third AS SELECT a, m FROM second;\n"
    )
    files = with_python_views(project(tmp_path, views=python, others_sql=sql), {})
    found = {view.name: view.columns for view in parse_project(files, {}).views}
    assert found == {"first": ("a", "n"), "second": ("a", "n", "m"), "third": ("a", "m")}


def test_what_is_recorded_is_the_same_each_time_and_needs_no_python(tmp_path: Path) -> None:
    python = (
        f'{HEAD}@dp.materialized_view(name="w", comment="it\'s")\ndef _():\n'
        '    one = spark.read.table("t").filter(F.col("c").isin({"x", "y", "z"}))\n'
        '    return one.select(F.transform("arr", lambda x: x + 1).alias("l"))\n'
    )
    files = project(tmp_path, views=python)
    once, again = with_python_views(files, {}), with_python_views(files, {})
    assert once == again
    assert once.written == files.files
    assert with_python_views(once, {}) == once
    names = [name for name, _ in once.files]
    assert names == [
        f"transformations/{name}" for name in ("tables.sql", "views.py", "views.py.sql")
    ]
    shutil.rmtree(tmp_path / "transformations")
    assert [view.name for view in parse_project(once, {}).views] == ["w"]
    with pytest.raises(ProjectError) as caught:
        parse_project(files, {})
    assert str(caught.value) == (
        "transformations/views.py:1:1: the views of a Python file have not been made into SQL\n"
        "  expected: transformations/views.py.sql beside it, which `lockstep deploy` records\n"
        "  found: transformations/views.py"
    )


def test_a_file_without_views_is_only_executed(tmp_path: Path) -> None:
    files = project(tmp_path, helper="x = 1\n", w_sql="CREATE VIEW w AS SELECT a FROM t;")
    assert [view.name for view in parse_project(with_python_views(files, {}), {}).views] == ["w"]


def test_refusals(tmp_path: Path) -> None:
    """Each function has an error, at the line of it that is wrong where that is known."""
    text = (HERE / "refused_views.py").read_text("utf-8")
    project(tmp_path, views=text)
    lines, said = text.splitlines(), []
    for name, error in each_view(tmp_path).items():
        file, line, rest = error.split(":", 2)
        assert file == "transformations/views.py", name
        said.append(f"{name}: {lines[int(line) - 1].strip()}\n{rest.split(': ', 1)[1]}\n")
    check_golden("refused.txt", "\n".join(said))


WRONG_FILES = {
    "syntax": ("def (", "transformations/views.py:1:5: transformations/views.py can't be executed"),
    "raises": (
        f"{HEAD}@dp.materialized_view\ndef w():\n    one = {{}}\n    return one['key']\n",
        "transformations/views.py:11:1: the function of the view w ended with an error\n"
        "  found: KeyError: 'key'",
    ),
    "no frame": (
        f"{HEAD}@dp.materialized_view\ndef w():\n    return 3\n",
        "transformations/views.py:8:1: the function of the view w returns no DataFrame",
    ),
    "streaming table": (
        f'{HEAD}@dp.table\ndef w():\n    return spark.readStream.table("t")\n',
        "transformations/views.py:8:1: the streaming table w is not supported\n"
        "  expected: @dp.materialized_view or @dp.temporary_view on a function that returns a "
        "DataFrame\n  found: @dp.table\n  next: write @dp.materialized_view, and read its inputs "
        "with spark.read.table: the view is kept up to date by their changes",
    ),
    "flow": (
        f'{HEAD}@dp.append_flow(target="w")\ndef f():\n    return spark.readStream.table("t")\n',
        "transformations/views.py:8:1: the flow 'f' into 'w' is not supported",
    ),
    "sink": (
        f'{HEAD}dp.create_sink("k", "kafka", {{"topic": "x"}})\n',
        "transformations/views.py:8:1: the sink k in Python is not supported",
    ),
    "partitions": (
        f'{HEAD}@dp.materialized_view(partition_cols=["a"])\ndef w():\n    return spark.table("t")\n',
        "transformations/views.py:8:1: partition_cols of the view w is not supported",
    ),
    "name of a source": (
        f'{HEAD}@dp.materialized_view\ndef T():\n    return spark.table("u")\n',
        "transformations/views.py:8:1: the view 'T' has the name of the source",
    ),
    "twice": (
        HEAD + '@dp.materialized_view\ndef w():\n    return spark.table("u")\n' * 2,
        "transformations/views.py:11:1: the view 'w' is declared twice",
    ),
    "cycle": (
        f'{HEAD}@dp.temporary_view\ndef p():\n    return spark.table("q")\n\n\n'
        '@dp.materialized_view\ndef q():\n    return spark.table("p")\n',
        "transformations/views.py:8:1: the view 'p' needs itself\n  expected: views that read sources "
        "and other views, without a cycle\n  found: p reads q reads p",
    ),
}


def test_files_that_declare_no_views_that_can_be(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in WRONG_FILES]
    for folder, (text, _) in zip(folders, WRONG_FILES.values(), strict=True):
        folder.mkdir()
        project(folder, views=text)
    said = dict(zip(WRONG_FILES, each_project(folders), strict=True))
    for name, (_, expected) in WRONG_FILES.items():
        kind, text = said[name]
        assert text.startswith(expected), name
        assert (kind == "NotSupported") == ("not supported" in expected), name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "import sys\nsys.exit(3)",
            "transformations/views.py:1:1: the project's Python code ended the process that ran it",
        ),
        (
            f"{HEAD}@dp.table\ndef w():\n    return spark.table('t')\n",
            "transformations/views.py:8:1: the streaming table w is not supported",
        ),
    ],
)
def test_errors_come_out_of_the_process(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ProjectError) as caught:
        with_python_views(project(tmp_path, views=text), {})
    assert str(caught.value).startswith(expected)
    assert isinstance(caught.value, NotSupported) == ("not supported" in expected)
