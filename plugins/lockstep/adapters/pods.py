"""A hint for Kubernetes: executors on the layout's hosts, one on each, where they fit.

Spark has no setting for it but the template of an executor's pod
(https://spark.apache.org/docs/latest/running-on-kubernetes.html#pod-template). Tasks hold no state
between intervals, so a wish is enough: an executor that finds no room there runs elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from lockstep.errors import WrongUse

__all__ = ["placed_template"]

HOST_LABEL = "kubernetes.io/hostname"
"""What a node is called: the same name as the layout's host."""

WISHED = "preferredDuringSchedulingIgnoredDuringExecution"
ON_A_HOST, APART = 100, 50
"""How much the two wishes count beside others, of 1 to 100."""


def placed_template(file: Path, hosts: Sequence[str]) -> str:
    """The template in the file, YAML, with the wishes added to those that it has. Raises WrongUse where
    the file is no template of a pod."""
    template = _read(file)
    affinity = _inner(_inner(template, "spec"), "affinity")
    named = {"key": HOST_LABEL, "operator": "In", "values": list(hosts)}
    on_a_host = {"weight": ON_A_HOST, "preference": {"matchExpressions": [named]}}
    others = {"labelSelector": {"matchLabels": {"spark-role": "executor"}}}
    apart = {"weight": APART, "podAffinityTerm": {**others, "topologyKey": HOST_LABEL}}
    for kind, wish in (("nodeAffinity", on_a_host), ("podAntiAffinity", apart)):
        wishes = _inner(affinity, kind)
        wishes[WISHED] = [*(wishes.get(WISHED) or ()), wish]
    return yaml.safe_dump(template, sort_keys=False)


def _read(file: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise _wrong(file, str(error)) from error
    if not isinstance(found, Mapping) or found.get("kind") != "Pod":
        raise _wrong(file, f"{found!r:.100}")
    return dict(found)


def _inner(within: dict[str, Any], name: str) -> dict[str, Any]:
    """The mapping of that name, made where there is none."""
    within[name] = dict(within.get(name) or {})
    inner: dict[str, Any] = within[name]
    return inner


def _wrong(file: Path, found: str) -> WrongUse:
    return WrongUse(
        "there is no template of an executor's pod",
        expected=f"YAML of a Kubernetes Pod in {file}, which LOCKSTEP_POD_TEMPLATE names",
        found=found,
        next_step="write `apiVersion: v1` and `kind: Pod` to it, or unset the variable",
    )
