"""Requests between processes and brokers: latencies, lost answers, unreachable brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from mirrortest.kafka.error_table import Code, RequestError

from .loop import PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cluster import Cluster
    from .loop import Process
    from .world import World

T = TypeVar("T")

_REFUSED_SECONDS = 0.05


class Net:
    """Delivers requests to clusters, and their answers.

    `lose_answers` is the share of requests that are served and whose answer never comes;
    `slow` is the most seconds added to each way.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.lose_answers = 0.0
        self.lose_requests = 0.0
        self.slow = 0.0
        self.refused: set[tuple[str, str]] = set()
        """(process, request) that every broker refuses"""

    def latency(self) -> float:
        """One way, in seconds; mostly about a millisecond, sometimes up to a hundred."""
        random = self._world.random
        seconds = 0.0005 + 0.002 * random.random()
        if random.random() < 0.03:
            seconds += 0.1 * random.random()
        if self.slow:
            self._world.happened["answer slowed"] += 1
            seconds += self.slow * random.random()
        return seconds

    async def ask(
        self, cluster: Cluster, what: str, serve: Callable[[], T], *, seconds: float
    ) -> T:
        """Send one request, and wait for its answer for at most `seconds`.

        Raises:
            RequestError: the broker's error; no broker was reached; or no answer came
                (REQUEST_TIMED_OUT), and the request may have been served.
        """
        world, process = self._world, PROCESS.get()
        answer = world.loop.create_future()
        world.later(self.latency(), self._serve, cluster, process, what, serve, answer, seconds)
        result: T = await answer
        return result

    def _serve(
        self,
        cluster: Cluster,
        process: Process | None,
        what: str,
        serve: Callable[[], Any],
        answer: Any,
        seconds: float,
    ) -> None:
        world, random = self._world, self._world.random
        name = "" if process is None else process.name
        if cluster.down:
            world.happened[f"request refused by {cluster.name}"] += 1
        if name in cluster.unreachable_for:
            world.happened[f"request of {name} refused"] += 1
        if cluster.down or name in cluster.unreachable_for or (name, what) in self.refused:
            world.later(
                _REFUSED_SECONDS, _fail, answer, RequestError(Code.NOT_CONNECTED, "refused")
            )
            return
        if self.lose_requests and random.random() < self.lose_requests:
            world.happened["request lost"] += 1
            world.later(seconds, _fail, answer, RequestError(Code.REQUEST_TIMED_OUT))
            return
        try:
            result = serve()
        except RequestError as error:
            world.later(self.latency(), _fail, answer, error)
            return
        if self.lose_answers and random.random() < self.lose_answers:
            world.note("answer lost", name, what)
            world.happened["answer lost"] += 1
            world.later(seconds, _fail, answer, RequestError(Code.REQUEST_TIMED_OUT))
            return
        world.later(self.latency(), _succeed, answer, result)


def _fail(answer: Any, error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)


def _succeed(answer: Any, result: Any) -> None:
    if not answer.done():
        answer.set_result(result)
