"""The zoo's models with every site non-centered by hand, as tutorials teach it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.infer.reparam import Reparam

import autoreparam as ar
from autoreparam.program.families import unwrap

SCALES: dict[
    type, Callable[[Any], Any]
] = {  # of positive families, beside a distribution of scale 1
    dist.HalfNormal: lambda d: (d.scale, dist.HalfNormal(1.0)),
    dist.HalfCauchy: lambda d: (d.scale, dist.HalfCauchy(1.0)),
    dist.Exponential: lambda d: (1 / d.rate, dist.Exponential(1.0)),
    dist.Gamma: lambda d: (1 / d.rate, dist.Gamma(d.concentration, 1.0)),
}


class ByHand(Reparam):
    """`loc + scale * noise`, `loc + L @ noise` or `scale * noise`, with the noise as the site."""

    def __call__(self, name: str, fn: Any, obs: Any) -> tuple[None, Any]:
        """The value, made from noise of its own."""
        base, shape = unwrap(fn)[0], fn.shape()
        if isinstance(base, dist.MultivariateNormal):
            noise = self._noise(name, dist.Normal(0.0, 1.0), shape, fn.event_dim)
            return None, base.loc + jnp.einsum("...ij,...j->...i", base.scale_tril, noise)
        if type(base) in SCALES:
            scale, unit = SCALES[type(base)](base)
            return None, scale * self._noise(name, unit, shape, fn.event_dim)
        kept = {
            key: getattr(base, key) for key in base.arg_constraints if key not in ("loc", "scale")
        }
        unit = type(base)(loc=0.0, scale=1.0, **kept)
        return None, base.loc + base.scale * self._noise(name, unit, shape, fn.event_dim)

    @staticmethod
    def _noise(name: str, unit: Any, shape: tuple[int, ...], events: int) -> Any:
        return numpyro.sample(f"{name}_noise", unit.expand(shape).to_event(events))


def twin(problem: Any) -> Callable | None:
    """The model non-centered by hand; None where it has nothing to non-center."""
    if problem.model.__name__ in LOOPS:
        return LOOPS[problem.model.__name__]
    program = ar.inspect(problem.model, problem.args, problem.kwargs, implicit=False)
    sites = [site.name for site in program.candidates if site.parents]
    if not sites:
        return None
    return numpyro.handlers.reparam(problem.model, config={name: ByHand() for name in sites})


def co2_trend(year, observed, y):
    """The local linear trend, from innovations of unit scale."""
    sd_level = jnp.exp(numpyro.sample("log_sd_level", dist.Normal(-2.0, 1.0)))
    sd_slope = jnp.exp(numpyro.sample("log_sd_slope", dist.Normal(-2.0, 1.0)))
    sd_y = jnp.exp(numpyro.sample("log_sd_y", dist.Normal(-3.0, 1.0)))
    level_0 = numpyro.sample("level_0", dist.Normal(y[0], 1.0))
    slope_0 = numpyro.sample("slope_0", dist.Normal(0.0, 0.1))

    def step(previous, _):
        level, slope = previous
        level_next = level + slope + sd_level * numpyro.sample("level_noise", dist.Normal(0.0, 1.0))
        slope_next = slope + sd_slope * numpyro.sample("slope_noise", dist.Normal(0.0, 1.0))
        numpyro.deterministic("level", level_next)
        numpyro.deterministic("slope", slope_next)
        return (level_next, slope_next), level_next

    _, later = scan(step, (level_0, slope_0), None, length=year.shape[0] - 1)
    level = jnp.append(level_0, later)
    with numpyro.plate("observations", y.shape[0]):
        numpyro.sample("y", dist.Normal(level[observed], sd_y), obs=y)


def stochastic_volatility(y):
    """The stochastic volatility model, from innovations of unit scale."""
    to_interval = dist.transforms.AffineTransform(-1.0, 2.0, domain=dist.constraints.unit_interval)
    phi = numpyro.sample("phi", dist.TransformedDistribution(dist.Beta(20.0, 1.5), to_interval))
    mu = numpyro.sample("mu", dist.Normal(-1.0, 2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
    first = numpyro.sample("h_1_noise", dist.Normal(0.0, 1.0))
    h_1 = numpyro.deterministic("h_1", mu + sigma / jnp.sqrt(1 - phi**2) * first)
    with numpyro.plate("later_days", y.shape[0] - 1):
        noise = numpyro.sample("h_noise", dist.Normal(0.0, 1.0))

    def step(previous, noise):
        h = mu + phi * (previous - mu) + sigma * noise
        return h, h

    _, later = jax.lax.scan(step, h_1, noise)
    log_variance = jnp.append(h_1, numpyro.deterministic("h", later))
    with numpyro.plate("days", y.shape[0]):
        numpyro.sample("y", dist.Normal(0.0, jnp.exp(log_variance / 2)), obs=y)


LOOPS = {"co2_trend": co2_trend, "stochastic_volatility": stochastic_volatility}
