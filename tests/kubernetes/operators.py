"""The operators' kinds, without the operators: the API server checks objects against them."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.tools import ToolMissingError, golang

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kubernetes.kube import Kube

MODULE = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
PROMETHEUS = ("podmonitors", "servicemonitors", "prometheusrules")
SPARK = "sparkapplications.sparkoperator.k8s.io"


@contextmanager
def operators(kube: Kube) -> Iterator[None]:
    """Add the Prometheus operator's kinds and SparkApplication, and remove them afterwards.

    Kinds that the cluster had before stay. Skips if the Prometheus operator's are unavailable.
    """
    wanted = {f"{name}.monitoring.coreos.com": name for name in PROMETHEUS}
    missing = [name for name in (*wanted, SPARK) if not kube.exists("crd", name)]
    definitions = [_spark() if name == SPARK else _prometheus(wanted[name]) for name in missing]
    try:
        for each in definitions:
            kube.kubectl("create", "-f", "-", given=json.dumps(each))
        for name in missing:
            kube.kubectl("wait", "crd", name, "--for=condition=Established", "--timeout=60s")
        yield
    finally:
        for name in missing:
            kube.kubectl("delete", "crd", name, "--ignore-not-found", "--timeout=60s")


def _prometheus(name: str) -> dict[str, Any]:
    """The definition in the operator's own sources, from Go's module proxy."""
    try:
        folder = golang.sources(MODULE) / "example" / "prometheus-operator-crd"
    except ToolMissingError as error:
        pytest.skip(f"the cluster has none of the Prometheus operator's kinds: {error}")
    read: dict[str, Any] = yaml.safe_load(
        (folder / f"monitoring.coreos.com_{name}.yaml").read_text()
    )
    return read


def _spark() -> dict[str, Any]:
    """The kind without a schema: tests/chart check its content by the operator's own model."""
    plural, group = SPARK.split(".", 1)
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": SPARK,
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test's"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": "SparkApplication"},
            "versions": [
                {
                    "name": "v1beta2",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": anything},
                }
            ],
        },
    }
