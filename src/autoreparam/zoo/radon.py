"""Radon in the homes of a state, by county, with the county's uranium and the floor measured.

Source: the state residential radon survey of the EPA, distributed with Gelman and Hill (2007); the
models are the paper's. Corrections to the paper's published code, all undone by
`as_published=True`:

- uranium is matched to a county by its fips code, not by its position in a table;
- floor code 9 means unknown: such homes are left out, not taken to be on a ninth floor;
- floors 1 to 3 all count as above ground;
- a county is a fips code, so that homes with a blank county name do not make a county;
- the logarithm of uranium is log(Uppm + 0.1), because some counties have 0.
"""

import csv
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from autoreparam.errors import DataError, known
from autoreparam.zoo.data import Loaded, read_text

STATES = ("MN", "IN", "PA", "MO", "ND", "MA", "AZ")
_UNKNOWN_FLOOR = 9

Row = dict[str, str]


def radon(county, floor, uranium, log_r=None):
    """Log radon of homes: county intercepts that follow uranium, a floor effect, unit scales."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with numpyro.plate("counties", uranium.shape[0]):
        m = numpyro.sample("m", dist.Normal(mu + a * uranium, 1.0))
    with numpyro.plate("homes", county.shape[0]):
        numpyro.sample("log_r", dist.Normal(m[county] + b * floor, 1.0), obs=log_r)


def radon_grouped(county, floor, uranium, n, log_r=None):
    """The same posterior as `radon`, from the means of log radon by county and floor."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with numpyro.plate("counties", uranium.shape[0]):
        m = numpyro.sample("m", dist.Normal(mu + a * uranium, 1.0))
    with numpyro.plate("cells", county.shape[0]):
        numpyro.sample("log_r", dist.Normal(m[county] + b * floor, n**-0.5), obs=log_r)


def radon_scales(county, floor, uranium, log_r=None):
    """Log radon of homes as in `radon`, with a scale of its own for every county."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with numpyro.plate("counties", uranium.shape[0]):
        m = numpyro.sample("m", dist.Normal(mu + a * uranium, 1.0))
        log_s = numpyro.sample("log_s", dist.Normal(0.0, 1.0))
    with numpyro.plate("homes", county.shape[0]):
        scale = jnp.exp(log_s[county])
        numpyro.sample("log_r", dist.Normal(m[county] + b * floor, scale), obs=log_r)


def load(state: str = "MN", as_published: bool = False, grouped: bool = False) -> Loaded:
    """The model with unit scales, with the homes of one state; with `grouped`, from cell means."""
    arrays, counts = _arrays(state, as_published)
    if not grouped:
        return radon, arrays, counts
    cells = group(arrays)
    return radon_grouped, cells, {**counts, "cells": len(cells["n"])}


def load_scales(state: str = "MN", as_published: bool = False) -> Loaded:
    """The model with a scale for every county, with the homes of one state."""
    return (radon_scales, *_arrays(state, as_published))


def parse(homes: str, counties: str, state: str, as_published: bool = False) -> dict[str, Any]:
    """County, floor and log radon of each home of a state, and each county's log uranium.

    `homes` and `counties` are the texts of srrs2.dat and cty.dat.
    """
    soil = [row for row in _rows(counties) if row["st"] == state]
    uppm = {_fips(row["stfips"], row["ctfips"]): float(row["Uppm"]) for row in soil}
    rows = [row for row in _rows(homes) if row["state"] == state and _home_fips(row) in uppm]
    if as_published:
        county, uranium = _published_counties(rows, soil)
        floor = np.array([float(row["floor"]) for row in rows])
    else:
        rows = [row for row in rows if int(row["floor"]) != _UNKNOWN_FLOOR]
        fips = np.array([_home_fips(row) for row in rows])
        distinct, county = np.unique(fips, return_inverse=True)
        uranium = np.log([uppm[int(code)] + 0.1 for code in distinct])
        floor = np.array([float(int(row["floor"]) > 0) for row in rows])
    activity = np.array([float(row["activity"]) for row in rows])
    return {
        "county": county.astype(np.int32),
        "floor": floor,
        "uranium": uranium,
        "log_r": np.log(activity + 0.1),
    }


def group(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Mean log radon and number of homes of each county and floor, which is all the model needs."""
    kinds = np.stack([arrays["county"], arrays["floor"]], axis=1)
    distinct, kind = np.unique(kinds, axis=0, return_inverse=True)
    n = np.bincount(kind).astype(float)
    return {
        "county": distinct[:, 0].astype(np.int32),
        "floor": distinct[:, 1],
        "uranium": arrays["uranium"],
        "n": n,
        "log_r": np.bincount(kind, weights=arrays["log_r"]) / n,
    }


def _arrays(state: str, as_published: bool) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    if state not in STATES:
        raise DataError(f"There are no radon data for state {state!r}. There are: {known(STATES)}.")
    arrays = parse(read_text("srrs2.dat"), read_text("cty.dat"), state, as_published)
    return arrays, {"homes": len(arrays["county"]), "counties": len(arrays["uranium"])}


def _published_counties(rows: list[Row], soil: list[Row]) -> tuple[np.ndarray, np.ndarray]:
    """The county of each home and log uranium as in the paper's code, mistakes included."""
    names = list(dict.fromkeys(row["county"] for row in rows))
    code = {name: index for index, name in enumerate(names)}
    pairs = list(dict.fromkeys((row["county"], _home_fips(row)) for row in rows))
    # A name that stands for several fips codes (the blank one) ends with the position of the last.
    position = {name: index for index, (name, _) in enumerate(pairs)}
    # The levels come in the order of cty.dat, once for every (name, fips) pair of that code, but
    # are then read at positions in the order in which the homes mention the counties.
    mentioned = [fips for _, fips in pairs]
    levels = [
        float(row["Uppm"])
        for row in soil
        for _ in range(mentioned.count(_fips(row["stfips"], row["ctfips"])))
    ]
    found = [levels[position[name]] for name in names]
    uranium = np.array([np.log(level) if level > 0 else 0.0 for level in found])
    return np.array([code[row["county"]] for row in rows]), uranium


def _rows(text: str) -> Iterator[Row]:
    """The rows of a comma-separated table; header names and values are padded with blanks."""
    lines = csv.reader(line for line in text.splitlines() if line.strip())
    header = [name.strip() for name in next(lines)]
    for line in lines:
        yield dict(zip(header, (value.strip() for value in line)))


def _fips(state: str, county: str) -> int:
    return 1000 * int(state) + int(county)


def _home_fips(row: Row) -> int:
    return _fips(row["stfips"], row["cntyfips"])
