"""The integrator: leapfrog or two stages, exact laws, and when a run uses which."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from blackjax.mcmc.integrators import IntegratorState, velocity_verlet

import autoreparam as ar
from autoreparam.mcmc.integrator import FIRST_KICK, LEAPFROG, TWO_STAGES, integrator, turn
from autoreparam.mcmc.settings import DEFAULTS
from autoreparam.mcmc.step_size import accepted, for_gaussian, settled
from autoreparam.mcmc.trajectory import best_length

MASS = np.array([0.5, 1.0, 3.0])
schemes = pytest.mark.parametrize("stages", [LEAPFROG, TWO_STAGES])


def quartic(position):
    return -0.5 * position @ position - 0.1 * jnp.sum(position**4) - 0.3 * jnp.prod(position)


def kinetic(momentum, position=None):
    return 0.5 * jnp.sum(momentum**2 / MASS)


def start(logdensity, position, momentum):
    return IntegratorState(position, momentum, *jax.value_and_grad(logdensity)(position))


POINT = start(quartic, jnp.array([0.3, -1.2, 0.7]), jnp.array([1.0, 0.2, -0.8]))


def walk(stages, step_size, steps=5, state=POINT, build=None):
    one = (build or integrator(jnp.asarray(stages)))(quartic, kinetic)
    for _ in range(steps):
        state = one(state, jnp.asarray(step_size))
    return state


# -- laws -------------------------------------------------------------------------------------


def test_one_stage_is_velocity_verlet():
    own, theirs = walk(LEAPFROG, 0.2), walk(LEAPFROG, 0.2, build=velocity_verlet)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), own, theirs)


def test_two_stages_are_kicks_and_drifts():
    h, b, score = 0.4, FIRST_KICK, jax.grad(quartic)
    position, momentum = POINT.position, POINT.momentum
    momentum += b * h * score(position)
    position += h / 2 * momentum / MASS
    momentum += (1 - 2 * b) * h * score(position)
    position += h / 2 * momentum / MASS
    momentum += b * h * score(position)
    found = walk(TWO_STAGES, h / 2, steps=1)
    np.testing.assert_allclose(found.position, position, rtol=1e-12)
    np.testing.assert_allclose(found.momentum, momentum, rtol=1e-12)
    np.testing.assert_allclose(found.logdensity, quartic(position), rtol=1e-12)
    np.testing.assert_allclose(found.logdensity_grad, score(position), rtol=1e-12)


@schemes
def test_a_trajectory_leads_back_when_its_momentum_is_turned(stages):
    end = walk(stages, 0.3)
    back = walk(stages, 0.3, state=end._replace(momentum=-end.momentum))
    np.testing.assert_allclose(back.position, POINT.position, rtol=1e-10)
    np.testing.assert_allclose(back.momentum, -POINT.momentum, rtol=1e-10)


@schemes
def test_volume_is_kept(stages):
    def flow(both):
        end = walk(stages, 0.3, state=start(quartic, both[:3], both[3:]))
        return jnp.concatenate([end.position, end.momentum])

    both = jnp.concatenate([POINT.position, POINT.momentum])
    assert jnp.linalg.det(jax.jacobian(flow)(both)) == pytest.approx(1, abs=1e-10)


@schemes
@pytest.mark.parametrize("phase", [0.01, 0.3, 0.9])
def test_the_turn_of_an_oscillator_is_that_of_its_matrix(stages, phase):
    one = integrator(jnp.asarray(stages))(lambda q: -0.5 * q @ q, lambda p: 0.5 * p @ p)

    def flow(both):
        end = one(start(lambda q: -0.5 * q @ q, both[:1], both[1:]), jnp.asarray(phase))
        return jnp.concatenate([end.position, end.momentum])

    matrix = jax.jacobian(flow)(jnp.zeros(2))
    np.testing.assert_allclose(np.cos(turn(phase, stages)), np.trace(matrix) / 2, rtol=1e-12)


@pytest.mark.parametrize("x64", [True, False], ids=["float64", "float32"])
def test_precision_is_the_positions(x64):
    with jax.enable_x64(x64):
        dtype = jnp.float64 if x64 else jnp.float32
        state = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), POINT)
        assert {leaf.dtype for leaf in jax.tree.leaves(walk(TWO_STAGES, 0.2, state=state))} == {
            jnp.dtype(dtype)
        }


# -- what it is worth -------------------------------------------------------------------------


@jax.jit
def acceptance(stages, step_size, key):
    """Mean acceptance for a standard Gaussian in 200 dimensions, for many lengths."""

    def logdensity(q):
        return -0.5 * q @ q

    one = integrator(stages)(logdensity, lambda p: 0.5 * p @ p)

    def loss(key):
        q, p = jax.random.normal(key, (2, 200))
        begin = start(logdensity, q, p)
        count = jax.random.randint(key, (), 4, 40) // stages
        end = jax.lax.fori_loop(0, count, lambda _, state: one(state, step_size), begin)
        return begin.logdensity - p @ p / 2 - (end.logdensity - end.momentum @ end.momentum / 2)

    return jnp.mean(jnp.minimum(1, jnp.exp(-jax.vmap(loss)(jax.random.split(key, 2000)))))


@pytest.mark.slow
@pytest.mark.parametrize("target", [0.65, 0.8, 0.95])
def test_the_leapfrog_step_for_a_gaussian_has_the_acceptance_asked_for(target):
    size = for_gaussian(200, target)
    found = acceptance(LEAPFROG, size, jax.random.key(0))
    assert found == pytest.approx(target, abs=0.03)
    half = acceptance(LEAPFROG, size / 2, jax.random.key(0))
    assert half == pytest.approx(accepted(target, 0.5), abs=0.02)


def test_two_stages_go_twice_as_far():
    size = for_gaussian(200, 0.8)
    assert acceptance(TWO_STAGES, 2 * size, jax.random.key(0)) > 0.8


def test_steps_in_two_stages_settle_on_the_careful_side():
    tried = np.full((4, 200), 0.5)
    for rate in (0.6, 0.8, 0.95):
        leapfrog, two = (settled(tried, np.full_like(tried, rate), 0.5, 0.8, n) for n in (1, 2))
        assert two <= leapfrog * (1 + 1e-9)
    assert settled(tried, np.full_like(tried, 0.999), 0.9, 0.8, 2) <= DEFAULTS.longest_two_stage


def test_steps_shrink_so_that_a_whole_number_of_them_fits():
    found = best_length(np.ones(5), 1.0, 0.9, TWO_STAGES, paid=1000, draws=1000)
    assert found.steps == pytest.approx(2, abs=0.5)
    assert found.step_size < 1.0
    assert best_length(np.ones(5), 1.0, 0.9, TWO_STAGES).step_size == 1.0  # while it is learned


# -- in a run ---------------------------------------------------------------------------------


def round_(y):
    with numpyro.plate("i", 60):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)


def narrow():
    scale = numpyro.sample("scale", dist.Normal(0.0, 3.0))
    with numpyro.plate("i", 9):
        numpyro.sample("x", dist.Normal(0.0, jnp.exp(scale / 2)))


@pytest.mark.slow
def test_a_round_posterior_is_sampled_in_two_stages_and_exactly():
    y = np.linspace(-2.0, 2.0, 60)
    tree = ar.sample(round_, (y,), draws=500, warmup=300, seed=1, progress=False)
    assert tree.attrs["integrator"] == "two stages"
    assert (tree.sample_stats.n_steps.values % 2 == 0).all()
    x = tree.posterior["x"].values.reshape(-1, 60)
    np.testing.assert_allclose(x.mean(axis=0), y / 2, atol=0.1)
    np.testing.assert_allclose(x.var(axis=0).mean(), 0.5, rtol=0.05)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "options",
    [
        {"parameterization": "centered"},
        pytest.param({"kernel": "nuts"}, marks=pytest.mark.slow),
        {"kernel": "hmc", "num_steps": 3},
    ],
    ids=["funnel", "nuts", "num_steps"],
)
def test_leapfrog_stays_where_posteriors_are_narrow_or_users_ask_for_it(options):
    tree = ar.sample(narrow, draws=50, warmup=200, seed=0, progress=False, **options)
    assert tree.attrs["integrator"] == "leapfrog"
    if "num_steps" in options:
        # Two tries, the second of twice as many steps, and the way back from it are 12.
        assert np.isin(tree.sample_stats.n_steps, (3, 12)).all()
