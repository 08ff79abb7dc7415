"""The value of `sasl.jaas.config`: one login module with its options.

::

    org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";
"""

from __future__ import annotations

import re

from mirrortest.errors import UsageError

_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | "(?P<double>(?:\\.|[^"\\])*)" | '(?P<single>(?:\\.|[^'\\])*)'
    | (?P<mark>[=;]) | (?P<word>[^\s=;"']+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_NAMED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})


def jaas_options(text: str) -> dict[str, str]:
    """The options of a JAAS configuration's login module.

    The UsageError for a malformed one never repeats its text.
    """
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[1][1].lower() not in _FLAGS or tokens[-1] != ("mark", ";"):
        raise _malformed("expected 'LOGIN_MODULE required NAME=\"VALUE\" ...;'")
    body = tokens[2:-1]
    if ("mark", ";") in body:
        raise _malformed("it must have exactly one login module")
    if len(body) % 3:
        raise _malformed("each option is NAME=VALUE")
    options: dict[str, str] = {}
    for name, equals, value in zip(body[::3], body[1::3], body[2::3], strict=True):
        if equals != ("mark", "=") or "mark" in {name[0], value[0]}:
            raise _malformed("each option is NAME=VALUE")
        options[name[1]] = value[1]
    return options


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _malformed("a quote is not closed")
        position = match.end()
        kind = match.lastgroup
        if kind in {"double", "single"}:
            tokens.append(("value", _ESCAPE.sub(_escaped, match[kind])))
        elif kind is not None:
            tokens.append((kind, match[kind]))
    return tokens


def _escaped(match: re.Match[str]) -> str:
    code = match.group(1)
    if code[0] in "01234567":
        return chr(int(code, 8))
    return _NAMED.get(code, code)


def _malformed(why: str) -> UsageError:
    return UsageError(f"sasl.jaas.config is malformed: {why}")
