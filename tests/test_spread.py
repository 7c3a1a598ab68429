"""Rows of data spread over devices: the same posterior, and each device with its own rows."""

import os
import subprocess
import sys

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import autoreparam as ar
from autoreparam.errors import AutoreparamError, ModelError
from autoreparam.program.spread import _width, is_spread, spread

GROUPS, ROWS = 10, 800


def model(x, g, y, more=None, groups=GROUPS):
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("groups", groups):
        level = numpyro.sample("level", dist.Normal(mu, tau))
    numpyro.sample("y", dist.Normal(slope * x + level[g], 1.0), obs=y)


def data():
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=ROWS), rng.integers(0, GROUPS, ROWS)
    return x, g, x + rng.normal(size=GROUPS)[g] + rng.normal(size=ROWS)


@pytest.mark.parametrize(
    ("shard", "rows", "wanted"),
    [
        (("z",), ROWS, "'z' is no argument with data; those are "),
        ("y", ROWS, "expected the names of arguments, such as \\('y',\\); found 'y'"),
        ((3,), ROWS, "expected the names of arguments"),
        (("more",), ROWS, "'more\\['scale'\\]' is a single number"),
        (("groups",), ROWS, "the model needs the values of 'groups'"),
        (("y",), ROWS - 1, "'y' has 799 rows, which 2 devices cannot share evenly"),
    ],
)
def test_what_cannot_be_spread_is_refused_by_name(shard, rows, wanted, monkeypatch):
    monkeypatch.setattr(jax, "local_devices", lambda: 2 * jax.devices("cpu")[:1])
    given = [part[:rows] for part in data()]
    more = {"scale": np.float32(2.0)}
    with pytest.raises((AutoreparamError, ModelError), match=f"^shard: {wanted}"):
        ar.sample(model, (*given, more, GROUPS), shard=shard, progress=False)


def test_on_one_device_nothing_is_spread():
    program = ar.inspect(model, data())
    assert spread(program, ()) is program
    assert not is_spread(program)
    assert spread(program, ["x", "y"]) is program


@pytest.mark.parametrize(
    ("size", "room", "chains", "width"),
    [
        (100, 1000, 8, 1),  # each device has all of the data, and chains of its own
        (100, 1000, 4, 2),  # two devices for each of four chains
        (100, 1000, 3, 8),
        (100, 30, 8, 4),
        (100, 1, 8, 8),  # nowhere is room: as much as there is
        (100, 0, 8, 8),  # unknown
    ],
)
def test_a_copy_of_the_data_is_on_as_few_devices_as_hold_it(size, room, chains, width):
    assert _width(size, room, 8, chains) == width


ON_EIGHT = """
import sys
import jax, numpy as np
from test_spread import data, model
import autoreparam as ar
from autoreparam import sampling
from autoreparam.errors import SamplingError
from autoreparam.program import spread as spread_module
from autoreparam.program.spread import is_spread, spread

assert len(jax.devices()) == 8
program = spread(ar.inspect(model, data()), ["x", "g", "y"])
assert is_spread(program)
for leaf in program.data:
    assert {len(part.data) for part in leaf.addressable_shards} == {100}
keywords = {"progress": False, "warmup": 200, "seed": 1}
tree = ar.sample(model, data(), shard=("x", "g", "y"), draws=500, **keywords)
plain = ar.sample(model, data(), draws=500, **keywords)
assert tree.constant_data["x"].dtype == plain.constant_data["x"].dtype
for name in ("mu", "tau", "slope", "level"):
    one, other = (found.posterior[name].values for found in (tree, plain))
    spread_of = other.std(axis=(0, 1))
    assert np.all(np.abs(one.mean((0, 1)) - other.mean((0, 1))) < 0.25 * spread_of), name
    assert np.all(np.abs(np.log(one.std(axis=(0, 1)) / spread_of)) < 0.25), name
room = spread_module._room
spread_module._room = lambda device: 4 * 800 * 3 / 4  # bytes: a quarter of the data
program = spread(ar.inspect(model, data()), ["x", "g", "y"], 4)
assert {len(part.data) for part in program.data[0].addressable_shards} == {200}
assert dict(program.data[0].sharding.mesh.shape) == {"chains": 2, "rows": 4}
mesh = ar.sample(model, data(), shard=("x", "g", "y"), draws=500, **keywords)
for name in ("mu", "tau", "slope", "level"):  # rounding differs, and then the draws
    one, other = mesh.posterior[name].values, tree.posterior[name].values
    spread_of = other.std(axis=(0, 1))
    assert np.all(np.abs(one.mean((0, 1)) - other.mean((0, 1))) < 0.25 * spread_of), name
    assert np.all(np.abs(np.log(one.std(axis=(0, 1)) / spread_of)) < 0.25), name
spread_module._room = room
path = sys.argv[1]
fixed = {**keywords, "shard": ("x", "g", "y"), "num_steps": 3}  # learned lengths depend on draws
whole = ar.sample(model, data(), draws=500, **fixed)
ar.sample(model, data(), draws=250, checkpoint=path, **fixed)
longer = ar.resume(path, model, data(), draws=500, progress=False)
np.testing.assert_array_equal(longer.posterior["mu"].values, whole.posterior["mu"].values)
build, sampling.build_tree = sampling.build_tree, None  # fails after the last draw
try:
    ar.sample(model, data(), shard=("x", "g", "y"), draws=500, **keywords)
except SamplingError as error:
    path = str(error).split("ar.resume('")[1].split("'")[0]
sampling.build_tree = build
rescued = ar.resume(path, model, data(), progress=False)
np.testing.assert_array_equal(rescued.posterior["mu"].values, tree.posterior["mu"].values)
short = {**keywords, "warmup": 60, "draws": 40}
x, g, y = data()
there = jax.device_put(x, jax.devices()[1])  # left out, and on one device
kept = ar.sample(model, (there, g, y), shard=iter(["y", "g"]), **short)
assert np.isfinite(kept.posterior["level"].values).all()
for other in ({"kernel": "nuts"}, {"parameterization": "interleaved"}):
    found = ar.sample(model, data(), shard=("y", "x", "g"), **other, **short)
    assert np.isfinite(found.posterior["level"].values).all()
"""


@pytest.mark.slow
def test_eight_devices_find_the_same_posterior_and_go_on_where_they_stopped(tmp_path):
    flags = "--xla_force_host_platform_device_count=8"
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": os.path.dirname(__file__)}
    command = [sys.executable, "-W", "ignore", "-c", ON_EIGHT, str(tmp_path / "run.zarr")]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
