"""Sites that a `block` inside the model hides from every handler around it."""

from __future__ import annotations

import sys
from types import FrameType

from numpyro.handlers import block

from autoreparam.errors import ModelError


def asked_for_key() -> ModelError:
    """The error for a model that asks for a random key, by itself or through a `block`.

    A `block` asks for one on behalf of a latent that it hides; only its frame knows which.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        hiding, msg = frame.f_locals.get("self"), frame.f_locals.get("msg")
        if isinstance(hiding, block) and msg is not None:
            return _hidden(msg)
        frame = frame.f_back
    return ModelError(
        "the model asks for a random key with numpyro.prng_key(). All that is random in a "
        "posterior are its latents: draw the noise with numpyro.sample, or pass it as an argument."
    )


def _hidden(msg) -> ModelError:
    if msg["type"] == "sample":
        name = msg["name"]
        return ModelError(
            f"site '{name}' is hidden by numpyro.handlers.block, so it has no place in the "
            f"posterior. Remove '{name}' from what the block hides, or give it a value inside the "
            f"block: block(substitute(model, data={{'{name}': ...}}), hide=['{name}'])."
        )
    what = f"plate '{msg['name']}'" if msg["type"] == "plate" else "a scan or cond"
    return ModelError(
        f"{what} is hidden by numpyro.handlers.block, and whatever is in it. Let the block hide "
        "deterministic sites only: block(model, hide=['name']) with their names."
    )
