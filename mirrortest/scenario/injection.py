"""The faults of a point, each on a thread that waits for its time."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import structlog

from mirrortest.errors import ClusterError, LabError, MirrortestError
from mirrortest.host.error_text import reason_of
from mirrortest.lab.cluster import Broker
from mirrortest.lab.link.condition import HEAL, detail
from mirrortest.lab.link.link import Link
from mirrortest.lab.mirrors import Mirror, MirrorMaker2
from mirrortest.lab.part import CLEARED_BY, NotAwaitedError, inject
from mirrortest.lab.runtime import PartState
from mirrortest.scenario.catch_up import catch_up_seconds
from mirrortest.scenario.deadline import run_command, shown_command
from mirrortest.scenario.fault import COMMAND, DROP_PAGE_CACHE, TopicChange
from mirrortest.scenario.fields import AFTER_PRODUCERS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from mirrortest.lab.part import Part
    from mirrortest.lab.testbed import Lab
    from mirrortest.scenario.deadline import Deadline
    from mirrortest.scenario.fault import Fault
    from mirrortest.seqlog.events import EventLog

_log = structlog.get_logger()

_POLL = 0.1
_STARTS = ("start", "restart")
_CLIENTS_ENDED = "the clients had ended before it was due"


class Injection:
    """The faults of a point, injected; a context manager whose exit skips what is not due yet.

    Args:
        faults: in the order of the file.
        planned: those of the plan, in the order of time; each waits for the end of the one before.
        parts: the parts that faults apply to, by name.
        lab: the lab whose topics are changed; None if the clusters are not a lab's.
        topics: the topics that producers write.
        events: the log that gets each action before it is done.
        environment: the environment of commands.
        directory: where commands run.
        deadline: the time limit of commands.
        on_action: called with each action and its subject.

    Attributes:
        produced: the caller sets it once all producers have ended.
        errors: the errors of actions that failed.
        undone: which faults were never injected, and why, in the order in which that was known;
            also if no planned fault was injected.
        notes: the same of single planned faults, and of repetitions; which figures are missing.
        figures: `discovery_seconds.TOPIC`, how long the mirror took to create the copy of a new
            topic, or of added partitions; `catch_up_seconds.PART`, the longest time that it took,
            after a fault of a link or of the mirror with `for`, to copy what the source contained
            when the fault ended; without a mirror that writes in transactions.
    """

    def __init__(
        self,
        faults: Sequence[Fault],
        planned: Sequence[Fault],
        parts: Mapping[str, Part],
        lab: Lab | None,
        topics: Collection[str],
        events: EventLog,
        environment: Mapping[str, str],
        directory: Path,
        deadline: Deadline,
        on_action: Callable[[str, str], None],
    ) -> None:
        self.produced = threading.Event()
        self.errors: list[MirrortestError] = []
        self.undone: list[str] = []
        self.notes: list[str] = []
        self.figures: dict[str, float] = {}
        self._faults = (*faults, *planned)
        self._first_planned = len(faults)
        self._parts = parts
        self._lab = lab
        self._topics = topics
        self._events = events
        self._environment = environment
        self._directory = directory
        self._deadline = deadline
        self._on_action = on_action
        self._ending = threading.Event()
        self._ended = [threading.Event() for _ in self._faults]
        self._done: set[int] = set()
        """Indexes of the faults that were injected at least once."""
        self._starts: set[int] = set()
        """Indexes of the faults that have yet to start their part."""
        self._threads: list[threading.Thread] = []
        self._began = 0.0

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        for index, fault in enumerate(self._faults):
            if fault.do == "start":
                self._starts.add(index)
            thread = threading.Thread(
                target=self._run, args=(index, fault), name=f"fault {index}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._ending.set()
        if kind is not None:
            self._deadline.cancel()
            for part in self._parts.values():
                part.abandon()
        for thread in self._threads:
            thread.join()
        planned = range(self._first_planned, len(self._faults))
        if planned and self._done.isdisjoint(planned):
            self.undone.append("no fault of the plan was done")

    def will_start(self, part: str) -> bool:
        """Whether a fault has yet to start this part."""
        return any(self._faults[index].part == part for index in tuple(self._starts))

    def _run(self, index: int, fault: Fault) -> None:
        what = f"{fault.do} of {shown_command(fault.subject)}"
        try:
            turns = list(self._turns(index, fault))
            if "" in turns:
                self._done.add(index)
            is_note = index in self._done or index >= self._first_planned
            for why in filter(None, dict.fromkeys(turns)):
                texts, text = self.notes if is_note else self.undone, f"{what} was not done: {why}"
                if text not in texts:  # of a plan, many can be alike
                    texts.append(text)
        except Exception as error:  # noqa: BLE001  # a fault that was not done must fail the point
            self._failed(what, error)
        finally:
            self._starts.discard(index)
            self._ended[index].set()

    def _failed(self, what: str, error: Exception) -> None:
        if not isinstance(error, MirrortestError):
            _log.error("an action failed unexpectedly", action=what, exc_info=error)
            error = MirrortestError(f"{what} failed: {reason_of(error)}")
        self.errors.append(error)

    def _turns(self, index: int, fault: Fault) -> Iterator[str]:
        """Do a fault at its times; of each turn, yield why it was left out, or an empty text."""
        moment = self._first(index, fault)
        late = _CLIENTS_ENDED if moment is None else self._await(fault, moment)
        if moment is None or late:
            yield late
            return
        while True:
            yield "" if self._do(index, fault) else "it did not run"
            if fault.every is None:
                return
            turns = max(1, math.ceil((self._elapsed() - moment) / fault.every))
            if turns > 1 and moment + fault.every < (fault.until or math.inf):
                yield "the turn before took longer than every"
            moment += turns * fault.every
            if self._await(fault, moment):
                return

    def _first(self, index: int, fault: Fault) -> float | None:
        """The first time of a fault, in seconds from the start; None if the point ends before."""
        if index > self._first_planned or not isinstance(fault.at, float):
            before = self.produced if fault.at == AFTER_PRODUCERS else self._ended[index - 1]
            while not before.wait(_POLL):
                if self._ending.is_set():
                    return None
        return fault.at if isinstance(fault.at, float) else self._elapsed() + (fault.after or 0.0)

    def _await(self, fault: Fault, moment: float) -> str:
        """Wait for a time; return why the fault is not to be done then, or an empty text."""
        if fault.until is not None and max(moment, self._elapsed()) >= fault.until:
            return "its until had passed"
        left = moment - self._elapsed()
        # A command that is due runs even if the point ends: at `produced`, clients can end as well.
        is_due_command = left <= 0 and fault.do == COMMAND and fault.after is None
        if not is_due_command and self._ending.wait(max(0.0, left)):
            return _CLIENTS_ENDED
        if fault.every is not None and fault.until is None and self.produced.is_set():
            return "the producers had ended before it was due"
        return ""

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _do(self, index: int, fault: Fault) -> bool:
        """Inject a fault; return whether it was done: a part that does not run is left alone."""
        if fault.do == COMMAND:
            self._note(COMMAND, shown_command(fault.subject))
            run_command(fault.subject, self._environment, self._directory, self._deadline)
        elif fault.do in set(TopicChange):
            self._change_topic(fault)
        else:
            return self._fault_part(index, fault)
        return True

    def _fault_part(self, index: int, fault: Fault) -> bool:
        part = self._parts[fault.subject]
        if fault.do != "start" and not part.alive:
            self._on_action(f"{fault.do} left out: it does not run", part.name)
            return False
        clears = CLEARED_BY.get(fault.do) if fault.for_ is not None else None
        if clears == "start" or fault.do == "restart":
            self._starts.add(index)
        if fault.do == DROP_PAGE_CACHE:
            self._drop_page_cache(part)
            return True
        self._inject(part, fault.do, **fault.measures(fault.do))
        if clears is not None:
            if self._ending.wait(fault.for_):
                return True
            self._measure_catch_up(part)
            self._inject(part, clears, **({"fault": fault.do} if clears == HEAL else {}))
        self._starts.discard(index)
        return True

    def _measure_catch_up(self, part: Part) -> None:
        """Measure how long the mirror takes to catch up after a fault, on another thread."""
        lab = self._lab
        if lab is None or not self._topics or not isinstance(part, Link | Mirror):
            return
        if isinstance(lab.mirror, MirrorMaker2) and lab.mirror.settings.exactly_once:
            return  # the markers of its transactions would count as copied messages

        name = f"catch_up_seconds.{part.name}"

        def measure() -> None:
            try:
                seconds = catch_up_seconds(lab, self._topics, self._ending)
            except ClusterError as error:  # another fault
                self.notes.append(f"no {name}: {error}")
                return
            except Exception as error:  # noqa: BLE001  # as in `_run`
                self._failed(f"measuring how {part.name} catches up", error)
                return
            if seconds is not None:
                self.figures[name] = max(seconds, self.figures.get(name, 0.0))
                self._on_action(f"caught up in {seconds:.1f} s", part.name)

        thread = threading.Thread(target=measure, name=f"catch up {part.name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _inject(self, part: Part, verb: str, **values: Any) -> None:
        self._note(verb, part.name, detail(verb, values))
        try:
            inject(part, verb, **values)
        except NotAwaitedError:  # another fault, or the point's end
            if verb not in _STARTS:
                raise
            return
        if verb in _STARTS:
            self._note("ready", part.name)

    def _drop_page_cache(self, part: Part) -> None:
        if not isinstance(part, Broker):
            raise LabError(f"{DROP_PAGE_CACHE} is for a broker of the lab, not for {part.name}")
        self._note(DROP_PAGE_CACHE, part.name)
        part.drop_page_cache()

    def _change_topic(self, fault: Fault) -> None:
        lab, topic, partitions = self._lab, fault.subject, fault.partitions or 1
        if lab is None:
            raise LabError(f"{fault.do} needs a lab")
        self._note(fault.do, topic)
        began = time.monotonic()
        if fault.do == TopicChange.ADD_PARTITIONS:
            lab.source.add_partitions(topic, partitions)
        else:
            lab.source.create_topic(topic, partitions)
        if lab.mirror.state is PartState.RUNNING:
            name = f"discovery_seconds.{topic}"
            try:
                lab.mirror.wait_topic(topic)
            except (NotAwaitedError, ClusterError) as error:  # another fault
                self.notes.append(f"no {name}: {error}")
                return
            self.figures[name] = time.monotonic() - began
            self._note("mirrored", topic)

    def _note(self, what: str, subject: str, how: str = "") -> None:
        self._events.note(what, subject, detail=how)
        self._on_action(f"{what} {how}".strip(), subject)
