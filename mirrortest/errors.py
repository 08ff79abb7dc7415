"""Every error that mirrortest raises on purpose.

::

    MirrortestError                 exit code 1
    ├── UsageError                  2: an option, a file or an argument is wrong
    ├── ClusterError                1: a Kafka cluster cannot be reached, or refuses a request
    │   ├── UnreachableError
    │   ├── TopicMissingError
    │   ├── TopicReplacedError
    │   └── PartitionCountError
    ├── FencedError                 1: another incarnation or consumer took over
    ├── SequenceLogError            1: a sequence log cannot be read or written
    ├── JavaMissingError            1: no Java runtime is new enough
    ├── LabError                    1: a part of the lab did not start, or died
    ├── WorkerError                 1: one of a command's processes died
    ├── InstallationError           1: an installed file is missing, or is of other sources
    └── InterruptedRunError         128 + the signal's number: a second signal ended the run at once

Each error's text is one line for the user: what is wrong, and what to do.
"""

from __future__ import annotations

from mirrortest.model.verdict import ExitCode


class MirrortestError(Exception):
    """The base of all errors; its text is one line for the user."""

    exit_code: int = ExitCode.ERROR.value


class UsageError(MirrortestError):
    """An option, an argument or a file given by the user is wrong."""

    exit_code = ExitCode.USAGE.value


class ClusterError(MirrortestError):
    """A Kafka cluster cannot be reached or refuses a request."""


class UnreachableError(ClusterError):
    """No bootstrap server of a cluster answers; the text names their addresses."""


class TopicMissingError(ClusterError):
    """A topic does not exist; the text names it and how to create it."""


class TopicReplacedError(ClusterError):
    """A topic no longer contains what was read from it: it was recreated or truncated."""


class PartitionCountError(ClusterError):
    """A topic's partition count does not fit the request."""


class FencedError(MirrortestError):
    """Another incarnation or consumer fences this one."""


class SequenceLogError(MirrortestError):
    """A sequence log cannot be read or written."""


class JavaMissingError(MirrortestError):
    """No Java runtime is new enough; the text says what to install."""


class LabError(MirrortestError):
    """A part of the lab did not start or died; the text ends with its log's last lines."""


class WorkerError(MirrortestError):
    """One of a command's worker processes died; the text says which and how."""


class InstallationError(MirrortestError):
    """An installed file is missing, or compiled from other sources; the text says what to do."""


class InterruptedRunError(MirrortestError):
    """A second signal ended the run before its drain was complete; `number` is the signal's."""

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)
        self.exit_code = ExitCode.killed(number)
