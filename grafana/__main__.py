"""``python -m grafana``: write the dashboards and the alerts; ``--check``: only compare."""

from __future__ import annotations

import sys

from grafana.written import ROOT, files


def main() -> int:
    """Write, or tell what is not as the code says; the exit code."""
    check = "--check" in sys.argv[1:]
    stale = 0
    for path, text in files().items():
        place = ROOT / path
        if place.exists() and place.read_text() == text:
            continue
        stale += 1
        told = "not as the code says: run python -m grafana" if check else "written"
        sys.stdout.write(f"{path}: {told}\n")
        if not check:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
    return int(check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
