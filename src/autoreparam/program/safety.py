"""What a model reads, checked before it is traced: JAX would change or miss it without a word."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autoreparam.program.arguments import named_leaves
from autoreparam.program.captured import captured, held_arrays
from autoreparam.program.numbers import refuse_stale, refuse_wrapped
from autoreparam.program.process import refuse_forked


def named_numbers(model: Callable, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the model is given or captures, by name, if JAX can compute with it."""
    refuse_forked()
    read = captured(model)
    refuse_stale({**read, **held_arrays(model)})
    named = {**read, **named_leaves(model, args, kwargs)}
    # What becomes of Python's own integers is seen later: they may never reach JAX.
    refuse_wrapped({name: x for name, x in named.items() if not isinstance(x, int)})
    return named
