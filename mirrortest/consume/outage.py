"""Outages of a cluster during a run: logged once, waited for, and logged when over."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import structlog

from mirrortest.kafka.error_table import TRANSIENT_ERRORS
from mirrortest.results.words import times_and_duration

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

T = TypeVar("T")
P = ParamSpec("P")

_log = structlog.get_logger()

_RETRY_SECONDS = 1.0
_PATIENCE_SECONDS = 5.0


class Outage:
    """Whether a cluster, called `place` in messages, answers at the moment.

    `on_attempt` is called after each request, whether it was answered or not.
    """

    def __init__(
        self,
        place: str,
        wall_ns: Callable[[], int] = time.time_ns,
        *,
        on_attempt: Callable[[], None] = lambda: None,
    ) -> None:
        self._place = place
        self._on_attempt = on_attempt
        self._wall_ns = wall_ns
        self._began: float | None = None
        self.why = ""
        """The last request's error; empty while the cluster answers."""
        self._since = ""
        self._times = 0
        self._seconds = 0.0
        """The total time of the outages that are over."""

    def __str__(self) -> str:
        return f"{self._place} unreachable since {self._since}" if self.why else ""

    @property
    def notes(self) -> list[str]:
        """The report's note on the outages that are over; empty if there was none."""
        if not self._times:
            return []
        note = (
            f"the {self._place} was unreachable {times_and_duration(self._times, self._seconds)}: "
            "latencies of what could not be read meanwhile include that time"
        )
        return [note]

    def begin(self, error: Exception) -> None:
        """Record that the cluster did not answer; the caller will repeat its request."""
        self._on_attempt()
        self.why = str(error) or "no answer in time"
        if self._began is not None:
            return
        self._began = time.monotonic()
        since = datetime.fromtimestamp(self._wall_ns() // 1_000_000_000, tz=UTC)
        self._since = f"{since:%Y-%m-%dT%H:%M:%SZ}"
        _log.warning(f"the {self._place} cannot be reached, waiting for it", why=self.why)

    def over(self) -> None:
        """Record that the cluster has answered."""
        self._on_attempt()
        if self._began is None:
            return
        seconds = time.monotonic() - self._began
        self._times, self._seconds = self._times + 1, self._seconds + seconds
        self._began, self.why = None, ""
        _log.info(f"the {self._place} answers again", seconds=round(seconds, 1))

    async def noticed(self, asking: Coroutine[Any, Any, T]) -> T:
        """Await a request's answer; an outage begins if it takes more than 5 s.

        The client repeats a request for much longer than that before it fails.
        """
        task = asyncio.create_task(asking)
        try:
            if not (await asyncio.wait({task}, timeout=_PATIENCE_SECONDS))[0]:
                self.begin(TimeoutError(f"no answer within {_PATIENCE_SECONDS:g} s"))
            return await task
        finally:
            task.cancel()

    async def until_answered(
        self, ask: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Repeat a request until it is answered, however long that takes."""
        while True:
            try:
                answer = await ask(*args, **kwargs)
            except TRANSIENT_ERRORS as error:
                self.begin(error)
            else:
                self.over()
                return answer
            await asyncio.sleep(_RETRY_SECONDS)
