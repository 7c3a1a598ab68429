"""Other tools with our parameterization: BlackJAX's verdict, NumPyro's own reparameterization."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers, plate, sample
from numpyro.infer.util import log_density

import autoreparam as ar
from autoreparam.errors import AutoreparamError, ModelError
from autoreparam.program.families import registry
from autoreparam.results.tree import Draws, to_tree


def groups(y=None):
    mu = sample("mu", dist.Normal(0, 3))
    tau = sample("tau", dist.HalfNormal(2))
    with plate("group", 4):
        theta = sample("theta", dist.Normal(mu, tau))
        wide = sample("wide", dist.StudentT(4.0, mu, tau))
        sample("positive", dist.LogNormal(mu, tau))
        sample("y", dist.Normal(theta + wide, 1.0), obs=y)


Y = np.array([1.0, -1.0, 2.0, 0.0])


@pytest.fixture
def tree():
    """A run as the tree has it, with a λ worth exporting and no draws that anybody would miss."""
    program = ar.inspect(groups, (), {"y": Y})
    lam = ar.Parameterization.constant(program, 0.3).replace({"theta": [0.0, 0.25, 0.5, 1.0]})
    draws = Draws({site.name: np.ones((1, 4, *site.shape)) for site in program.latents}, {})
    return to_tree(program, draws, parameterizations=[lam], ledger={}, observed={}, constant={},
                   attrs={})  # fmt: skip


def test_lam_exported_as_numpyro_code_gives_the_same_coordinates(tree):
    text = ar.interop.numpyro_code(tree)
    assert "# 'positive' stays centered: LocScaleReparam does not support LogNormal." in text
    names: dict = {}
    exec(text, names)
    theirs = names["reparameterized"](groups)
    lam = ar.parameterization(tree)
    ours = ar.log_joint(groups, (), {"y": Y}, parameterization=lam)

    def both(seed):
        random = np.random.default_rng(seed)
        mu, tau = random.normal(), random.uniform(0.5, 2)
        noise = {name: random.normal(size=4) for name in ("theta", "wide", "positive")}

        def working(name, s0=1.0):
            own = np.asarray(lam[name])
            return own * mu + s0 * (tau / s0) ** own * noise[name]

        values = {"mu": mu, "tau": jnp.log(tau)}
        values |= {name: working(name, lam.reference[name]) for name in noise}
        moved = {name: working(name) for name in ("theta", "wide")}
        plain = {"mu": mu, "tau": tau, "positive": np.exp(mu + tau * noise["positive"])}
        substituted = plain | {f"{name}_decentered": value for name, value in moved.items()}
        found = log_density(theirs, (), {"y": Y}, substituted)[0] + jnp.log(tau)
        # Working coordinates of the LogNormal, which NumPyro's code leaves as it is.
        stretch = (1 - np.asarray(lam["positive"])) * np.log(tau) + mu + tau * noise["positive"]
        return float(ours(values)), float(found) + float(stretch.sum())

    first, second = both(1), both(2)
    assert first[0] - second[0] == pytest.approx(first[1] - second[1], rel=1e-6)


class Tilted(dist.AsymmetricLaplace):
    """A family of a user's own, whose rule says what it is made from."""


