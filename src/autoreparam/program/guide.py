"""What is fitted beside a rewritten model: its mean-field guide, and λ as NumPyro params."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import biject_to, constraints
from numpyro.handlers import block
from numpyro.primitives import Messenger

from autoreparam.program.handlers import reparameterize
from autoreparam.program.parameterization import Parameterization


class MeanField(Messenger):
    """Replaces each latent by an independent Normal in unconstrained coordinates, with params."""

    def __init__(self, init_scale: float = 0.1):
        super().__init__()
        self.init_scale = init_scale

    def process_message(self, msg) -> None:
        """Gives a latent its Normal; what is observed or set already stays."""
        if msg["type"] != "sample" or msg["is_observed"] or msg["value"] is not None:
            return
        name, fn = msg["name"], msg["fn"]
        transform = biject_to(fn.support)
        shape = transform.inverse_shape(fn.shape())
        loc = numpyro.param(f"{name}_loc", jnp.zeros(shape))
        scale = numpyro.param(
            f"{name}_scale", jnp.full(shape, self.init_scale), constraint=constraints.positive
        )
        free = dist.Normal(loc, scale).to_event(transform.domain.event_dim)
        msg["fn"] = dist.TransformedDistribution(free, transform)
        msg["scale"] = None  # part of the model's own density, not of its approximation


def mean_field(model: Callable, init_scale: float = 0.1) -> Callable:
    """A NumPyro guide for the model: independent Normals over its unconstrained latents."""

    def guide(*args, **kwargs):
        hide = block(hide_fn=lambda msg: msg["type"] == "deterministic" or msg.get("is_observed"))
        with hide, MeanField(init_scale):
            model(*args, **kwargs)

    return guide


def learnable(model: Callable, start: Parameterization) -> Callable:
    """The model with λ itself as NumPyro params, `<name>_lam`, to be fitted with a guide."""

    def vip_model(*args, **kwargs):
        lam = {
            name: numpyro.param(f"{name}_lam", start[name], constraint=constraints.unit_interval)
            for name in start.sites
        }
        return reparameterize(model, start.replace(lam))(*args, **kwargs)

    return vip_model
