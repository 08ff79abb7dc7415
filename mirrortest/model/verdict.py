"""How a run ended: the three verdicts, and every exit code of a process."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class ExitCode(IntEnum):
    """The exit codes; `killed` returns those of signals."""

    PASSED = 0
    ERROR = 1
    """The command could not do its work."""
    USAGE = 2
    """An option, an argument or a file from the user is wrong."""
    INCONCLUSIVE = 3
    FAILED = 99
    """A threshold or a correctness check failed."""

    @staticmethod
    def killed(signal_number: int) -> int:
        """The exit code of a process that a signal ended, as shells report it."""
        return 128 + signal_number


class Verdict(StrEnum):
    """How a run ended."""

    PASSED = "passed"
    INCONCLUSIVE = "inconclusive"
    FAILED = "failed"

    @property
    def exit_code(self) -> int:
        """The process's exit code."""
        return ExitCode[self.name].value

    @classmethod
    def of(cls, *, failed: bool, inconclusive: bool) -> Verdict:
        """The verdict: failed wins over inconclusive, and inconclusive over passed."""
        if failed:
            return cls.FAILED
        return cls.INCONCLUSIVE if inconclusive else cls.PASSED
