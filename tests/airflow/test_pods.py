"""The template of an executor's pod, as Spark reads it: a user's own wishes, and the layout's."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyspark
import pytest
import yaml
from airflow_fakes import job

from lockstep.adapters.pods import placed_template
from lockstep.adapters.settings import Settings
from lockstep.adapters.submit import POD_TEMPLATE, SubmitArguments, SubmitEngine
from lockstep.control.job import Placement
from lockstep.control.ports import Progress
from lockstep.errors import EngineFailed, WrongUse

USERS = """\
apiVersion: v1
kind: Pod
spec:
  tolerations: [{key: spot, operator: Exists}]
  affinity:
    nodeAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 7
          preference: {matchExpressions: [{key: disk, operator: In, values: [fast]}]}
"""
READER = """\
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.utils.Serialization;
import java.nio.file.*;
class Reader {
  public static void main(String[] files) throws Exception {
    var pod = Serialization.unmarshal(Files.readString(Path.of(files[0])), Pod.class);
    var affinity = pod.getSpec().getAffinity();
    for (var wish : affinity.getNodeAffinity().getPreferredDuringSchedulingIgnoredDuringExecution()) {
      var named = wish.getPreference().getMatchExpressions().get(0);
      System.out.println(wish.getWeight() + " " + named.getValues());
    }
    for (var wish : affinity.getPodAntiAffinity().getPreferredDuringSchedulingIgnoredDuringExecution()) {
      var term = wish.getPodAffinityTerm();
      System.out.println(term.getTopologyKey() + " " + term.getLabelSelector().getMatchLabels());
    }
  }
}
"""


@pytest.fixture
def template(tmp_path: Path) -> Path:
    file = tmp_path / "pod.yml"
    file.write_text(USERS)
    return file


@pytest.mark.spark
def test_what_spark_reads_has_the_users_wishes_and_the_layouts(
    template: Path, tmp_path: Path
) -> None:
    placed, reader = tmp_path / "placed.yml", tmp_path / "Reader.java"
    placed.write_text(placed_template(template, ["node-a", "node-b"]))
    reader.write_text(READER)
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    command = ["java", "-cp", str(jars), str(reader), str(placed)]
    read = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert read.stdout.splitlines() == [
        "7 [fast]",
        "100 [node-a, node-b]",
        "kubernetes.io/hostname {spark-role=executor}",
    ]
    assert yaml.safe_load(placed.read_text())["spec"]["tolerations"] == [
        {"key": "spot", "operator": "Exists"}
    ]


def test_a_job_under_a_layout_carries_it(template: Path) -> None:
    given: list[Mapping[str, str]] = []

    def launch(arguments: SubmitArguments, _: Progress) -> str:
        named = arguments.conf.get(POD_TEMPLATE)
        given.append(yaml.safe_load(Path(named).read_text()) if named else {})
        return ""

    settings = replace(Settings.load({}), pod_template=str(template))
    placement = Placement(2, (0, 1), ("node-a", "node-b"))
    for one, place in ((settings, placement), (settings, None), (Settings.load({}), placement)):
        with pytest.raises(EngineFailed):
            SubmitEngine(one, launch, list).run(replace(job(), placement=place), print)
    assert [bool(pod) for pod in given] == [True, False, False]
    assert given[0] == yaml.safe_load(placed_template(template, placement.hosts))


@pytest.mark.parametrize("text", [None, "", "a: [", "kind: Deployment"])
def test_what_is_no_template_is_refused(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "none.yml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(WrongUse, match="no template") as refused:
        placed_template(file, ["a"])
    assert str(file) in refused.value.expected
