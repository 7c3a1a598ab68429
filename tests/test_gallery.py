"""Models of NumPyro's example gallery run unchanged and agree with NumPyro's NUTS."""

import gallery
import jax
import numpy as np
import numpyro.infer
import pytest

import autoreparam as ar
from autoreparam.results.scalars import measure

CHAINS, DRAWS = 4, 1000
ERRORS = 4.5  # Monte Carlo errors apart, over a few hundred scalars in all


def data_of(model):
    return getattr(gallery, f"{model.__name__}_data")(np.random.default_rng(0))


def by_nuts(model, args, kwargs):
    """NumPyro's own draws by site, of shape (chain, draw, *shape)."""
    mcmc = numpyro.infer.MCMC(
        numpyro.infer.NUTS(model, target_accept_prob=0.9),
        num_warmup=700,
        num_samples=DRAWS,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(1), *args, **kwargs)
    return mcmc.get_samples(group_by_chain=True)


IN_CI = (gallery.zero_inflated_poisson, gallery.gp)


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(model, marks=pytest.mark.slow if model in IN_CI else pytest.mark.long)
        for model in gallery.MODELS
    ],
    ids=lambda model: model.__name__,
)
def test_a_model_of_the_gallery_agrees_with_nuts(model):
    args, kwargs = data_of(model)
    tree = ar.sample(model, args, kwargs, draws=DRAWS, chains=CHAINS, progress=False)
    theirs = by_nuts(model, args, kwargs)
    for name in tree.attrs["latents"]:
        own = measure(tree["posterior"][name])
        other = measure(tree["posterior"][name].copy(data=np.asarray(theirs[name])))
        for power in (1, 2):  # means, and spread about them
            center = own.draws.mean((1, 2), keepdims=True) if power == 2 else 0.0
            ours, nuts = ((m.draws - center) ** power for m in (own, other))
            ess = [np.fmin(np.fmin(m.bulk, m.tail), m.means)[own.varies] for m in (own, other)]
            spreads = [x.std((1, 2))[own.varies] for x in (ours, nuts)]
            error = np.sqrt(sum(s**2 / n for s, n in zip(spreads, ess)))
            gap = np.abs(ours.mean((1, 2)) - nuts.mean((1, 2)))[own.varies]
            assert (gap < ERRORS * error).all(), (name, power, (gap / error).max())
            assert min(map(np.min, ess)) > 100, (name, ess)


@pytest.mark.parametrize("model", gallery.MODELS, ids=lambda model: model.__name__)
def test_a_model_of_the_gallery_is_understood(model):
    program = ar.inspect(model, *data_of(model))
    assert program.latents
    assert any(site.kind == "observed" for site in program.sites)