def test_a_family_of_ones_own_is_exported_where_its_rule_says_what_it_is_made_from(monkeypatch):
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))  # leave no rule behind

    @ar.register(Tilted)
    def tilted(d):
        noise = Tilted(0.0, 1.0, d.asymmetry)
        return ar.Standardization(d.loc, d.scale, noise, shape_parameters=("asymmetry",))

    def model():
        tau = sample("tau", dist.HalfNormal(2))
        sample("x", Tilted(1.0, tau, 1.5))
        sample(
            "w",
            dist.TransformedDistribution(
                dist.Normal(0, 1), dist.transforms.AffineTransform(1, tau)
            ),
        )

    program = ar.inspect(model)
    draws = Draws({site.name: np.ones((1, 4, *site.shape)) for site in program.latents}, {})
    lam = ar.Parameterization.constant(program, 0.3)
    tree = to_tree(program, draws, parameterizations=[lam], ledger={}, observed={}, constant={},
                   attrs={})  # fmt: skip
    text = ar.interop.numpyro_code(tree)
    assert "'x': LocScaleReparam(0.3, shape_params=[\"asymmetry\"])," in text
    assert "# 'w' stays centered: LocScaleReparam does not support TransformedDistribution." in text
    names: dict = {}
    exec(text, names)
    values = {"tau": 2.0, "w": 0.4, "x_decentered": 0.7}
    found = log_density(names["reparameterized"](model), (), {}, values)[0]
    own = {"tau": 2.0, "w": 0.4, "x": 1.0 + 2.0**0.7 * (0.7 - 0.3 * 1.0)}
    expected = log_density(model, (), {}, own)[0] + 0.7 * np.log(2.0)
    assert float(found) == pytest.approx(float(expected), rel=1e-5)


def test_values_come_back_to_the_models_own_space():
    program = ar.inspect(groups, (), {"y": Y})
    lam = ar.Parameterization.noncentered(program, s0=1.0)
    random = np.random.default_rng(0)
    working = {s.name: random.normal(size=(2, 3, *s.shape)) for s in program.latents}
    values = ar.interop.model_values(groups, (), {"y": Y}, working, lam)
    tau = np.exp(working["tau"])
    np.testing.assert_allclose(values["tau"], tau, rtol=1e-6)
    expected = working["mu"][..., None] + tau[..., None] * working["theta"]
    np.testing.assert_allclose(values["theta"], expected, rtol=1e-6)
    with pytest.raises(ModelError, match="'theta': expected values of shape"):
        ar.interop.model_values(groups, (), {"y": Y}, working | {"theta": np.zeros(3)}, lam)
    with pytest.raises(ModelError, match="different numbers of draws"):
        ar.interop.model_values(groups, (), {"y": Y}, working | {"mu": np.zeros(3)}, lam)


def test_a_verdict_that_asks_for_it_gets_a_parameterization():
    problem = ar.zoo.load("funnel", n=3)
    random = np.random.default_rng(0)
    z = random.normal(0, 3, size=(2, 100))
    working = {"z": z, "x": np.exp(z / 2)[..., None] * random.normal(size=(2, 100, 3))}

    verdict = SimpleNamespace(flags={"handoff": "reparameterize"})
    call = (problem.model, problem.args, problem.kwargs)
    lam = ar.interop.on_verdict(verdict, *call, working)
    assert lam["x"].shape == (3,)
    assert lam["x"].max() < 0.2  # the funnel has no data: non-centered is right


def test_a_verdict_that_does_not_ask_gets_none_and_anything_else_is_refused():
    problem = ar.zoo.load("funnel", n=3)
    call = (problem.model, problem.args, problem.kwargs, {})
    assert ar.interop.on_verdict({"handoff": "none"}, *call) is None
    with pytest.raises(AutoreparamError, match="expected BlackJAX's verdict"):
        ar.interop.on_verdict("reparameterize", *call)


def test_blackjax_still_says_what_we_listen_to():
    import inspect

    from blackjax.adaptation import meta_adaptation

    source = inspect.getsource(meta_adaptation.extract_meta_verdict)
    assert '"handoff": handoff' in source
    assert '"reparameterize"' in source


def test_a_reparameterized_model_has_the_same_trace_under_other_handlers():
    lam = ar.Parameterization.noncentered(ar.inspect(groups, (), {"y": Y}))
    model = ar.reparameterize(groups, lam)
    with handlers.seed(rng_seed=0), handlers.trace() as found:
        model(y=Y)
    assert {"theta", "theta_working", "mu"} <= set(found)
    assert jax.numpy.shape(found["theta"]["value"]) == (4,)
