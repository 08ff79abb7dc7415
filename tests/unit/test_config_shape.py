"""The grammar of shapes: valid ones, and the error for each mistake."""

from __future__ import annotations

from fractions import Fraction

import pytest

from mirrortest.config.shape import (
    RATE_FORMS,
    SIZE_FORMS,
    Burst,
    Choice,
    Gaussian,
    Ramp,
    Replay,
    Shape,
    Sine,
    SizeFile,
    Step,
    Steps,
    Uniform,
    parse_shape,
)
from mirrortest.errors import UsageError

SECOND = 1_000_000_000
MINUTE = 60 * SECOND


def read(text: str) -> Shape:
    shape = parse_shape(text, RATE_FORMS, option="--throughput")
    assert isinstance(shape, Shape)
    return shape


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gaussian(500, 50, every=10s)", Gaussian(Fraction(500), Fraction(50), 10 * SECOND)),
        ("gaussian(5k,0.5)", Gaussian(Fraction(5000), Fraction(1, 2), SECOND)),
        ("gaussian(deviation=5, mean=7)", Gaussian(Fraction(7), Fraction(5), SECOND)),
        ("ramp(0, 5k, 10m)", Ramp(Fraction(0), Fraction(5000), 10 * MINUTE)),
        ("ramp(from=1, to=2, duration=1s)", Ramp(Fraction(1), Fraction(2), SECOND)),
        (
            "steps(100 for 1m, 500 for 30s, 7)",
            Steps(
                (
                    Step(Fraction(100), MINUTE),
                    Step(Fraction(500), 30 * SECOND),
                    Step(Fraction(7), None),
                )
            ),
        ),
        (
            "burst(100, 1k, every=1m, for=5s)",
            Burst(Fraction(100), Fraction(1000), MINUTE, 5 * SECOND),
        ),
        ("sine( 500 , 400 , 10m )", Sine(Fraction(500), Fraction(400), 10 * MINUTE)),
        (
            "replay(day 1/rate.csv)",
            Replay("day 1/rate.csv"),
        ),
    ],
)
def test_shapes_are_read(text: str, expected: Shape) -> None:
    """Arguments are given by position or name, in the usual units; the text is kept for reports."""
    found = read(text)
    assert found == expected
    assert str(found) == " ".join(text.split())
    assert read(str(found)) == expected


def test_what_has_not_the_form_of_a_shape_is_left_to_the_option() -> None:
    """Such texts are numbers and words; a shape's name alone lacks its arguments."""
    assert parse_shape("500", RATE_FORMS, option="--throughput") is None
    assert parse_shape("fast", RATE_FORMS, option="--throughput") is None
    with pytest.raises(UsageError, match=r"'ramp' needs arguments: ramp\(FROM, TO, DURATION\)"):
        parse_shape("ramp", RATE_FORMS, option="--throughput")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gaussian(512, 100, every=100)", Gaussian(Fraction(512), Fraction(100), 100)),
        ("gaussian(2KiB, 1kB)", Gaussian(Fraction(2048), Fraction(1000), 1)),
        ("uniform(100, 1kB)", Uniform(100, 1000, 1)),
        ("uniform(high=9, low=5, every=2)", Uniform(5, 9, 2)),
        (
            "choice(100:0.9, 10kB : 0.1, 5:0)",
            Choice(((100, Fraction(9, 10)), (10_000, Fraction(1, 10)))),
        ),
        ("file(day 1/sizes)", SizeFile("day 1/sizes")),
    ],
)
def test_sizes_are_read(text: str, expected: Shape) -> None:
    """They have the units of sizes; a choice with a share of 0 is left out."""
    assert parse_shape(text, SIZE_FORMS, option="--message-size") == expected


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("uniform(9, 5)", "low is above high"),
        ("uniform(5, 9, every=0)", "every '0': must be at least 1"),
        ("choice(100)", "a choice is SIZE:SHARE, for example 10kB:0.1"),
        ("choice(100:0)", "all shares are 0"),
        ("choice(100:x)", "'x': must be a number"),
        ("gaussian(10s, 1)", "must be a size"),
        ("chioce(1:1)", "did you mean choice?"),
        ("file()", "path missing: write file(PATH)"),
    ],
)
def test_mistakes_in_sizes_are_answered(text: str, answer: str) -> None:
    """They are answered like those in rates."""
    with pytest.raises(UsageError) as error:
        parse_shape(text, SIZE_FORMS, option="--message-size")
    assert answer in str(error.value)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("gausian(5, 5)", "there is no shape 'gausian': did you mean gaussian?"),
        ("xyz(1)", "use gaussian, ramp, steps, burst, sine or replay"),
        ("ramp(0, 5", "write gaussian(MEAN, DEVIATION, every=...) or ramp(FROM, TO, DURATION)"),
        ("ramp(0)", "to and duration missing: write ramp(FROM, TO, DURATION)"),
        ("ramp(0, 1, 1m, 5)", "too many arguments: write ramp(FROM, TO, DURATION)"),
        ("ramp(0, 1, 1m, to=5)", "to is given twice"),
        ("gaussian(5, 5, evry=1s)", "gaussian has no 'evry': did you mean every?"),
        ("gaussian(5, 5, every=10)", "did you mean 10s?"),
        ("gaussian(5, 5, every=1ms)", "must be at least 100ms"),
        ("gaussian(0, 5)", "the mean must be above 0"),
        ("gaussian(5, x)", "deviation 'x': must be a number"),
        ("ramp(0, 0, 1m)", "sends nothing"),
        ("ramp(0, 1e12, 1m)", "must be in 1e-06..1e+09 messages/s"),
        ("steps()", "write steps(RATE for DURATION, ...)"),
        ("steps(1, 2 for 1s)", "only the last step may lack its duration"),
        ("steps(1 during 1s)", "a step is RATE for DURATION, for example 100 for 1m"),
        ("steps(0 for 1s)", "no step sends anything"),
        ("burst(1, 2, every=1s, for=1s)", "a burst must be shorter than every"),
        ("burst(0, 0, 1m, 1s)", "nothing would be sent"),
        ("sine(1, 2, 1m)", "at least the amplitude"),
        ("replay()", "path missing: write replay(PATH)"),
    ],
)
def test_mistakes_are_answered_with_what_to_write(text: str, answer: str) -> None:
    """The answer is one line, which begins with the option."""
    with pytest.raises(UsageError) as error:
        read(text)
    assert answer in str(error.value)
    assert str(error.value).startswith("--throughput ")
    assert "\n" not in str(error.value)
