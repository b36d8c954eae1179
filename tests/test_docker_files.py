"""The compose file names only what there is; no image is built and no container started here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lockstep.adapters.catalogs import catalog_settings
from lockstep.adapters.embedded.connect import JAVA_OPTIONS, SERVER, program
from lockstep.adapters.jars import locked_jars
from lockstep.adapters.settings import Settings
from lockstep.errors import WrongUse

FOLDER = Path(__file__).parents[1] / "docker"


@pytest.fixture
def compose() -> dict[str, Any]:
    """The compose file as its reader sees it."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    return found


def test_services_depend_on_services_and_use_declared_volumes(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= set(services), name
        assert set(service["networks"]) <= set(compose["networks"]), name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (FOLDER / source).exists(), volume
            else:
                assert source in compose["volumes"], volume


def test_variables_are_settings_and_hosts_are_services(compose: dict[str, Any]) -> None:
    environment = compose["services"]["airflow-scheduler"]["environment"]
    found = Settings.load(environment)
    assert found.kafka == "kafka:9092"
    assert found.warehouse == "file:///warehouse"
    known = {f"LOCKSTEP_{name.upper()}" for name in Settings.__dataclass_fields__}
    assert {name for name in environment if name.startswith("LOCKSTEP_")} <= known
    addresses = (found.store_url, found.catalog_uri, found.kafka, found.spark_remote)
    for address in (*addresses, found.spark_master, found.airflow_url):
        host = address.split("://")[-1].rpartition("@")[2].split(":")[0].split("/")[0]
        assert host in compose["services"], address


def test_every_asked_variable_is_in_the_example() -> None:
    text = (FOLDER / "compose.yaml").read_text()
    asked = set(re.findall(r"\$\{(\w+)(?::\?[^}]*)?\}", text))
    example = dict(
        line.split("=")
        for line in (FOLDER / ".env.example").read_text().splitlines()
        if not line.startswith("#")
    )
    assert asked == set(example)
    assert set(example.values()) == {""}


def test_image_copies_what_exists_and_the_script_is_bash() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        *sources, _ = line.split()
        for source in sources:
            assert (FOLDER.parent / source).exists(), line
    subprocess.run(["bash", "-n", FOLDER / "spark.sh"], check=True)


def test_what_the_page_runs_in_a_service_is_there(compose: dict[str, Any]) -> None:
    """A project's script is among the files that are copied, and asks the compose file's broker."""
    page = (FOLDER / "README.md").read_text()
    ran = re.findall(r"^    docker compose exec (\S+) (.*)$", page, re.MULTILINE)
    assert {service for service, _ in ran} <= set(compose["services"])
    copied = dict(re.findall(r"docker compose cp (\S+) \S+?:(\S+)", page))
    (example,) = copied
    scripts = [line.split() for _, line in ran if line.startswith("python ")]
    assert [words[2:4] for words in scripts] == [["--bootstrap", "kafka:9092"]] * 2
    for _, script, *_ in scripts:
        assert (FOLDER / example / script.removeprefix(f"{copied[example]}/")).exists(), script


def test_the_keys_of_object_storage_make_a_catalog(tmp_path: Path) -> None:
    """All that are needed, as with any of them the installation's own catalog is not read."""
    (block,) = re.findall(r"```yaml\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    keys = yaml.safe_load(block)["configuration"]
    settings = Settings.load({"LOCKSTEP_HOME": str(tmp_path), "LOCKSTEP_WAREHOUSE": "s3://other"})
    found = catalog_settings("lake", "shop", keys, settings)
    for one in (found.spark, found.pyiceberg):
        assert one["warehouse"] == "s3://BUCKET/warehouse"
        assert one["s3.endpoint"] == "https://STORAGE"
    assert found.spark["uri"] == "jdbc:postgresql://postgres:5432/catalog"
    assert found.spark["io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"
    assert found.spark["client.region"] == "REGION"
    missing = {name: value for name, value in keys.items() if not name.endswith("warehouse")}
    with pytest.raises(WrongUse, match=r"catalog\.warehouse is missing"):
        catalog_settings("lake", "shop", missing, settings)


def test_the_jar_of_object_storage_is_of_the_locked_iceberg_and_goes_to_spark() -> None:
    page = (FOLDER / "README.md").read_text()
    (address, folder) = re.findall(r"^ADD --chmod=644 (\S+) \\\n +(\S+)$", page, re.MULTILINE)[0]
    locked = {jar.artifact: jar for jar in locked_jars("spark")}
    assert not [name for name in locked if "aws" in name]
    version = locked["iceberg-spark-runtime-4.1_2.13"].version
    assert address.endswith(f"/iceberg-aws-bundle/{version}/iceberg-aws-bundle-{version}.jar")
    (spark_home,) = re.findall(r"SPARK_HOME=(\S+)", (FOLDER / "Dockerfile").read_text())
    assert folder == f"{spark_home}/jars/"


def test_the_server_in_a_container_is_set_as_the_one_of_up(tmp_path: Path) -> None:
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    submit.chmod(0o755)
    python = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    found = subprocess.run(
        ["bash", FOLDER / "spark.sh", "connect"],
        env={**os.environ, "PATH": python, "SPARK_HOME": str(tmp_path), "SPARK_MASTER": "m"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    given = dict(found[n + 1].split("=", 1) for n, word in enumerate(found) if word == "--conf")
    assert SERVER.items() <= given.items()
    assert given["spark.driver.extraJavaOptions"] == JAVA_OPTIONS
    assert found[-1] == str(program())
