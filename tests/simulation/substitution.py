"""Temporarily replaces real parts inside `mirrortest` by simulated ones, by identity.

Wherever a loaded module of the package refers to a replaced object (as a global, or as the default
of an argument), it refers to the replacement until the context ends.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PACKAGE = "mirrortest."


@contextmanager
def substituted(pairs: Iterable[tuple[Any, Any]]) -> Iterator[None]:
    """Replace the first object of each pair by the second."""
    by_id = {id(old): (old, new) for old, new in pairs}
    undo: list[tuple[Any, str, Any]] = []

    def put(owner: Any, name: str, value: Any) -> None:
        undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    for module in [m for name, m in sys.modules.items() if name.startswith(_PACKAGE)]:
        for name, value in list(vars(module).items()):
            if id(value) in by_id:
                put(module, name, by_id[id(value)][1])
        for function in _functions(module):
            defaults, named = function.__defaults__, function.__kwdefaults__
            if defaults and any(id(value) in by_id for value in defaults):
                new = tuple(by_id.get(id(value), (value, value))[1] for value in defaults)
                put(function, "__defaults__", new)
            if named and any(id(value) in by_id for value in named.values()):
                put(
                    function,
                    "__kwdefaults__",
                    {key: by_id.get(id(value), (value, value))[1] for key, value in named.items()},
                )
    try:
        yield
    finally:
        for owner, name, value in reversed(undo):
            setattr(owner, name, value)


def _functions(module: Any) -> Iterator[FunctionType]:
    """The functions that a module defines, including those of its classes."""
    for value in list(vars(module).values()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, FunctionType):
            yield value
        elif isinstance(value, type):
            for member in vars(value).values():
                inner = getattr(member, "__func__", member)
                if isinstance(inner, FunctionType):
                    yield inner
