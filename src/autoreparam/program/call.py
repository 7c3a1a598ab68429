"""A call of a model: checked before the model runs, and in words where the model fails on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from autoreparam.errors import AutoreparamError, ModelError
from autoreparam.program.arguments import named_leaves
from autoreparam.program.failure import failed, raised_by
from autoreparam.program.numbers import refuse_wrapped
from autoreparam.program.safety import named_numbers
from autoreparam.program.unseeded import unseeded

VALUE_NEEDED = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


@dataclass(frozen=True, eq=False)
class Call:
    """A model without its `seed`, and what it is given: as arguments, and by name."""

    model: Callable
    args: tuple
    kwargs: dict
    named: Mapping[str, Any]
    read: Mapping[str, Any]  # the same, and what it captures

    @classmethod
    def of(cls, model: Any, args: Any, kwargs: Any) -> Call:
        """The call, if it can be one; an error that says what was expected if not."""
        if not callable(model):
            raise ModelError(
                f"expected a NumPyro model, a callable; found {type(model).__name__}. Pass the "
                "function itself, and its data as args and kwargs."
            )
        if isinstance(args, str) or not isinstance(args, tuple | list):
            raise ModelError(
                f"expected args as a tuple; found {type(args).__name__}. Write args=(x,)."
            )
        if kwargs is not None and not isinstance(kwargs, Mapping):
            raise ModelError(f"expected kwargs as a dict; found {type(kwargs).__name__}")
        model, args, kwargs = unseeded(model), tuple(args), dict(kwargs or {})
        read = named_numbers(model, args, kwargs)
        return cls(model, args, kwargs, named_leaves(model, args, kwargs), read)

    @contextmanager
    def in_words(self) -> Iterator[None]:
        """A run of the model, whose failure becomes a sentence unless it has words of its own."""
        try:
            yield
        except OverflowError as error:
            refuse_wrapped(self.read)
            raise failed(self.model, error, self.named) from error
        except VALUE_NEEDED as error:
            raise _valueless(self.args, self.kwargs, error) from error
        except AutoreparamError:
            raise
        except Exception as error:
            if raised_by(self.model, error):
                raise
            raise failed(self.model, error, self.named) from error


def _valueless(args: tuple, kwargs: dict, error: Exception) -> ModelError:
    for leaf in jax.tree.leaves((args, kwargs)):
        if hasattr(leaf, "__array__") and not isinstance(leaf, np.ndarray | jax.Array):
            return ModelError(
                f"the model cannot compute with an argument of type {type(leaf).__name__}. Pass it "
                "as an array: numpy.asarray(...)."
            )
    return ModelError(
        "the model's control flow depends on the value of a latent site, so it has no fixed set "
        "of sites. Use jnp.where or jax.lax.cond on the values instead of Python's `if`. JAX says: "
        f"{str(error).splitlines()[0]}"
    )
