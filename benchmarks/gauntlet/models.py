"""Generated models as plain NumPyro code, put together from their description."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.scipy.stats import norm

from benchmarks.gauntlet.generator import IDENTITY, Effect, Spec, power_of_ten
from benchmarks.gauntlet.simulate import EFFECT_DF, contribution, process_covariance


def build_model(spec: Spec) -> Callable:
    """The model of a description, centered throughout, as people write it."""

    def model(**data):
        eta = jnp.zeros(len(data["x"]))
        if spec.likelihood != "ordered":
            eta += numpyro.sample("intercept", dist.Normal(0.0, spec.intercept_width))
        if spec.covariates:
            widths = [max(1.0, power_of_ten(10 * spec.unit / one.unit)) for one in spec.covariates]
            beta = numpyro.sample("beta", dist.Normal(0.0, jnp.array(widths)).to_event(1))
            eta += data["x"] @ beta
        values = {}
        for effect in spec.effects:
            loc = values[effect.parent][data[f"{effect.name}_parent"]] if effect.parent else 0.0
            values[effect.name] = _sample_effect(spec, effect, loc)
            if not spec.children(effect):
                eta += contribution(jnp, spec, effect, values[effect.name], data)
        _observe(spec, eta, data)

    return model


def _sample_scale(name: str, prior: str, width):
    """A scale with its prior; a vague prior of the variance is a site of its own."""
    priors = {
        "half_normal": lambda: dist.HalfNormal(width),
        "half_cauchy": lambda: dist.HalfCauchy(width),
        "exponential": lambda: dist.Exponential(1 / width),
        "uniform": lambda: dist.Uniform(0.0, 100.0 * width),
        "log_normal": lambda: dist.LogNormal(jnp.log(width), 2.0),
        "inverse_gamma": lambda: dist.InverseGamma(jnp.full(jnp.shape(width), 0.001), 0.001),
    }
    chosen = priors[prior]().to_event(jnp.ndim(width))
    if prior == "inverse_gamma":
        return jnp.sqrt(numpyro.sample(f"{name}_squared", chosen))
    return numpyro.sample(name, chosen)


def _sample_effect(spec: Spec, effect: Effect, loc):
    name, groups, width = effect.name, effect.groups, effect.width
    if effect.kind == "correlated":
        slope = spec.covariates[effect.covariate].unit
        floor = 0.0 if effect.prior == "log_normal" else 1.0
        width = jnp.array([width, max(floor, power_of_ten(effect.truth / slope))])
    scale = _sample_scale(f"scale_{name}", effect.prior, width)
    if effect.kind == "walk":
        return numpyro.sample(name, dist.GaussianRandomWalk(scale, num_steps=groups))
    if effect.kind == "gp":
        length = numpyro.sample(f"length_{name}", dist.InverseGamma(5.0, 1.0))
        covariance = process_covariance(jnp, groups, scale, length)
        return numpyro.sample(name, dist.MultivariateNormal(jnp.zeros(groups), covariance))
    if effect.kind == "correlated":
        factor = numpyro.sample(f"factor_{name}", dist.LKJCholesky(2, 2.0))
        tril = scale[:, None] * factor
        with numpyro.plate(f"groups_{name}", groups):
            return numpyro.sample(name, dist.MultivariateNormal(jnp.zeros(2), scale_tril=tril))
    family = {
        "normal": lambda: dist.Normal(loc, scale),
        "student_t": lambda: dist.StudentT(EFFECT_DF, loc, scale),
        "log_normal": lambda: dist.LogNormal(loc, scale),
        "gamma": lambda: dist.Gamma(scale**-2, scale**-2),
    }[effect.kind]
    with numpyro.plate(f"groups_{name}", groups):
        return numpyro.sample(name, family())


def _observe(spec: Spec, eta, data) -> None:
    y = data["y"]
    sigma = None
    if spec.likelihood in IDENTITY:
        width = max(1.0, power_of_ten(spec.unit))
        sigma = _sample_scale("scale_noise", spec.noise_prior, width)
    if spec.likelihood == "censored":
        # Above the limit only the fact is known.
        terms = jnp.where(data["censored"], norm.logsf(y, eta, sigma), norm.logpdf(y, eta, sigma))
        numpyro.factor("outcome", terms.sum())
        return
    match spec.likelihood:
        case "normal":
            outcome = dist.Normal(eta, sigma)
        case "student_t":
            outcome = dist.StudentT(numpyro.sample("df", dist.Gamma(2.0, 0.1)), eta, sigma)
        case "poisson":
            outcome = dist.Poisson(jnp.exp(eta))
        case "negative_binomial":
            concentration = numpyro.sample("concentration", dist.Exponential(0.1))
            outcome = dist.NegativeBinomial2(jnp.exp(eta), concentration)
        case "bernoulli":
            outcome = dist.Bernoulli(logits=eta)
        case "binomial":
            outcome = dist.Binomial(data["total"], logits=eta)
        case "ordered":
            cutpoints = numpyro.sample("cutpoints", dist.TransformedDistribution(
                dist.Normal(0, 3).expand([3]).to_event(1),
                dist.transforms.OrderedTransform()))  # fmt: skip
            outcome = dist.OrderedLogistic(eta, cutpoints)
    with numpyro.plate("observations", len(y)):
        numpyro.sample("y", outcome, obs=y)
