"""Election '88: whether respondents to the final polls meant to vote for Bush, by state.

Source: CBS polls, Gelman and Hill (2007), chapter 14; the model is the paper's. Corrections to its
published code and text:

- states are counted from 0: the published code used codes from 1 unchanged, which left state 51
  without an effect;
- the rows are 11566 respondents, not counties.

Alaska and Hawaii were not polled; their effects follow the prior.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from autoreparam.zoo.data import Loaded, read_json

STATES = 51  # fifty states and the District of Columbia


def election88(state, black, female, y=None):
    """Logistic regression of a vote on race and sex, with an intercept for every state."""
    with numpyro.plate("predictors", 2):
        beta = numpyro.sample("beta", dist.Normal(0.0, 100.0))
    mu = numpyro.sample("mu", dist.Normal(0.0, 100.0))
    log_tau = numpyro.sample("log_tau", dist.Normal(0.0, 10.0))
    with numpyro.plate("states", STATES):
        alpha = numpyro.sample("alpha", dist.Normal(mu, jnp.exp(log_tau)))
    with numpyro.plate("respondents", state.shape[0]):
        logits = alpha[state] + beta[0] * black + beta[1] * female
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def election88_grouped(state, black, female, n, y=None):
    """The same posterior as `election88`, from votes counted by state, race and sex."""
    with numpyro.plate("predictors", 2):
        beta = numpyro.sample("beta", dist.Normal(0.0, 100.0))
    mu = numpyro.sample("mu", dist.Normal(0.0, 100.0))
    log_tau = numpyro.sample("log_tau", dist.Normal(0.0, 10.0))
    with numpyro.plate("states", STATES):
        alpha = numpyro.sample("alpha", dist.Normal(mu, jnp.exp(log_tau)))
    with numpyro.plate("cells", state.shape[0]):
        logits = alpha[state] + beta[0] * black + beta[1] * female
        numpyro.sample("y", dist.Binomial(n, logits=logits), obs=y)


def load(grouped: bool = False) -> Loaded:
    """The model, with 11566 respondents; with `grouped`, the same from counts of identical ones."""
    arrays = parse(read_json("election88.data.json"))
    counts = {"respondents": len(arrays["y"]), "states": STATES}
    if not grouped:
        return election88, arrays, counts
    cells = group(arrays)
    return election88_grouped, cells, {**counts, "cells": len(cells["n"])}


def group(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """State, race and sex of each kind of respondent, how many there are, and their votes."""
    kinds = np.stack([arrays[key] for key in ("state", "black", "female")], axis=1)
    distinct, kind = np.unique(kinds, axis=0, return_inverse=True)
    return {
        "state": distinct[:, 0].astype(np.int32),
        "black": distinct[:, 1],
        "female": distinct[:, 2],
        "n": np.bincount(kind).astype(np.int32),
        "y": np.bincount(kind, weights=arrays["y"]).astype(np.int32),
    }


def parse(content: dict[str, Any]) -> dict[str, np.ndarray]:
    """State (counted from 0), race, sex and vote of each respondent."""
    return {
        "state": np.array(content["state"], dtype=np.int32) - 1,
        "black": np.array(content["black"], dtype=float),
        "female": np.array(content["female"], dtype=float),
        "y": np.array(content["y"], dtype=np.int32),
    }
