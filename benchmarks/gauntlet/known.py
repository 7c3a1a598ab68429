"""Posteriors known to break samplers, written as people write them.

The data of eight of them are not ours to ship: they are read from the folder `gauntlet` of
`AUTOREPARAM_DATA` (stan-dev/posteriordb, BSD-3-Clause). The others are simulated here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.gauntlet.exact import SCHOOL_ERRORS, SCHOOL_MEANS, SEEN, simulate_walk


def load_known(name: str) -> tuple[Callable, dict[str, Any]]:
    """A model by name and its arguments."""
    model, read = MODELS[name]
    return model, read()


def _stored(name: str, rename: dict[str, str]) -> Callable[[], dict[str, Any]]:
    """Reads a data file; `rename` says which of its fields become which arguments."""

    def read() -> dict[str, Any]:
        if "AUTOREPARAM_DATA" not in os.environ:
            raise FileNotFoundError("set AUTOREPARAM_DATA to the folder that holds gauntlet/")
        text = (Path(os.environ["AUTOREPARAM_DATA"]) / "gauntlet" / f"{name}.json").read_text()
        fields = json.loads(text)
        return {argument: np.array(fields[field]) for field, argument in rename.items()}

    return read


def poisson_glmm(year, y):
    alpha = numpyro.sample("alpha", dist.Uniform(-20, 20))
    beta = numpyro.sample("beta", dist.Uniform(-10, 10).expand([3]).to_event(1))
    sigma = numpyro.sample("sigma", dist.Uniform(0, 5))
    with numpyro.plate("years", len(year)):
        eps = numpyro.sample("eps", dist.Normal(0, sigma))
        log_rate = alpha + beta[0] * year + beta[1] * year**2 + beta[2] * year**3 + eps
        numpyro.sample("y", dist.Poisson(jnp.exp(log_rate)), obs=y)


def mcycle_splines(X, Z, X_sigma, Z_sigma, y):
    intercept = numpyro.sample("intercept", dist.StudentT(3, -13, 36))
    bs = numpyro.sample("bs", dist.Normal(0, 1000).expand([X.shape[1]]).to_event(1))
    sds = numpyro.sample("sds", dist.HalfCauchy(36))
    intercept_sigma = numpyro.sample("intercept_sigma", dist.StudentT(3, 0, 10))
    bs_sigma = numpyro.sample("bs_sigma", dist.Normal(0, 100).expand([X.shape[1]]).to_event(1))
    sds_sigma = numpyro.sample("sds_sigma", dist.HalfCauchy(36))
    with numpyro.plate("knots", Z.shape[1]):
        s = numpyro.sample("s", dist.Normal(0, sds))
    with numpyro.plate("knots_sigma", Z_sigma.shape[1]):
        t = numpyro.sample("t", dist.Normal(0, sds_sigma))
    scale = jnp.exp(intercept_sigma + X_sigma @ bs_sigma + Z_sigma @ t)
    numpyro.sample("y", dist.Normal(intercept + X @ bs + Z @ s, scale), obs=y)


def surgical(total, y):
    mu = numpyro.sample("mu", dist.Normal(0, 1000))
    variance = numpyro.sample("variance", dist.InverseGamma(0.001, 0.001))
    with numpyro.plate("hospitals", len(y)):
        b = numpyro.sample("b", dist.Normal(mu, jnp.sqrt(variance)))
        numpyro.sample("y", dist.Binomial(total, logits=b), obs=y)


def seeds(total, x1, x2, y):
    a = numpyro.sample("a", dist.Normal(0, 1).expand([4]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(1))
    with numpyro.plate("plates", len(y)):
        b = numpyro.sample("b", dist.Normal(0, sigma))
        logits = a[0] + a[1] * x1 + a[2] * x2 + a[3] * x1 * x2 + b
        numpyro.sample("y", dist.Binomial(total, logits=logits), obs=y)


def pilots(group, scenario, y):
    mu_a = numpyro.sample("mu_a", dist.Normal(0, 1))
    mu_b = numpyro.sample("mu_b", dist.Normal(0, 1))
    sigma_a = numpyro.sample("sigma_a", dist.Uniform(0, 100))
    sigma_b = numpyro.sample("sigma_b", dist.Uniform(0, 100))
    sigma_y = numpyro.sample("sigma_y", dist.Uniform(0, 100))
    with numpyro.plate("groups", 5):
        a = numpyro.sample("a", dist.Normal(10 * mu_a, sigma_a))
    with numpyro.plate("scenarios", 8):
        b = numpyro.sample("b", dist.Normal(10 * mu_b, sigma_b))
    numpyro.sample("y", dist.Normal(a[group - 1] + b[scenario - 1], sigma_y), obs=y)


def rats(rat, x, center, y):
    mu_a = numpyro.sample("mu_a", dist.Normal(0, 100))
    mu_b = numpyro.sample("mu_b", dist.Normal(0, 100))
    sigma_a = numpyro.sample("sigma_a", dist.HalfNormal(100))
    sigma_b = numpyro.sample("sigma_b", dist.HalfNormal(100))
    sigma_y = numpyro.sample("sigma_y", dist.HalfNormal(100))
    with numpyro.plate("rats", 30):
        a = numpyro.sample("a", dist.Normal(mu_a, sigma_a))
        b = numpyro.sample("b", dist.Normal(mu_b, sigma_b))
    numpyro.sample("y", dist.Normal(a[rat - 1] + b[rat - 1] * (x - center), sigma_y), obs=y)


def dogs(y):
    mu = numpyro.sample("mu", dist.Logistic(0, 1).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1).expand([2]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(2, 2.0))
    with numpyro.plate("dogs", y.shape[0]):
        ab = numpyro.sample("ab", dist.MultivariateNormal(mu, scale_tril=sigma[:, None] * factor))
    before = jnp.cumsum(y, axis=1) - y
    avoided = jnp.arange(y.shape[1]) - before
    log_share = -jnp.logaddexp(0, -ab)  # log of the logistic function
    log_shock = before * log_share[:, :1] + avoided * log_share[:, 1:]
    # The first trial is a shock for certain, and the data agree.
    log_avoid = jnp.log1p(-jnp.exp(jnp.where(log_shock < 0, log_shock, -1.0)))
    numpyro.factor("y", jnp.where(y == 1, log_shock, log_avoid).sum())


def gp_poisson(x, y):
    rho = numpyro.sample("rho", dist.Gamma(25, 4))
    alpha = numpyro.sample("alpha", dist.HalfNormal(2))
    squares = (x[:, None] - x) ** 2
    covariance = alpha**2 * jnp.exp(-0.5 * squares / rho**2) + 1e-6 * jnp.eye(len(x))
    f = numpyro.sample("f", dist.MultivariateNormal(jnp.zeros(len(x)), covariance))
    numpyro.sample("y", dist.Poisson(jnp.exp(f)).to_event(1), obs=y)


def sleep_study(subject, day, y):
    beta = numpyro.sample(
        "beta", dist.Normal(jnp.array([250.0, 10.0]), jnp.array([50.0, 10.0])).to_event(1)
    )
    sd = numpyro.sample("sd", dist.HalfNormal(jnp.array([50.0, 20.0])).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(2, 2.0))
    with numpyro.plate("subjects", 18):
        b = numpyro.sample("b", dist.MultivariateNormal(beta, scale_tril=sd[:, None] * factor))
    sigma = numpyro.sample("sigma", dist.HalfNormal(50))
    numpyro.sample("y", dist.Normal(b[subject, 0] + b[subject, 1] * day, sigma), obs=y)


def _simulate_sleep() -> dict[str, Any]:
    rng = np.random.default_rng(2026)
    sd, correlation = np.array([24.0, 6.0]), np.array([[1, 0.1], [0.1, 1]])
    b = np.array([251.0, 10.4]) + rng.normal(size=(18, 2)) @ np.linalg.cholesky(correlation).T * sd
    subject, day = np.repeat(np.arange(18), 10), np.tile(np.arange(10.0), 18)
    y = rng.normal(b[subject, 0] + b[subject, 1] * day, 25.0)
    return {"subject": subject, "day": day, "y": y}


def random_walk(y):
    step = numpyro.sample("step", dist.LogNormal(0, 2))
    noise = numpyro.sample("noise", dist.LogNormal(0, 2))
    walk = numpyro.sample("walk", dist.GaussianRandomWalk(step, num_steps=len(SEEN)))
    numpyro.sample("y", dist.Normal(walk[np.flatnonzero(SEEN)], noise), obs=y)


def opaque_funnel():
    """Neal's funnel by a factor: no site shows that x depends on z."""
    z = numpyro.sample("z", dist.Normal(0, 3))
    flat = dist.ImproperUniform(dist.constraints.real_vector, (), (9,))
    x = numpyro.sample("x", flat)
    numpyro.factor("funnel", dist.Normal(0, jnp.exp(z / 2)).log_prob(x).sum())


