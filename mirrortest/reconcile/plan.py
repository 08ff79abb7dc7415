"""Which sessions and files a run has, and what is missing before any file is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirrortest.errors import SequenceLogError, UsageError
from mirrortest.reconcile.incarnations import renumbered
from mirrortest.results.summary import Workload
from mirrortest.seqlog.files import distinct, find_sessions
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.options import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from mirrortest.reconcile.incarnations import Numbers
    from mirrortest.seqlog.files import SessionFiles
    from mirrortest.seqlog.session import Session, Topic

_CLOCK_ERROR_NS = 60_000_000_000
"""The error assumed of a wall clock whose kernel reports none, as nothing synchronises it."""


@dataclass(frozen=True)
class Plan:
    """The logs of one run; a session's number is its index in `sessions`.

    The mirror is judged by `sessions`. `observers` are those of source observers: their offsets are
    the source topic's, not the copy's. Two kinds are left out: `elsewhere`, observers of a cluster
    that no producer wrote to, such as the destination by mistake; and `unmatched`, consumers whose
    incarnations cannot be matched with others'.
    """

    run: str
    places: tuple[Location, ...]
    sessions: tuple[SessionFiles, ...]
    observers: tuple[SessionFiles, ...] = ()
    elsewhere: tuple[SessionFiles, ...] = ()
    unmatched: tuple[SessionFiles, ...] = ()

    def without(self, numbers: Collection[int]) -> Plan:
        """The plan without these sessions, which are unmatched."""
        kept = (found for at, found in enumerate(self.sessions) if at not in numbers)
        apart = (found for at, found in enumerate(self.sessions) if at in numbers)
        return replace(self, sessions=tuple(kept), unmatched=(*self.unmatched, *apart))

    @property
    def observed(self) -> Plan:
        """The source observers' logs, as a plan of their own."""
        return Plan(self.run, self.places, self.observers)

    @property
    def producing(self) -> Plan:
        """The producers' logs, as a plan of their own."""
        sessions = (found for found in self.sessions if found.session.role is Role.PRODUCER)
        return Plan(self.run, self.places, tuple(sessions))

    @property
    def renumbered(self) -> dict[int, Numbers]:
        """By session, the numbers of incarnations that differ from its own."""
        return renumbered([found.session for found in self.sessions])

    @property
    def last_ids(self) -> dict[tuple[str, int], str]:
        """By source topic and partition of its copy, the id of the last topic that was read."""
        changed = self.renumbered
        last: dict[tuple[str, int], tuple[int, str]] = {}
        for number, session in self.of(Role.CONSUMER):
            for name, topic in session.topics.items():
                for each in topic.incarnations:
                    for at in ((name, partition) for partition in each.partitions):
                        known = changed.get(number, {}).get(at, {}).get(each.number, each.number)
                        last[at] = max(last.get(at, (known, "")), (known, each.topic_id))
        return {at: topic_id for at, (_, topic_id) in last.items()}

    @property
    def sources(self) -> set[str]:
        """The ids of the clusters that producers wrote to."""
        known = (session.clusters.get("source") for _, session in self.of(Role.PRODUCER))
        return {cluster for cluster in known if cluster}

    @property
    def destinations(self) -> dict[str, str]:
        """By source topic, the name of its copy in the destination, as consumers recorded it."""
        return {
            source: topic.destination
            for _, session in self.of(Role.CONSUMER)
            for source, topic in session.topics.items()
            if topic.destination is not None
        }

    @property
    def workloads(self) -> list[Workload]:
        """What the producers were asked to send, as far as their logs record it; each once."""
        found: list[Workload] = []
        for _, session in self.of(Role.PRODUCER):
            own = next((each for each in found if each.workload == session.workload), None)
            if own is None and session.workload:
                found.append(Workload(producers=[session.name], workload=session.workload))
            elif own is not None and session.name not in own.producers:
                own.producers.append(session.name)
        return found

    def of(self, role: Role) -> list[tuple[int, Session]]:
        """The sessions of one side, with their numbers."""
        return [
            (number, found.session)
            for number, found in enumerate(self.sessions)
            if found.session.role is role
        ]

    @property
    def horizons(self) -> dict[int, int]:
        """By consumer's session, the time (ns) up to which acknowledged messages were due.

        It lacks sessions that log what was due. Acknowledgements have a producer's clock, and the
        last end-offset snapshot has the consumer's: the errors of both clocks are subtracted.
        """
        producers = [session for _, session in self.of(Role.PRODUCER)]
        theirs = max((_clock_error(session) for session in producers), default=0)
        return {
            number: session.horizon_ns - theirs - _clock_error(session)
            for number, session in self.of(Role.CONSUMER)
            if session.horizon_ns is not None and not session.expiry_logged
        }

    @property
    def default_output(self) -> Location:
        """The default place of the result: with the logs of the first place."""
        return self.places[0].child(f"run={self.run}", "result")

    @property
    def uncommitted(self) -> set[str]:
        """The source topics of which a consumer read messages that may have been aborted."""
        return {
            source
            for _, session in self.of(Role.CONSUMER)
            for source, topic in session.topics.items()
            if topic.uncommitted
        }

    def doubts(self) -> list[str]:
        """Why the run is inconclusive, by its sessions alone."""
        return [
            *(
                f"there is no {role.value}'s log of run {self.run!r} in "
                + ", ".join(place.shown for place in self.places)
                for role in (Role.PRODUCER, Role.CONSUMER)
                if not self.of(role)
            ),
            *(
                f"{topic}: messages of the run were written in transactions, and a consumer read "
                "with isolation.level=read_uncommitted: they may have been aborted"
                for topic in self.copies(lambda topic: topic.uncommitted)
            ),
            *(
                f"{found.location.shown}: left out: a topic was recreated or truncated, and which "
                "of its logs this consumer read cannot be matched with the other consumers' logs: "
                "reconcile these logs apart, with the producers' logs"
                for found in self.unmatched
            ),
        ]

    def copies(self, are: Callable[[Topic], bool]) -> list[str]:
        """The destination's topics for which `are` is true in some consumer's session."""
        return sorted(
            {
                topic.destination or source
                for _, session in self.of(Role.CONSUMER)
                for source, topic in session.topics.items()
                if are(topic)
            }
        )


