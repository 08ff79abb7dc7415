"""Properties files, JAAS texts and units, as Kafka's users write them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.config.jaas import jaas_options
from mirrortest.config.java_properties import parse_assignments, parse_properties
from mirrortest.config.units import format_duration, parse_duration, parse_size
from mirrortest.errors import UsageError

TEXT = st.text(st.characters(codec="iso-8859-1", exclude_categories=["Cs"]), max_size=20)


def store(key: str, value: str) -> str:
    """Write an entry as java.util.Properties.store does."""

    def escaped(text: str, *, every_space: bool) -> str:
        out = []
        for index, sign in enumerate(text):
            if sign == " ":
                out.append("\\ " if every_space or index == 0 else " ")
            elif sign in "\t\n\r\f":
                out.append("\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}[sign])
            elif sign in "=:#!\\":
                out.append("\\" + sign)
            elif not " " <= sign <= "~":
                out.append(f"\\u{ord(sign):04X}")
            else:
                out.append(sign)
        return "".join(out)

    return f"{escaped(key, every_space=True)}={escaped(value, every_space=False)}\n"


@given(st.dictionaries(TEXT, TEXT, max_size=6))
def test_what_java_stores_is_read_back(entries: dict[str, str]) -> None:
    """Any properties written by Java's own rules are read back the same."""
    assert parse_properties("".join(store(*entry) for entry in entries.items())) == entries


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("  a : b ", {"a": "b "}),
        ("a b", {"a": "b"}),
        ("a", {"a": ""}),
        ("a = = b", {"a": "= b"}),
        ("# c\n! d\n\na=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\\\n   2\\\n   3", {"a": "123"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("# no continuation \\\na=1", {"a": "1"}),
        ("a=\\u00e4\\q\\tx", {"a": "äq\tx"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a\\=b\\ c=d", {"a=b c": "d"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("\\\n\nb=2", {"b": "2"}),
        ("\\\n# no key\nb=2", {"b": "2"}),
    ],
)
def test_javas_rules(text: str, expected: dict[str, str]) -> None:
    """Separators, comments, continuations and escapes mean what they mean to Java."""
    assert parse_properties(text) == expected


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes the reader fail in any other way than a usage error."""
    with contextlib.suppress(UsageError):
        parse_properties(text)


def test_a_malformed_escape_is_told_by_its_line_and_not_its_content() -> None:
    """The error names file and line; the line may contain a secret."""
    with pytest.raises(UsageError, match=r"f\.properties, line 2") as caught:
        parse_properties("a=1\npassword=hush\\u00", origin="f.properties")
    assert "hush" not in str(caught.value)


def test_assignments_stand_as_they_are() -> None:
    """An argument's value is literal and may contain '='."""
    found = parse_assignments(["a=b=c\\", "x="], option="--command-property")
    assert found == {"a": "b=c\\", "x": ""}


@pytest.mark.parametrize("item", ["hush", "=hush"])
def test_an_assignment_without_key_or_sign_is_refused_unrepeated(item: str) -> None:
    """An argument without '=' may be just a secret."""
    with pytest.raises(UsageError, match="KEY=VALUE") as caught:
        parse_assignments([item], option="--command-property")
    assert "hush" not in str(caught.value)


def test_jaas_options() -> None:
    """Values may be quoted in either way, bare or escaped; comments are skipped."""
    options = jaas_options(
        'a.b.PlainLoginModule required /* c */ username="u\\"1" password=\'p;=\'\n  x=y.z ; // end'
    )
    assert options == {"username": 'u"1', "password": "p;=", "x": "y.z"}


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30))
def test_any_password_survives_quoting(password: str) -> None:
    """A quoted and escaped password is read back."""
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    assert jaas_options(f'M required password="{quoted}";') == {"password": password}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hush",
        'M required password="hush"',
        'M required password="hush;',
        "M needed password=hush;",
        "M required password hush;",
        "M required password=hush x;",
        "M required; M required password=hush;",
        "M required = = hush;",
    ],
)
def test_malformed_jaas_is_refused_unrepeated(text: str) -> None:
    """The error never repeats the text, which contains a password."""
    with pytest.raises(UsageError, match="malformed") as caught:
        jaas_options(text)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 500_000_000), ("1h30m", 5_400_000_000_000), ("0", 0), ("1.5us", 1500),
     ("2d", 172_800 * 10**9)],
)  # fmt: skip
def test_durations(text: str, expected: int) -> None:
    """Units can be joined, values can have decimals; the sum is whole nanoseconds."""
    assert parse_duration(text, option="--x") == expected


@pytest.mark.parametrize("text", ["5", "", "s", "-1s", "1 s 2", "1.0001ns", "1e3s", "٣s"])
def test_a_duration_without_a_sound_unit_is_refused(text: str) -> None:
    """The option is named."""
    with pytest.raises(UsageError, match="--x"):
        parse_duration(text, option="--x")


@pytest.mark.parametrize(
    ("text", "expected"), [("900", 900), ("1kB", 1000), ("64KiB", 65536), ("1.5 MiB", 1_572_864)]
)
def test_sizes(text: str, expected: int) -> None:
    """Powers of 1000 and of 1024 have their own units."""
    assert parse_size(text, option="--x") == expected


@pytest.mark.parametrize("text", ["", "x", "1.5", "1q", "-1"])
def test_an_unsound_size_is_refused(text: str) -> None:
    """The option is named."""
    with pytest.raises(UsageError, match="--x"):
        parse_size(text, option="--x")


@pytest.mark.parametrize(
    ("nanoseconds", "expected"),
    [(0, "0 ns"), (999, "999 ns"), (1500, "1.50 us"), (999_960, "1.00 ms"), (80_700_000, "80.7 ms"),
     (-2_000_000_000, "-2.00 s"), (14_400 * 10**9, "14400 s")],
)  # fmt: skip
def test_durations_for_people(nanoseconds: int, expected: str) -> None:
    """A duration has three significant digits and the unit that fits."""
    assert format_duration(nanoseconds) == expected
