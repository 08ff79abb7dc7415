"""When a history's faults begin, when they are cleared, and whether they took effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .history import Stage
    from .plan import Strike


class Striking:
    """Injects faults into a stage, clears them, and counts which of them took effect."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._world = stage.world
        self._open: dict[Strike, Callable[[], bool]] = {}
        """Faults whose effect is known when they are cleared, or when the history ends."""

    def schedule(self) -> None:
        """Schedule every fault of the plan at its time."""
        for strike in self._stage.plan.strikes:
            self._world.later(strike.at, self.strike, strike)

    def strike(self, strike: Strike) -> None:
        """Inject one fault."""
        if self._stage.over:
            return
        kind = strike.kind
        self._world.note("fault", kind, strike.which, strike.much, f"{strike.lasts:g} s")
        self._world.count(kind)
        if getattr(self, kind)(strike):
            self._world.count(f"{kind} took effect")

    def end(self) -> None:
        """The history is over: count the effects of faults that were not cleared."""
        for strike in list(self._open):
            self._close(strike)

    def _close(self, strike: Strike) -> None:
        took_effect = self._open.pop(strike, None)
        if took_effect is not None and took_effect():
            self._world.count(f"{strike.kind} took effect")

    def _heal(
        self, strike: Strike, heal: Callable[[], Any], took_effect: Callable[[], bool]
    ) -> bool:
        """Clear it later and count its effect then; returns False, so it is not counted now."""

        def healed() -> None:
            self._world.note("healed", strike.kind)
            self._close(strike)
            heal()

        self._open[strike] = took_effect
        self._world.later(strike.lasts, healed)
        return False

    def _grows(self, what: str) -> Callable[[], bool]:
        """A condition: this has happened since the call."""
        happened = self._world.happened
        before = happened[what]
        return lambda: happened[what] > before
