"""Shapes of load: a rate, a size or a number that varies, as users write it.

A shape is ``NAME(ARGUMENT, ..., KEY=VALUE)``, for example ``gaussian(500, 50, every=10s)``. Each
argument may be given by its place or by its key. Rates, sizes and durations are written as
everywhere (`config.units`). Keys and what they mean are in docs/reference/load-shapes.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from math import ceil, floor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from mirrortest.config.suggestion import did_you_mean
from mirrortest.config.units import parse_count, parse_duration, parse_number, parse_size
from mirrortest.config.visible import uri_without_secrets
from mirrortest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CLIP = 6
"""Deviations from the mean beyond which nothing is drawn: one in 500 million would be."""
SHORTEST_NS = 100_000_000
"""The shortest window, period or ramp."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A varying rate, size or number; `text` is how the user wrote it.

    Raises:
        ValueError: nothing would be sent, or arguments contradict each other.
    """

    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Gaussian(Shape):
    """A Gaussian value, drawn for each window of `every`: ns for a rate, messages for a size.

    The mean of a rate is messages/s, that of a size bytes, that of a batch messages.
    """

    mean: Fraction
    deviation: Fraction
    every: int

    def __post_init__(self) -> None:
        if self.mean <= 0:
            raise ValueError("the mean must be above 0")

    @property
    def largest(self) -> int:
        """The largest value that can be drawn."""
        return ceil(self.mean + CLIP * self.deviation)

    @property
    def smallest(self) -> int:
        """The smallest value that can be drawn, at least 0."""
        return max(0, floor(self.mean - CLIP * self.deviation))


@dataclass(frozen=True)
class Ramp(Shape):
    """From rate `start` to rate `end` within `duration` ns, and `end` afterwards."""

    start: Fraction
    end: Fraction
    duration: int

    def __post_init__(self) -> None:
        if not self.start and not self.end:
            raise ValueError("a ramp from 0 to 0 sends nothing")


class Step(NamedTuple):
    """A rate for `duration` ns; None: until the run ends."""

    rate: Fraction
    duration: int | None


@dataclass(frozen=True)
class Steps(Shape):
    """One rate after the other; the schedule ends with the last one's duration."""

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        if any(each.duration is None for each in self.steps[:-1]):
            raise ValueError("only the last step may lack its duration: write RATE for DURATION")
        if not any(each.rate for each in self.steps):
            raise ValueError("no step sends anything")


@dataclass(frozen=True)
class Burst(Shape):
    """`peak` for the first `lasting` ns of each `every` ns, and `base` for the rest."""

    base: Fraction
    peak: Fraction
    every: int
    lasting: int

    def __post_init__(self) -> None:
        if not self.base and not self.peak:
            raise ValueError("both rates are 0: nothing would be sent")
        if self.lasting >= self.every:
            raise ValueError("a burst must be shorter than every")


@dataclass(frozen=True)
class Sine(Shape):
    """A sine around `mean`, which it leaves upwards; `period` is ns."""

    mean: Fraction
    amplitude: Fraction
    period: int

    def __post_init__(self) -> None:
        if not 0 < self.mean >= self.amplitude:
            raise ValueError("the mean must be above 0 and at least the amplitude")


@dataclass(frozen=True)
class Replay(Shape):
    """A recorded rate, in a file; once the file is read it is `Steps`."""

    path: str


@dataclass(frozen=True)
class Uniform(Shape):
    """Any integer from `low` to `high`, drawn anew for each `every` messages."""

    low: int
    high: int
    every: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")

    @property
    def largest(self) -> int:
        """The largest size."""
        return self.high

    @property
    def smallest(self) -> int:
        """The smallest size."""
        return self.low


@dataclass(frozen=True)
class Choice(Shape):
    """One of these sizes, each with its share of the messages."""

    weighted: tuple[tuple[int, Fraction], ...]

    @property
    def largest(self) -> int:
        """The largest size."""
        return max(size for size, _ in self.weighted)

    @property
    def smallest(self) -> int:
        """The smallest size."""
        return min(size for size, _ in self.weighted)


