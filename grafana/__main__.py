"""``python -m grafana``: write the dashboards and the alerts; ``--check``: only compare."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from grafana.links import Addresses
from grafana.written import ROOT, files


def main(arguments: list[str] | None = None) -> int:
    """Write, or report what is not as the code says; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m grafana", description="Dashboards and alerts.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on differences")
    parser.add_argument(
        "--output", type=Path, default=ROOT, help="folder to write below; default: the repository"
    )
    parser.add_argument(
        "--grafana-url", default=Addresses.grafana, help="Grafana's address (default: %(default)s)"
    )
    parser.add_argument(
        "--runbook-url",
        default=Addresses.runbook,
        help="address of a runbook, with {alert} for its name; default: the dashboard Runbooks",
    )
    options = parser.parse_args(arguments)
    try:
        addresses = Addresses(options.grafana_url, options.runbook_url)
    except ValueError as error:
        parser.error(str(error))
    stale = 0
    for path, text in files(addresses).items():
        place = options.output / path
        if place.exists() and place.read_text() == text:
            continue
        stale += 1
        note = "not as the code says: run python -m grafana" if options.check else "written"
        sys.stdout.write(f"{path}: {note}\n")
        if not options.check:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
    return int(options.check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
