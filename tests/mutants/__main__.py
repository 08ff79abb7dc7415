"""`python -m tests.mutants --count 1000000`: no changed record may raise, or change others.

Each mutant has its own seed, `SEED/NUMBER`, which is printed if it fails.
"""

from __future__ import annotations

import argparse
import sys
import time

from rich.console import Console

from .readers import READERS
from .tally import Tally, read

_OUT = Console(soft_wrap=True, markup=False, highlight=False)


def main() -> int:
    """Read `--count` mutants, of all kinds in turn; returns 1 if one raised."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="how many in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=list(READERS), help="of one kind alone")
    parser.add_argument("--number", type=int, help="one mutant, as a failure named it")
    options = parser.parse_args()
    kinds = [options.kind] if options.kind else list(READERS)
    if options.number is not None:
        for kind in kinds:
            read(kind, options.seed, options.number)
        return 0
    tally, began = Tally(), time.monotonic()
    for number in range(options.count):
        kind = kinds[number % len(kinds)]
        try:
            tally.add(kind, understood=read(kind, options.seed, number))
        except Exception as error:  # noqa: BLE001  # any exception is a failure
            tally.fail(kind, error)
            if tally.failed <= 5:
                _OUT.print_exception()
                _OUT.print(f"--kind '{kind}' --seed {options.seed} --number {number}")
    _OUT.print(tally.table())
    _OUT.print(
        f"{options.count:,} mutants in {time.monotonic() - began:.0f} s: {tally.failed:,} raised"
    )
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