@dataclass(frozen=True)
class SizeFile(Shape):
    """The sizes in a file, one after the other and from the first again; empty until read."""

    path: str
    sizes: tuple[int, ...] = ()

    @property
    def largest(self) -> int:
        """The largest size."""
        return max(self.sizes, default=0)

    @property
    def smallest(self) -> int:
        """The smallest size."""
        return min(self.sizes, default=0)


SizeShape: TypeAlias = Gaussian | Uniform | Choice | SizeFile
RateShape: TypeAlias = Gaussian | Ramp | Steps | Burst | Sine | Replay


class Parameter(NamedTuple):
    """An argument of a form; without a `default` it must be given."""

    key: str
    parse: Callable[..., Any]
    default: Any = None


class Form(NamedTuple):
    """The arguments of a shape; with `each`, any number of them go into `key`."""

    build: Callable[..., Any]
    parameters: tuple[Parameter, ...] = ()
    each: Parameter | None = None
    key: str = ""

    def usage(self, name: str) -> str:
        """How a user writes the form."""
        if self.each is not None:
            return f"{name}({self.each.key}, ...)"
        keys = (p.key.upper() if p.default is None else f"{p.key}=..." for p in self.parameters)
        return f"{name}({', '.join(keys)})"


_CALL = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*\((?P<arguments>[^()]*)\)\s*")
_KEYED = re.compile(r"\s*(?P<key>[a-z_]+)\s*=\s*(?P<value>.*?)\s*", re.DOTALL)


def parse_shape(text: str, forms: Mapping[str, Form], *, option: str) -> Any:
    """Read a shape; None if the text does not have the form of one.

    Raises UsageError with `option` for a name, key or value that is wrong or missing.
    """
    call = _CALL.fullmatch(text)
    if call is None:
        if "(" in text or ")" in text:
            usages = " or ".join(form.usage(name) for name, form in forms.items())
            raise UsageError(f"{option} {text!r}: write {usages}")
        if (name := text.strip()) in forms:
            raise UsageError(f"{option} {text!r} needs arguments: {forms[name].usage(name)}")
        return None
    name = call["name"]
    form = forms.get(name)
    where = f"{option} {text!r}"
    if form is None:
        raise UsageError(f"{where}: there is no shape {name!r}: {did_you_mean(name, forms)}")
    arguments = [each.strip() for each in call["arguments"].split(",")]
    if arguments == [""]:
        arguments = []
    try:
        built = form.build(**_bound(name, form, arguments, where))
        # A file's name may be a URI.
        shown = f"{name}({uri_without_secrets(call['arguments'])})"
        return replace(built, text=" ".join(shown.split()))
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None


def _bound(name: str, form: Form, arguments: list[str], where: str) -> dict[str, Any]:
    """The arguments' values by key."""
    if form.each is not None:
        if not arguments:
            raise UsageError(f"{where}: write {form.usage(name)}")
        one = form.each.parse
        return {form.key: tuple(one(each, option=f"{where}:") for each in arguments)}
    keys = {each.key: each for each in form.parameters}
    values: dict[str, Any] = {}
    free = list(form.parameters)
    for argument in arguments:
        keyed = _KEYED.fullmatch(argument)
        if keyed is not None:
            key, text = keyed["key"], keyed["value"]
            if key not in keys:
                raise UsageError(f"{where}: {name} has no {key!r}: {did_you_mean(key, keys)}")
        elif not free:
            raise UsageError(f"{where}: too many arguments: write {form.usage(name)}")
        else:
            key, text = free[0].key, argument
        if key in values:
            raise UsageError(f"{where}: {key} is given twice")
        free = [each for each in free if each.key != key]
        values[key] = keys[key].parse(text, option=f"{where}: {key}")
    missing = [each.key for each in free if each.default is None]
    if missing:
        raise UsageError(f"{where}: {' and '.join(missing)} missing: write {form.usage(name)}")
    return values | {each.key: each.default for each in free}


# -- rates --------------------------------------------------------------------------------------