def eight_schools(error, y):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    log_tau = numpyro.sample("log_tau", dist.Normal(0, 5))
    with numpyro.plate("schools", 8):
        theta = numpyro.sample("theta", dist.Normal(mu, jnp.exp(log_tau)))
        numpyro.sample("y", dist.Normal(theta, error), obs=y)


def pumps(time, y):
    """Gaver and O'Muircheartaigh (1987): failures of ten pumps."""
    shape = numpyro.sample("shape", dist.Exponential(1.0))
    rate = numpyro.sample("rate", dist.Gamma(0.1, 1.0))
    with numpyro.plate("pumps", 10):
        failures = numpyro.sample("failures", dist.Gamma(shape, rate))
        numpyro.sample("y", dist.Poisson(failures * time), obs=y)


def batting(y):
    """Efron and Morris (1975): hits of 18 players, each in 45 times at bat."""
    mean = numpyro.sample("mean", dist.Uniform(0.0, 1.0))
    likeness = numpyro.sample("likeness", dist.Pareto(1.0, 1.5))
    with numpyro.plate("players", 18):
        chance = numpyro.sample("chance", dist.Beta(mean * likeness, (1 - mean) * likeness))
        numpyro.sample("y", dist.Binomial(45, chance), obs=y)


MODELS: dict[str, tuple[Callable, Callable[[], dict[str, Any]]]] = {
    "poisson_glmm": (poisson_glmm, _stored("GLMM_Poisson_data", {"year": "year", "C": "y"})),
    "mcycle_splines": (mcycle_splines, _stored("mcycle_splines", {
        "Xs": "X", "Zs_1_1": "Z", "Xs_sigma": "X_sigma", "Zs_sigma_1_1": "Z_sigma", "Y": "y"})),
    "surgical": (surgical, _stored("surgical_data", {"n": "total", "r": "y"})),
    "seeds": (seeds, _stored("seeds_data", {"N": "total", "x1": "x1", "x2": "x2", "n": "y"})),
    "pilots": (pilots, _stored("pilots", {
        "group_id": "group", "scenario_id": "scenario", "y": "y"})),
    "rats": (rats, _stored("rats_data", {"rat": "rat", "x": "x", "xbar": "center", "y": "y"})),
    "dogs": (dogs, _stored("dogs", {"y": "y"})),
    "gp_poisson": (gp_poisson, _stored("gp_pois_regr", {"x": "x", "k": "y"})),
    "sleep_study": (sleep_study, _simulate_sleep),
    "random_walk": (random_walk, lambda: {"y": simulate_walk()}),
    "opaque_funnel": (opaque_funnel, dict),
    "eight_schools": (eight_schools, lambda: {"error": SCHOOL_ERRORS, "y": SCHOOL_MEANS}),
    "pumps": (pumps, lambda: {
        "time": np.array([94.3, 15.7, 62.9, 126.0, 5.24, 31.4, 1.05, 1.05, 2.1, 10.5]),
        "y": np.array([5, 1, 5, 14, 3, 19, 1, 1, 4, 22])}),
    "batting": (batting, lambda: {
        "y": np.array([18, 17, 16, 15, 14, 14, 13, 12, 11, 11, 10, 10, 10, 10, 10, 9, 8, 7])}),
}  # fmt: skip
