"""How a function of aiokafka's is made to use a class of ours.

aiokafka's classes create each other by names of their modules, and take no classes as arguments.
Replacing those names would change aiokafka for the entire process; repeating the functions
would be a few hundred lines. `rebound` copies a function and changes what the copy finds by a name.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any


def rebound(function: Any, **names: Any) -> Any:
    """A copy of a function that finds these objects by these of its module's names.

    Raises:
        AttributeError: the function uses no such name.
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