SLOWEST, FASTEST = 1e-6, 1e9
"""Messages/s: one in eleven days, and one in each nanosecond, the unit of all times."""


def parse_rate(text: str, *, option: str) -> Fraction:
    """Read messages/s: 0, or `SLOWEST` to `FASTEST`, else UsageError with `option`."""
    rate = parse_number(text, option=option)
    if rate and not SLOWEST <= rate <= FASTEST:
        raise UsageError(f"{option} {text!r}: must be in {SLOWEST:g}..{FASTEST:g} messages/s")
    return rate


def parse_window(text: str, *, option: str) -> int:
    """Read a duration of at least `SHORTEST_NS`."""
    duration = parse_duration(text, option=option)
    if duration < SHORTEST_NS:
        raise UsageError(f"{option} {text!r}: must be at least {SHORTEST_NS // 1_000_000}ms")
    return duration


_STEP = re.compile(r"(?P<rate>\S+)(?:\s+for\s+(?P<duration>\S+))?")


def _parse_step(text: str, *, option: str) -> Step:
    match = _STEP.fullmatch(text)
    if match is None:
        raise UsageError(f"{option} {text!r}: a step is RATE for DURATION, for example 100 for 1m")
    duration = match["duration"]
    return Step(
        parse_rate(match["rate"], option=option),
        None if duration is None else parse_window(duration, option=option),
    )


def _path(text: str, *, option: str) -> str:
    if not text:
        raise UsageError(f"{option}: must be a file")
    return text


_rate = partial(Parameter, parse=parse_rate)
_time = partial(Parameter, parse=parse_window)
RATE_FORMS: dict[str, Form] = {
    "gaussian": Form(
        Gaussian, (_rate("mean"), _rate("deviation"), _time("every", default=1_000_000_000))
    ),
    "ramp": Form(
        lambda **k: Ramp(k["from"], k["to"], k["duration"]),
        (_rate("from"), _rate("to"), _time("duration")),
    ),
    "steps": Form(Steps, each=Parameter("RATE for DURATION", _parse_step), key="steps"),
    "burst": Form(
        lambda **k: Burst(k["base"], k["peak"], k["every"], k["for"]),
        (_rate("base"), _rate("peak"), _time("every"), _time("for")),
    ),
    "sine": Form(Sine, (_rate("mean"), _rate("amplitude"), _time("period"))),
    "replay": Form(Replay, (Parameter("path", _path),)),
}


# -- sizes and batches --------------------------------------------------------------------------

_WEIGHTED = re.compile(r"(?P<size>[^:]+):(?P<share>[^:]+)")


def _parse_weighted(text: str, *, option: str) -> tuple[int, Fraction]:
    match = _WEIGHTED.fullmatch(text)
    if match is None:
        raise UsageError(f"{option} {text!r}: a choice is SIZE:SHARE, for example 10kB:0.1")
    return (
        parse_size(match["size"].strip(), option=option),
        parse_number(match["share"].strip(), option=option),
    )


def _choice(weighted: tuple[tuple[int, Fraction], ...]) -> Choice:
    if not sum(share for _, share in weighted):
        raise ValueError("all shares are 0")
    return Choice(tuple(each for each in weighted if each[1]))


def _gaussian(mean: int, deviation: int, every: int) -> Gaussian:
    return Gaussian(Fraction(mean), Fraction(deviation), every)


_EVERY = Parameter("every", partial(parse_count, minimum=1), 1)


_size = partial(Parameter, parse=parse_size)
SIZE_FORMS: dict[str, Form] = {
    "gaussian": Form(_gaussian, (_size("mean"), _size("deviation"), _EVERY)),
    "uniform": Form(Uniform, (_size("low"), _size("high"), _EVERY)),
    "choice": Form(_choice, each=Parameter("SIZE:SHARE", _parse_weighted), key="weighted"),
    "file": Form(SizeFile, (Parameter("path", _path),)),
}
BATCH_FORMS: dict[str, Form] = {
    "gaussian": Form(
        partial(Gaussian, every=1),
        (Parameter("mean", parse_number), Parameter("deviation", parse_number)),
    ),
}
