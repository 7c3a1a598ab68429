"""A second try after a bad first one: every target stays as it is, every step is counted."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.mcmc.integrators import IntegratorState, velocity_verlet
from scipy import stats

from autoreparam.mcmc.delayed import Again, transition
from autoreparam.mcmc.settings import DEFAULTS

ALWAYS = Again(patience=0.0, finer=4.0, longer=2.0)  # wherever the first try was rejected
NEVER = Again(patience=jnp.inf, finer=4.0, longer=2.0)
POINTS = 8000
extremes = pytest.mark.parametrize(
    "again",
    [pytest.param(ALWAYS, id="always", marks=pytest.mark.slow), DEFAULTS.again],
    ids=[None, "default"],
)


def kinetic_energy(momentum):
    return jnp.sum(momentum**2) / 2


def luck(key):
    return jnp.log(jax.random.uniform(key, (2,)))


def begin(logdensity, position, momentum):
    value, score = jax.value_and_grad(logdensity)(position)
    return IntegratorState(position, momentum, value, score)


def step(logdensity, again, size, steps, key, position):
    """The position after one transition with a fresh momentum, and what happened."""
    momentum_key, key = jax.random.split(key)
    momentum = jax.random.normal(momentum_key, position.shape, position.dtype)
    one_step = velocity_verlet(logdensity, kinetic_energy)
    size = jnp.asarray(size, position.dtype)
    start = begin(logdensity, position, momentum)
    end, outcome = transition(start, one_step, kinetic_energy, size, steps, luck(key), again)
    return end.position, outcome


def carried(logdensity, again, size, positions, steps=3, transitions=8):
    """Points carried along by some transitions, each by itself; the outcomes of the last."""
    move = jax.vmap(partial(step, logdensity, again, size, steps))

    @jax.jit
    def go(positions, key):
        def body(number, now):
            keys = jax.random.split(jax.random.fold_in(key, number), len(positions))
            return move(keys, now[0])

        first = move(jax.random.split(key, len(positions)), positions)
        return jax.lax.fori_loop(1, transitions, body, first)

    return jax.tree.map(np.asarray, go(jnp.asarray(positions), jax.random.key(1)))


def assert_spread_as(values, cdf):
    assert np.isfinite(values).all()
    assert stats.kstest(values.astype(float), cdf).pvalue > 1e-4


# -- targets of which exact draws are known ---------------------------------------------------


def normals(position):
    return -0.5 * jnp.sum((position / jnp.array([1.0, 0.3], position.dtype)) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@extremes
def test_a_gaussian_stays_as_it_is_though_steps_are_far_too_long(again, dtype):
    rng = np.random.default_rng(0)
    first = (rng.normal(size=(POINTS, 2)) * [1.0, 0.3]).astype(dtype)
    # Leapfrog leaves the narrow direction from 0.6 on.
    found, outcome = carried(normals, again, 0.9, first)
    assert found.dtype == dtype
    assert np.mean(outcome.acceptance) < 0.2
    assert abs(np.corrcoef(first[:, 0], found[:, 0])[0, 1]) < 0.3  # the second tries move them
    assert_spread_as(found[:, 0], stats.norm(0, 1).cdf)
    assert_spread_as(found[:, 1], stats.norm(0, 0.3).cdf)


WIDE, NEAR, SEEN = 1.5, 0.7, 1.0  # of v; of what is seen of x; what was seen


def funnel(position):
    v, x = position
    return -0.5 * ((v / WIDE) ** 2 + x**2 * jnp.exp(-2 * v) + ((x - SEEN) / NEAR) ** 2) - v


def of_funnel(count, seed=0):
    """Exact draws of (v, x), and the distribution function of v, by quadrature over v."""
    grid = np.linspace(-12, 12, 40001)
    spread = np.sqrt(np.exp(2 * grid) + NEAR**2)
    density = stats.norm(0, WIDE).pdf(grid) * stats.norm(0, spread).pdf(SEEN)
    total = np.cumsum(density) / density.sum()
    rng = np.random.default_rng(seed)
    v = np.interp(rng.uniform(size=count), total, grid)
    share = np.exp(2 * v) / (np.exp(2 * v) + NEAR**2)
    x = share * SEEN + NEAR * np.sqrt(share) * rng.normal(size=count)
    return np.stack([v, x], axis=1), lambda at: np.interp(at, grid, total)


@extremes
def test_a_funnel_stays_as_quadrature_says(again):
    first, of_v = of_funnel(POINTS)
    found, outcome = carried(funnel, again, 0.8, first, transitions=20)
    assert 0.1 < np.mean(outcome.acceptance) < 0.9
    assert_spread_as(found[:, 0], of_v)
    noise = (found[:, 1] - SEEN) / NEAR  # and x, by what is known of it given v
    share = np.exp(2 * found[:, 0]) / (np.exp(2 * found[:, 0]) + NEAR**2)
    mean = (share - 1) * SEEN / NEAR
    assert_spread_as((noise - mean) / np.sqrt(share), stats.norm(0, 1).cdf)


def half_known(position):
    return -0.5 * position[0] ** 2 + jnp.sqrt(position[0] + 0.5)


def test_where_the_density_is_no_number_no_chain_ever_goes():
    grid = np.linspace(-0.5, 8, 20001)
    density = np.exp(-0.5 * grid**2 + np.sqrt(grid + 0.5))
    total = np.cumsum(density) / density.sum()
    first = np.interp(np.random.default_rng(0).uniform(size=POINTS), total, grid)[:, None]
    found, outcome = carried(half_known, ALWAYS, 0.9, first)
    assert found.min() > -0.5
    assert np.mean(outcome.acceptance == 0) > 0.1  # many first tries did end there
    assert_spread_as(found[:, 0], lambda at: np.interp(at, grid, total))


# -- a single transition ----------------------------------------------------------------------


def quartic(position):
    return -jnp.sum(position**4) / 4


@pytest.mark.slow
@pytest.mark.parametrize("again", [ALWAYS, Again(0.5, 4.0, 2.0)], ids=["always", "patient"])
def test_as_many_come_back_from_a_second_try_as_go_there(again):
    """From one point and momentum a second try leads to one place, and from there back again."""
    size, steps, count = jnp.array(1.1), 2, 2000
    one_step = velocity_verlet(quartic, kinetic_energy)

    def share(start, end):
        """How many of many transitions from a point end at another."""

        def one(key):
            chance = luck(key)
            found = transition(start, one_step, kinetic_energy, size, steps, chance, again)[0]
            return jnp.isclose(found.position, end.position).all()

        return jnp.mean(jax.vmap(one)(jax.random.split(jax.random.key(0), count)))

    def both_ways(position, momentum):
        start = begin(quartic, position, momentum)
        there = start
        for _ in range(round(again.longer * steps)):
            there = one_step(there, size / again.finer)
        back = there._replace(momentum=-there.momentum)
        weights = [jnp.exp(one.logdensity - kinetic_energy(one.momentum)) for one in (start, there)]
        return jnp.array(weights), jnp.array([share(start, there), share(back, start)])

    rng = np.random.default_rng(0)
    points = rng.normal(size=(2, 120, 1))
    weight, found = map(np.asarray, jax.jit(jax.vmap(both_ways))(*points))
    going, coming = (weight * found).T
    # None, or all, of so many may also be a few in the long run.
    variance = (found * (1 - found) + 10 / count) / count
    assert (abs(going - coming) <= 5 * np.sqrt(np.sum(weight**2 * variance, axis=1))).all()
    assert np.sum((found.min(axis=1) > 0.02) & (found.min(axis=1) < 0.9)) >= 5


@pytest.mark.parametrize(
    ("again", "logdensity", "steps"),
    [(NEVER, normals, 3), (ALWAYS, normals, 3 + 6 + 3), (ALWAYS, half_known, None)],
    ids=["one try", "two tries and the way back", "a try that leaves the numbers"],
)
def test_every_step_of_every_trajectory_is_counted(again, logdensity, steps):
    taken = []

    def one_step(state, size):
        taken.append(size)
        return velocity_verlet(logdensity, kinetic_energy)(state, size)

    start = begin(logdensity, jnp.array([0.1, 0.2]), jnp.array([-2.0, 1.0]))
    with jax.disable_jit():
        chance = luck(jax.random.key(0))
        _, outcome = transition(start, one_step, kinetic_energy, jnp.array(3.0), 3, chance, again)
    assert outcome.steps == len(taken)
    assert steps in (None, len(taken))
    assert steps or len(taken) < 3 + 6 + 3  # nothing is followed to where there are no numbers


def test_the_energy_is_that_of_the_state_that_is_kept():
    start = begin(normals, jnp.array([0.5, 0.1]), jnp.array([0.3, -1.0]))
    one_step = velocity_verlet(normals, kinetic_energy)

    @jax.jit
    def go(key, size):
        return transition(start, one_step, kinetic_energy, size, 3, luck(key), ALWAYS)

    for number in range(5):
        for size in (0.1, 0.9):
            end, outcome = go(jax.random.key(number), size)
            energy = kinetic_energy(end.momentum) - normals(end.position)
            np.testing.assert_allclose(outcome.energy, energy, rtol=1e-6)
            assert outcome.worst >= 0
