"""Data drawn from a generated model with true scales of sensible size."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from benchmarks.gauntlet.generator import IDENTITY, MULTIPLES, Effect, Spec, draw_index

SLOPE = 0.3  # of a positive slope in standard units
CORRELATION, EFFECT_DF, NOISE_DF, CONCENTRATION = 0.3, 4.0, 5.0, 3.0
CUTPOINTS = np.array([-1.5, 0.0, 1.5])
JITTER = 1e-4  # relative to a Gaussian process's variance: enough for single precision
CENSORED = 0.8  # the quantile above which outcomes are not seen


def draw_data(spec: Spec) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of a model, and the values of its latents that they were drawn with."""
    rng = np.random.default_rng([spec.seed, 3])
    data: dict[str, Any] = draw_index(spec)
    count = len(data[spec_lowest(spec).name])
    x = np.zeros((count, len(spec.covariates)))
    for column, one in enumerate(spec.covariates):
        x[:, column] = one.unit * (one.offset + rng.normal(size=count))
    data["x"] = x
    truth: dict[str, Any] = {}
    eta = np.zeros(count)
    if spec.likelihood != "ordered":
        truth["intercept"] = spec.unit * rng.normal(0.5, 0.5)
        eta += truth["intercept"]
    if spec.covariates:
        units = np.array([one.unit for one in spec.covariates])
        truth["beta"] = spec.unit * rng.normal(0, 0.3, len(units)) / units
        eta += x @ truth["beta"]
    for effect in spec.effects:
        truth |= _scale(f"scale_{effect.name}", effect.prior, _scales(spec, effect))
        truth |= _values(rng, spec, effect, data, truth)
        if not spec.children(effect):
            eta += contribution(np, spec, effect, truth[effect.name], data)
    truth |= _outcome(rng, spec, eta, data)
    return data, truth


def spec_lowest(spec: Spec) -> Effect:
    """The effect whose groups the observations were laid out by."""
    return next(effect for effect in spec.effects if not spec.children(effect))


def contribution(numpy, spec: Spec, effect: Effect, value, data):
    """What an effect adds to the linear predictor, in NumPy or JAX."""
    index = data[effect.name]
    x = data["x"][:, effect.covariate] if effect.covariate >= 0 else None
    if effect.kind == "correlated":
        return value[index, 0] + value[index, 1] * x
    if effect.kind in MULTIPLES:
        if x is not None:
            return SLOPE * spec.unit / spec.covariates[effect.covariate].unit * value[index] * x
        if spec.likelihood not in IDENTITY:
            return numpy.log(value)[index]
        return spec.unit * value[index]
    return value[index] if x is None else value[index] * x


def process_covariance(numpy, groups: int, scale, length):
    """Covariance of a smooth Gaussian process at equally spaced times in (0, 1)."""
    times = np.linspace(0, 1, groups)
    squares = (times[:, None] - times) ** 2
    return scale**2 * (numpy.exp(-0.5 * squares / length**2) + JITTER * np.eye(groups))


def _scale(name: str, prior: str, value) -> dict[str, Any]:
    return {f"{name}_squared": value**2} if prior == "inverse_gamma" else {name: value}


def _scales(spec: Spec, effect: Effect):
    """The true scale, or two of them for an intercept with a slope."""
    if effect.kind != "correlated":
        return effect.truth
    return effect.truth * np.array([1.0, 1 / spec.covariates[effect.covariate].unit])


def _values(rng, spec, effect, data, truth) -> dict[str, Any]:
    name, groups, scale = effect.name, effect.groups, _scales(spec, effect)
    loc = truth[effect.parent][data[f"{name}_parent"]] if effect.parent else np.zeros(groups)
    match effect.kind:
        case "normal":
            return {name: rng.normal(loc, scale)}
        case "student_t":
            return {name: loc + scale * rng.standard_t(EFFECT_DF, groups)}
        case "log_normal":
            return {name: np.exp(rng.normal(loc, scale))}
        case "gamma":
            return {name: rng.gamma(scale**-2, scale**2, groups)}
        case "walk":
            return {name: np.cumsum(rng.normal(0, scale, groups))}
        case "gp":
            length = rng.uniform(0.1, 0.4)
            factor = np.linalg.cholesky(process_covariance(np, groups, scale, length))
            return {name: factor @ rng.normal(size=groups), f"length_{name}": length}
    factor = np.linalg.cholesky(np.array([[1, CORRELATION], [CORRELATION, 1]]))
    draws = rng.normal(size=(groups, 2)) @ (scale[:, None] * factor).T
    return {name: draws, f"factor_{name}": factor}


def _outcome(rng, spec: Spec, eta: np.ndarray, data: dict[str, Any]) -> dict[str, Any]:
    """Puts outcomes into the data; gives back the true values of the likelihood's own latents."""
    count = len(eta)
    sigma = spec.unit * float(np.exp(rng.uniform(np.log(0.2), np.log(2))))
    noise = _scale("scale_noise", spec.noise_prior, sigma)
    # No draw of a heavy tail is to give a count that no user has seen.
    rate, share = np.exp(np.minimum(eta, 8)), expit(eta)
    match spec.likelihood:
        case "normal":
            data["y"] = rng.normal(eta, sigma)
            return noise
        case "student_t":
            data["y"] = eta + sigma * rng.standard_t(NOISE_DF, count)
            return {**noise, "df": NOISE_DF}
        case "poisson":
            data["y"] = rng.poisson(rate)
        case "negative_binomial":
            data["y"] = rng.poisson(rate * rng.gamma(CONCENTRATION, 1 / CONCENTRATION, count))
            return {"concentration": CONCENTRATION}
        case "bernoulli":
            data["y"] = rng.binomial(1, share)
        case "binomial":
            data["total"] = rng.integers(1, 51, count)
            data["y"] = rng.binomial(data["total"], share)
        case "ordered":
            shares = expit(CUTPOINTS - eta[:, None])
            data["y"] = (rng.random((count, 1)) > shares).sum(axis=1)
            return {"cutpoints": CUTPOINTS}
        case "censored":
            y = rng.normal(eta, sigma)
            limit = float(np.quantile(y, CENSORED))
            data["y"], data["censored"] = np.minimum(y, limit), y > limit
            return noise
    return {}
