"""Wrong values of the chart."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.chart.rendering import refusal, values_of

if TYPE_CHECKING:
    from tests.chart.conftest import Helm

pytestmark = pytest.mark.chart


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"global": {"imageRegistry": 5}}, "global.imageRegistry: .*string"),
        (
            {"global": {"imagePullSecrets": [{"nam": "x"}]}},
            r"imagePullSecrets.0: .*\bnam\b.* not allowed",
        ),
        ({"image": {"digest": "0123"}}, "image.digest: .*not match"),
        ({"image": {"registry": "https://r.example"}}, "image.registry: .*not match"),
        ({"hostAliases": [{"ip": "10.0.0.1"}]}, "hostAliases.0: .*hostnames"),
        ({"dnsConfig": []}, "dnsConfig: .*object"),
        ({"producers": {"initContainers": {}}}, "producers.initContainers: .*array"),
        (
            {"producers": {"updateStrategy": {"type": "Recreate"}}},
            "updateStrategy.type: .*OnDelete",
        ),
        ({"producers": {"annotations": {"a": 1}}}, "producers.annotations.a: .*string"),
        ({"monitoring": {"podMonitor": {"interval": "often"}}}, "podMonitor.interval: .*not match"),
        ({"monitoring": {"podMonitor": {"scrapeTimeout": "10"}}}, "scrapeTimeout: .*not match"),
        (
            {"monitoring": {"podMonitor": {"relabelings": [{"action": "rename"}]}}},
            "relabelings.0.action: .*labelmap",
        ),
        (
            {"monitoring": {"podMonitor": {"metricRelabelings": [{"source": "a"}]}}},
            "metricRelabelings.0: .*source.* not allowed",
        ),
        ({"monitoring": {"podMonitor": {"podTargetLabels": "team"}}}, "podTargetLabels: .*array"),
        ({"monitoring": {"podMonitor": {"sampleLimit": -1}}}, "sampleLimit: .* 0"),
        ({"monitoring": {"podMonitor": {"honorLabels": "yes"}}}, "honorLabels: .*boolean"),
        ({"monitoring": {"podMonitor": {"jobLabel": 1}}}, "jobLabel: .*string"),
        (
            {"monitoring": {"prometheusRule": {"limits": {"latency": "30s"}}}},
            "limits.latency: .*number",
        ),
        (
            {"monitoring": {"prometheusRule": {"limits": {"patience": 60}}}},
            "limits.patience: .*string",
        ),
        (
            {"monitoring": {"prometheusRule": {"limits": {"loss": 1}}}},
            "limits: .*loss.* not allowed",
        ),
        (
            {"monitoring": {"prometheusRule": {"disabled": {"MirrortestLos": True}}}},
            r"(?i)property ?name.*MirrortestLos\b",
        ),
        (
            {"monitoring": {"prometheusRule": {"customRules": {"MirrortestLoss": {"fr": "1m"}}}}},
            r"customRules.MirrortestLoss: .*\bfr\b.* not allowed",
        ),
        (
            {"monitoring": {"prometheusRule": {"keepFiringFor": "long"}}},
            "keepFiringFor: .*not match",
        ),
        (
            {"monitoring": {"prometheusRule": {"additionalRuleLabels": {"a": 1}}}},
            "additionalRuleLabels.a: .*string",
        ),
        (
            {"monitoring": {"prometheusRule": {"extraRules": [{"alert": "A"}]}}},
            "extraRules.0: .*expr",
        ),
        (
            {"monitoring": {"prometheusRule": {"extraRules": [{"expr": "1"}]}}},
            "extraRules.0: .*alert",
        ),
    ],
)
def test_wrong_values_are_refused(helm: Helm, wrong: dict[str, Any], expected: str) -> None:
    """The schema rejects wrong values before anything is installed; the message names the value."""
    assert re.search(expected, refusal(helm, *values_of(wrong)))