def _clock_error(session: Session) -> int:
    return _CLOCK_ERROR_NS if session.clock_error_ns is None else session.clock_error_ns


def plan(places: Sequence[str | Location], run: str | None) -> Plan:
    """Find the logs of a run; without `run` there must be exactly one run.

    Raises:
        UsageError: the run must be named, no file system can read a place, or consumers read
            several copies of a topic.
        SequenceLogError: there is no log of that run, a session.json is broken, or a log of
            another run is among this one's.
    """
    roots = tuple(Location.parse(place) for place in places)
    chosen = run if run is not None else _only_run(roots)
    sessions: list[SessionFiles] = []
    for root in roots:
        # Not filtered by run, to report a log in the wrong run's directory.
        sessions += find_sessions(root.child(f"run={chosen}"))
    misplaced = [found for found in sessions if found.session.run != chosen]
    if misplaced:
        raise SequenceLogError(
            f"{misplaced[0].location.shown}: a log of run {misplaced[0].session.run!r} is among "
            f"those of run {chosen!r}: move it to its own directory"
        )
    if not sessions:
        raise SequenceLogError(
            f"{', '.join(root.shown for root in roots)}: no log of run {chosen!r} here"
            f"{_instead(roots, chosen)}"
        )
    once = distinct(sessions)
    _refuse_several_copies(chosen, once)
    judging = Plan(
        chosen, roots, tuple(found for found in once if found.session.role is not Role.SOURCE)
    )
    observers: dict[bool, list[SessionFiles]] = {True: [], False: []}
    for found in once:
        if found.session.role is Role.SOURCE:
            cluster = found.session.clusters.get("source")
            observers[not (cluster and judging.sources) or cluster in judging.sources].append(found)
    return replace(judging, observers=tuple(observers[True]), elsewhere=tuple(observers[False]))


def _refuse_several_copies(run: str, sessions: Sequence[SessionFiles]) -> None:
    """Raise UsageError if consumers read several copies of a topic: each has its own offsets."""
    by_source: dict[str, dict[tuple[str, str], list[SessionFiles]]] = {}
    for found in sessions:
        session = found.session
        for source, topic in session.topics.items() if session.role is Role.CONSUMER else ():
            # If the topic did not exist, nothing of it was read.
            if found.files and topic.destination_partitions is not None:
                copy = topic.destination or source, session.clusters.get("destination", "")
                by_source.setdefault(source, {}).setdefault(copy, []).append(found)
    for source, copies in sorted(by_source.items()):
        clusters = {cluster for _, cluster in copies if cluster}
        if len(clusters) > 1 or len({name for name, _ in copies}) > 1:
            raise UsageError(
                f"consumers of run {run!r} read several copies of {source}: "
                + "; ".join(_copy(*copy, found) for copy, found in sorted(copies.items()))
                + ". Keep the logs of each copy's consumers in a directory of their own, and "
                "reconcile each one with the producers' logs"
            )


def _copy(name: str, cluster: str, found: Sequence[SessionFiles]) -> str:
    places = [each.location.shown for each in found]
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return f"{name} in cluster {cluster or 'unknown'} ({places[0]}{more})"


def _instead(roots: Sequence[Location], chosen: str) -> str:
    """A hint for an error: where below the run's logs are, or which runs are here."""
    found = [each for root in roots for each in find_sessions(root)]
    deeper = sorted(each.location.shown for each in found if each.session.run == chosen)
    if deeper:
        above = sorted({place.rpartition(f"/run={chosen}/")[0] for place in deeper})
        if all(above):
            return f": they are in a subdirectory, use {' and '.join(above)}"
        return f": they must be in a directory run={chosen}, not in {deeper[0]}"
    known = sorted({each.session.run for each in found})
    return f"; it has {', '.join(known)}" if known else ""


def _only_run(roots: Sequence[Location]) -> str:
    known = sorted({found.session.run for root in roots for found in find_sessions(root)})
    if len(known) == 1:
        return known[0]
    where = ", ".join(root.shown for root in roots)
    if not known:
        raise SequenceLogError(f"{where}: no sequence logs here")
    raise UsageError(f"{where} has logs of several runs, choose one with --run: {', '.join(known)}")
