"""A model that fails on its data, in a sentence: what it said, where, and what it was given."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autoreparam.errors import ModelError
from autoreparam.program.unseeded import signature_of


def failed(model: Callable, error: Exception, given: Mapping[str, Any]) -> ModelError:
    """The error that says where the model failed, and on which arguments."""
    name = getattr(model, "__name__", type(model).__name__)
    place = at_line(error, _file(model))
    texts = [key for key, value in given.items() if _holds_text(value)]
    shapes = ", ".join(f"{key} {_shape(value)}" for key, value in given.items())
    advice = "Do the shapes match each other and the model's plates?"
    if isinstance(error, TypeError) and str(error).startswith(f"{name}() "):
        advice = f"It takes {_takes(model)}."
    elif texts:
        advice = f"'{texts[0]}' holds text, and a model computes with numbers: code it as 0, 1, ..."
    return ModelError(
        f"the model '{name}' failed on its data: {place}\n"
        f"It was called with {shapes or 'no data'}. {advice}"
    )


def _takes(model: Callable) -> str:
    words = str(signature_of(model))
    return words.partition(" -> ")[0]


def raised_by(model: Callable, error: BaseException) -> bool:
    """Whether the model itself raised the error, in words of its author's."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or Path(frames[-1].filename).absolute() != _file(model).absolute():
        return False
    return (frames[-1].line or "").startswith(("raise", "assert"))


def _file(model: Callable) -> Path:
    code = getattr(inspect.unwrap(model), "__code__", None)
    return Path(code.co_filename) if code else Path()


def at_line(error: BaseException, path: Path) -> str:
    """The error with the last line of the user's own file that led to it."""
    said = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if Path(f.filename).absolute() == path.absolute()]
    if isinstance(error, SyntaxError) or not own:
        return said
    return f"{said} (line {own[-1].lineno}: {own[-1].line})"


def _shape(value: Any) -> str:
    if np.ndim(value) > 0:
        return f"of shape {np.shape(value)}"
    return f"= {value}" if isinstance(value, np.ndarray | str | float | int) else (
        f"of type {type(value).__name__}"
    )  # fmt: skip


def _holds_text(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    return isinstance(value, str) or getattr(dtype, "kind", "") in ("U", "S", "O", "T")
