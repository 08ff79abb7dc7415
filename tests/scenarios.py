"""Runs the scenarios that come with mirrortest, each at a small size: `make scenarios`.

``python -m tests.scenarios [NAME...] [--output DIR]``; without names, all of them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from mirrortest.scenario import catalogue

_BRIEF = ("produce.duration=30s",)
_FEW = ("produce.num-records=20000", "vary.repeats=1")

SMALL: dict[str, tuple[str, ...]] = {
    "kill-source-broker": (*_BRIEF, "fault.until=30s"),
    "kill-destination-broker": (*_BRIEF, "fault.until=30s"),
    "restart-mirror": (*_BRIEF, "fault.until=20s"),
    "freeze-mirror": (*_BRIEF, "fault.for=10s"),
    "slow-link": (*_BRIEF, "fault.for=10s"),
    "cut-link": ("produce.duration=40s", "fault.for=6s"),
    "shrink-clusters": ("produce.duration=45s",),
    "mirror-workers": (),
    "random-faults": (*_BRIEF, "plan.until=30s"),
    "producers-alone": (
        *_FEW,
        "produce.warmup-records=2000",
        'vary.produce={ topics = ["load", "load[1-4]"], batch-messages = [1, 100] }',
    ),
    "consumers-alone": (*_FEW, 'vary.produce={ topics = ["load", "load[1-4]"] }'),
    "one-pair": (*_FEW, 'vary.produce={ topics = ["load", "load[1-4]"] }'),
    "one-pair-cold": _FEW,
    "several-groups": _BRIEF,
    "matrix": (*_FEW, 'vary.produce={ acks = ["1", "all"], compression = ["none", "lz4"] }'),
    "latency-at-rates": (
        *_BRIEF,
        "vary.repeats=1",
        "vary.produce={ throughput = [100, 2000] }",
    ),
}
"""The settings that make each scenario small; the others get `_BRIEF`."""


def command(name: str, output: Path) -> list[str]:
    """The command that runs a scenario at a small size."""
    changes = [word for each in SMALL.get(name, _BRIEF) for word in ("--set", each)]
    words = ["-m", "mirrortest", "run", name, "--output", str(output / name), *changes]
    return [sys.executable, *words]


def main() -> int:
    """Run them one after the other; return how many did not end as expected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--output", type=Path, default=Path("build/scenarios"))
    asked = parser.parse_args()
    known = [each.name for each in catalogue.shipped()]
    failed = []
    for name in asked.names or known:
        sys.stdout.write(f"== {name}\n")
        sys.stdout.flush()
        if subprocess.run(command(name, asked.output), check=False).returncode:
            failed.append(name)
    sys.stdout.write(f"not as expected: {', '.join(failed) or 'none'}\n")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
