"""Non-centering by hand: what is recognized, what is refused, and that the posterior stays."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from implicit_forms import Y, noise, observe, positive, real
from implicit_table import RECOGNIZED, REFUSED
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import log_density

import autoreparam as ar
from autoreparam.errors import ParameterizationError
from autoreparam.program.target import Target

KINDS = (  # one row per kind of form; the others are checked by the slow test
    "subtracted",
    "sampled before its parents",
    "half-Normal noise",
    "a random walk",
)
SAMPLED = (
    *KINDS,
    "Student-t noise",
    "a Cholesky factor",
    "an autoregression",
    "a trend, its level",
)


def names(rows):
    return [row.name for row in rows]


@pytest.mark.parametrize("row", RECOGNIZED, ids=names(RECOGNIZED))
def test_what_people_write_is_recognized(row):
    site = ar.inspect(row.model)[row.site]
    assert site.implied is not None, site.refusal
    assert row.implied in site.implied.family
    assert site.implied.through == row.through
    assert site.candidate
    assert site.note.startswith("non-centered by hand, implied ")


@pytest.mark.parametrize("row", REFUSED, ids=names(REFUSED))
def test_look_alikes_are_refused_with_the_reason(row):
    site = ar.inspect(row.model)[row.site]
    assert site.implied is None
    assert row.reason in site.refusal


def test_there_are_enough_of_both():
    assert min(len(RECOGNIZED), len(REFUSED)) >= 30


def laws(model, seed=0, scores=True):
    """Round trip, density identity and carried scores, in one compiled program."""
    with jax.enable_x64(True):
        target = Target(ar.inspect(model))
        rng = np.random.default_rng(seed)
        half = ar.Parameterization.constant(target.program, 0.5, s0=1.3, tail=0.3)

        def anywhere(leaf):
            return jnp.asarray(rng.uniform(size=np.shape(leaf)))

        @jax.jit
        def check(position, lam, other):
            values = target.to_sites(position, lam)
            back = target.from_sites(values, lam)
            direct = target.log_joint(values) + target.log_determinant(position, lam)
            if not scores:
                return (back, position), (direct, target.logdensity(position, lam))
            density, score = jax.value_and_grad(target.logdensity)(position, lam)
            moved, carried, gain = target.carry(position, score, lam, other)
            there, slope = jax.value_and_grad(target.logdensity)(moved, other)
            return (back, position), (direct, density), (carried, slope), (there - density, gain)

        position = jnp.asarray(rng.normal(size=target.size) * 0.4)
        for found, expected in check(position, half.map(anywhere), half.map(anywhere)):
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


LONG = [
    pytest.param(row, marks=pytest.mark.slow if row.name in SAMPLED else pytest.mark.long)
    for row in RECOGNIZED
]
BY_KIND = [row for row in RECOGNIZED if row.name in KINDS]


@pytest.mark.parametrize("row", BY_KIND, ids=names(BY_KIND))
def test_the_density_is_the_same_for_any_lam(row):
    laws(row.model, scores=False)


@pytest.mark.parametrize("row", LONG, ids=names(RECOGNIZED))
def test_the_density_of_every_form_is_the_same_for_any_lam(row):
    laws(row.model, seed=1)


@pytest.mark.parametrize("row", LONG, ids=names(RECOGNIZED))
def test_the_log_determinant_of_every_form_is_that_of_autodiff(row):
    with jax.enable_x64(True):
        target = Target(ar.inspect(row.model))
        lam = ar.Parameterization.constant(target.program, 0.7, tail=0.3)
        plain = Target(ar.inspect(row.model, implicit=False))
        own = ar.Parameterization.centered(plain.program)  # their coordinates have a known Jacobian
        position = jnp.asarray(np.random.default_rng(2).normal(size=target.size) * 0.4)

        def between(position):
            return plain.from_sites(target.to_sites(position, lam), own)

        slope = jax.jacobian(between)(position)
        found = jnp.linalg.slogdet(slope)[1] + plain.log_determinant(between(position), own)
        np.testing.assert_allclose(found, target.log_determinant(position, lam), rtol=1e-6)


# -- the ends ---------------------------------------------------------------------------------


def written():
    mu, tau, eps = real(), positive(), noise(6)
    observe(numpyro.deterministic("theta", mu + tau * eps))


def natural():
    mu, tau = real(), positive()
    observe(numpyro.sample("theta", numpyro.distributions.Normal(mu, tau).expand([6]).to_event(1)))


@pytest.fixture(scope="module")
def target():
    return Target(ar.inspect(written))


def test_at_lam_1_the_working_coordinates_are_theta(target):
    lam = ar.Parameterization.centered(target.program)
    position = jnp.linspace(-1, 1, target.size)
    values = target.to_sites(position, lam)
    np.testing.assert_allclose(values["theta"], target.unflatten(position)["eps"], rtol=1e-5)


def test_at_lam_0_they_are_the_noise_up_to_a_constant(target):
    lam = ar.Parameterization.noncentered(target.program)
    position = jnp.linspace(-1, 1, target.size)
    noise = target.to_sites(position, lam)["eps"] * lam.reference["eps"]
    np.testing.assert_allclose(noise, target.unflatten(position)["eps"], rtol=1e-5)


def test_it_is_the_target_of_the_model_written_the_natural_way(target):
    plain = Target(ar.inspect(natural))
    position = jnp.linspace(-1, 1, target.size)
    half = ar.Parameterization.constant(plain.program, 0.4)
    same = ar.Parameterization.by_site({"eps": half.of("theta")})
    found, expected = target.logdensity(position, same), plain.logdensity(position, half)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    reference = ar.Parameterization.centered(target.program).reference["eps"]
    np.testing.assert_allclose(reference, half.reference["theta"], rtol=1e-6)


# -- the front door ---------------------------------------------------------------------------


def test_inspect_says_so_and_shows_the_statement(target):
    site = target.program["eps"]
    assert site.note == "non-centered by hand, implied Normal(mu, tau), through theta"
    assert site.statement == 'theta = numpyro.sample("theta", dist.Normal(mu, tau))'
    assert site.parents == ("mu", "tau")


def test_the_natural_model_shows_its_other_form():
    shown = ar.inspect(natural)["theta"].statement
    assert shown == 'theta = mu + tau * numpyro.sample("theta_noise", dist.Normal(0.0, 1.0))'


def test_implicit_false_leaves_the_model_as_it_is():
    program = ar.inspect(written, implicit=False)
    assert not program.candidates
    assert program["eps"].implied is None


def test_sites_that_are_not_asked_for_stay_as_written():
    assert not ar.inspect(written, sites=[]).candidates
    assert ar.inspect(written, sites=["eps"]).candidates[0].implied is not None


def test_a_model_that_cannot_be_read_runs_as_written(monkeypatch):
    from autoreparam.program.implicit import look

    def broken(*_):
        raise RuntimeError("anything")

    monkeypatch.setattr(look, "find", broken)
    assert not ar.inspect(written).candidates


def test_new_data_of_the_same_shape_share_the_structure():
    def model(y):
        mu, tau, eps = real(), positive(), noise(6)
        numpyro.sample("y", numpyro.distributions.Normal(mu + tau * eps, 1.0), obs=y)

    one, other = ar.inspect(model, (Y,)), ar.inspect(model, (Y + 1,))
    assert one.structure == other.structure
    assert hash(one.structure) == hash(other.structure)


def test_reparameterize_gives_an_ordinary_model_with_the_same_density():
    lam = ar.Parameterization.constant(ar.inspect(written), 0.3)
    model = ar.reparameterize(written, lam)
    values = {"mu": jnp.array(0.3), "tau": jnp.array(0.7), "eps": jnp.linspace(-1.0, 1.0, 6)}
    start = model.initial_values(values)
    assert set(start) == {"mu", "tau", "eps_working"}
    found, trace = log_density(model, (), {}, start)
    target = Target(ar.inspect(written))
    position = target.from_sites(values, lam)
    expected = target.logdensity(position, lam) - jnp.log(0.7)  # of the positive site
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(trace["eps"]["value"], values["eps"], rtol=1e-5)


def test_reparameterize_reaches_into_a_scan():
    row = next(row for row in RECOGNIZED if row.name == "a trend, its level")
    lam = ar.Parameterization.constant(ar.inspect(row.model), 0.4)
    values = {"level_scale": 0.5, "slope_scale": 0.8, "eps": np.linspace(-1, 1, 6)}
    values = {name: jnp.asarray(x, jnp.result_type(float)) for name, x in values.items()}
    values["turn"] = values["eps"][::-1] ** 2
    model = ar.reparameterize(row.model, lam)
    found, trace = log_density(model, (), {}, model.initial_values(values))
    target = Target(ar.inspect(row.model))
    position = target.from_sites(values, lam)
    expected = target.logdensity(position, lam) - jnp.log(0.5) - jnp.log(0.8)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(trace["eps"]["value"], values["eps"], rtol=1e-4, atol=1e-6)


def test_reparameterize_says_what_to_sample_first():
    row = next(row for row in RECOGNIZED if row.name == "sampled before its parents")
    model = ar.reparameterize(row.model, ar.Parameterization.centered(ar.inspect(row.model)))
    with pytest.raises(ParameterizationError, match="Sample them first"):
        numpyro.handlers.seed(model, 0)()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_run_shows_lam_under_the_name_of_what_is_implied():
    tree = ar.sample(written, draws=40, warmup=60, chains=2, progress=False)
    lam = tree["parameterization"]["theta"]
    assert lam.attrs["site"] == "eps"
    assert lam.shape == (6,)
    assert ar.parameterization(tree).sites == ("eps",)
    assert tree.attrs["looking_time"] > 0
    assert "'theta': LocScaleReparam(" in ar.interop.numpyro_code(tree)
    assert 'theta = numpyro.sample("theta", dist.Normal(mu, tau))' in ar.interop.numpyro_code(tree)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in KINDS else pytest.mark.long)
        for name in SAMPLED
    ],
)
def test_draws_agree_with_numpyro(name):
    row = next(row for row in RECOGNIZED if row.name == name)
    with jax.enable_x64(True):
        mcmc = MCMC(NUTS(row.model, target_accept_prob=0.95), num_warmup=1000, num_samples=8000,
                    progress_bar=False)  # fmt: skip
        mcmc.run(jax.random.key(1))
        theirs = mcmc.get_samples()
        ours = ar.sample(row.model, draws=2000, warmup=500, progress=False, precision="double")
    for site in ar.inspect(row.model).latents:
        if site.name == "L":
            continue
        mine = ours["posterior"][site.name].values.reshape(-1, *site.shape)
        other = np.asarray(theirs[site.name])
        for power in (1, 2):
            error = np.sqrt(np.var(mine**power, 0) / 1000 + np.var(other**power, 0) / 1000)
            gap = np.abs(np.mean(mine**power, 0) - np.mean(other**power, 0))
            assert np.all(gap < 5 * error), (site.name, power)
