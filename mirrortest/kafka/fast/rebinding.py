"""Copies of aiokafka's functions that use our classes.

aiokafka's classes create each other by global names of their modules, and take no classes as
arguments. Patching those names would change aiokafka for the entire process. Repeating the source
would take a few hundred lines. `rebound` copies a function and changes the globals of the copy.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any


def rebound(function: Any, **names: Any) -> Any:
    """Copy a function; in the copy, these global names refer to these objects.

    Raises:
        AttributeError: the function does not use one of the names.
    """
    for name in names:
        if name not in function.__code__.co_names:
            raise AttributeError(f"{function.__qualname__} does not use {name}")
    copy = FunctionType(
        function.__code__,
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__ = function.__qualname__
    return copy
