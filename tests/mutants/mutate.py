"""Random changes to a document's values, and to bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from random import Random

Slot: TypeAlias = "tuple[Any, Any]"
"""A list or dict, and an index or key of it."""

_RAW = {f"@{name}@": literal for name, literal in (
    ("deep", b"[" * 2000),
    ("nested", b'{"a":' * 1500),
    ("huge", b"9" * 5000),
    ("large", b"9" * 400),
    ("infinite", b"1e999"),
    ("half", b"0.5"),
    ("nan", b"NaN"),
    ("minus", b"-Infinity"),
)}  # fmt: skip
"""Placeholder -> a literal that json.dumps does not write."""
_EDGES = (0, 1, 2, 31, 53, 62, 63, 64)
_TEXTS = ("", "\ud800", "\x1b[2J", "a\nb", "..", "A" * 300, "é", "0", "lane", "claim", "\x00")


def mutated(rng: Random, thing: Any) -> bytes:
    """The document as JSON after one to three changes to its values, made in place."""
    holder = [thing]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _change(rng, rng.choice(list(_slots(holder))), holder)
    raw = json.dumps(holder[0], separators=(",", ":")).encode()
    for sign, literal in _RAW.items():
        raw = raw.replace(b'"%s"' % sign.encode(), literal)
    return raw


def garbled(rng: Random, raw: bytes) -> bytes:
    """Bytes after one to three flips, cuts and copies."""
    changed = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 3))):
        if not changed:
            return bytes(changed)
        lo = rng.randrange(len(changed))
        hi = min(len(changed), lo + rng.randrange(1, 9))
        match rng.randrange(5):
            case 0:
                changed[lo] ^= 1 << rng.randrange(8)
            case 1:
                del changed[lo:]
            case 2:
                del changed[lo:hi]
            case 3:
                changed[lo:lo] = changed[lo:hi]
            case _:
                changed[lo:hi] = rng.randbytes(hi - lo)
    return bytes(changed)


def _slots(thing: Any) -> list[Slot]:
    """The slots of all values in a document."""
    found: list[Slot] = []
    left = [thing]
    while left:
        inner = left.pop()
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        for key in keys:
            found.append((inner, key))
            if isinstance(inner[key], (list, dict)):
                left.append(inner[key])
    return found


def _change(rng: Random, slot: Slot, document: Any) -> None:
    container, key = slot
    match rng.randrange(16):
        case 0 if container is not document:
            del container[key]
        case 1 if isinstance(container, list) and container is not document:
            container.insert(key, _copied(container[key]))
        case 2 if isinstance(container, list):
            rng.shuffle(container)
        case 3 if isinstance(container, dict):
            container[rng.choice(_TEXTS)] = container.pop(key)
        case 4:
            other, at = rng.choice(_slots(document))
            container[key] = _copied(other[at])
        case 5 if type(container[key]) is int:
            container[key] += rng.choice((-1, 1)) * (1 << rng.choice(_EDGES))
        case 6 | 7 | 8 | 9 | 10 if type(container[key]) is int:
            container[key] += rng.choice((-3, -2, -1, 1, 2, 3, 10))
        case 11 | 12 if isinstance(container, list) and container is not document:
            del container[key:]
        case _:
            container[key] = _value(rng)


def _value(rng: Random) -> Any:
    match rng.randrange(4):
        case 0:
            return rng.choice((-1, 1)) * (1 << rng.choice(_EDGES)) + rng.choice((-1, 0, 1))
        case 1:
            return rng.choice(_TEXTS)
        case 2:
            return rng.choice(list(_RAW))
        case _:
            return rng.choice(([], {}, None, True, [[]], {"v": 1}))


def _copied(thing: Any) -> Any:
    return json.loads(json.dumps(thing))
