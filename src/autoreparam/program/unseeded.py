"""A model inside its handlers: without the random key of a `seed`, and what it takes."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from inspect import Signature, signature

from numpyro.handlers import seed
from numpyro.primitives import Messenger


def unseeded(model: Callable) -> Callable:
    """The model with every `seed` around it taken off; with it, all draws would be the same."""
    if not isinstance(model, Messenger) or model.fn is None:
        return model
    inner = unseeded(model.fn)
    if isinstance(model, seed):
        return inner
    if inner is model.fn:
        return model
    outer = copy(model)
    outer.fn = inner
    return outer


def signature_of(model: Callable) -> Signature:
    """What the model takes, inside the handlers around it."""
    while isinstance(model, Messenger) and model.fn is not None:
        model = model.fn
    return signature(model)
