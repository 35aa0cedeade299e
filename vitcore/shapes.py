"""Shapes without compilation: the meta device in a process that compiles nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

DYNAMO = "torch._dynamo"
T = TypeVar("T")


class StandIn(ModuleType):
    """For torch._dynamo, where all that is asked of it is to leave a function alone."""

    def __init__(self) -> None:
        super().__init__(DYNAMO)
        self.left_alone: list[Callable[..., Any]] = []

    def disable(self, function: Callable[..., Any], *_: object, **__: object) -> Callable[..., Any]:
        self.left_alone.append(function)
        return function


def uncompiled(compute: Callable[[], T]) -> T:
    """What `compute` gives, without torch._dynamo; a part that asks for that itself gets it."""
    try:
        with without_dynamo():
            return compute()
    except (AttributeError, ImportError):
        return compute()


@contextmanager
def without_dynamo() -> Iterator[None]:
    """Inside, nothing is compiled; what asks for more of torch._dynamo fails (AttributeError, ImportError).

    On the meta device PyTorch computes shapes in Python, by functions that at their first call ask torch._dynamo not
    to look into them: its import takes as long as torch's own, in every `ablate plan`. What they remember of the answer
    (`__dynamo_disable`, torch/_compile.py) is forgotten again, so that a compilation later finds them as they were.
    """
    if DYNAMO in sys.modules:
        yield
        return
    sys.modules[DYNAMO] = stand_in = StandIn()
    try:
        yield
    finally:
        del sys.modules[DYNAMO]
        for function in stand_in.left_alone:
            vars(function).pop("__dynamo_disable", None)
