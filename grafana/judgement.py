"""What several dashboards and alerts ask of the judgement: findings and totals of whole runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.metrics import names
from mirrortest.model.findings import NO_STREAM, Finding, failing

if TYPE_CHECKING:
    from grafana.promql import Scope

_FAILING = failing(exactly_once=False)
WRONG = "~" + "|".join(each.label for each in _FAILING if each is not Finding.LOST)
"""What fails a run by default, but for losses."""
FAILING = "~" + "|".join(each.label for each in _FAILING)
"""What fails a run by default."""
EXACTLY_ONCE = "~" + "|".join(
    each.label for each in failing(exactly_once=True) if each not in _FAILING
)
"""What fails a run only where that is asked for."""
NOT_JUDGED = "~" + "|".join(each.label for each in Finding if each & NO_STREAM)
"""Messages that are none of the run's."""
WRONG_IN_WORDS = ", ".join(
    each.label.replace("_", " ") for each in _FAILING if each is not Finding.LOST
)
SINCE = "intended"
QUANTILES = (0.5, 0.9, 0.99, 0.999)


def found(scope: Scope, labels: str, finding: str) -> str:
    """Messages with a finding: each consumer tells of the whole run, so the most is taken."""
    each = f"{labels}, topic, finding" if labels else "topic, finding"
    worst = scope.by("max", each, scope.one(names.CONSUMER_FINDINGS, finding=finding))
    return f"sum by ({labels}) ({worst})" if labels else f"sum ({worst})"


def whole(scope: Scope, labels: str, expression: str) -> str:
    """A gauge that tells of the whole run, added up over its topics."""
    return f"sum by ({labels}) ({scope.by('max', f'{labels}, topic', expression)})"
