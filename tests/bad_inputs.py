"""The table of bad inputs: what is called, and words of the sentence that its user reads."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.handlers import block

import autoreparam as ar

Y = np.array([0.3, -1.0, 2.2])
BIG = np.array([6_000_000_000, 1])


def groups(y, scale=1.0):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("group", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, 2.0))
        numpyro.sample("y", dist.Normal(theta, scale), obs=y)


def latent(name="x", law=None):
    """A model with one site."""

    def model():
        numpyro.sample(name, law or dist.Normal(0.0, 1.0))

    return model


def nothing():
    numpyro.deterministic("d", jnp.ones(3))


def observed_only(y):
    numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)


def twice():
    numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.sample("x", dist.Normal(0.0, 1.0))


def branching():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    if x > 0:
        numpyro.sample("y", dist.Normal(0.0, 1.0))


def keyed():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.deterministic("z", x + jax.random.normal(numpyro.prng_key()))


def hiding(y):
    with block():
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def hiding_scan(y):
    with block():
        scan(lambda x, _: (numpyro.sample("x", dist.Normal(x, 1.0)), None), 0.0, y)


def subsampled(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", 3, subsample_size=2):
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y[:2])


def with_param():
    numpyro.sample("x", dist.Normal(numpyro.param("a", 0.0), 1.0))


def counted(calls=[]):  # noqa: B006 - it keeps count on purpose
    calls.append(1)
    numpyro.sample("x", dist.Normal(jnp.zeros(len(calls)), 1.0).to_event(1))


def negative(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(x, -1.0), obs=y)


def by_text(y, county):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(x[county], 1.0), obs=y)


def capturing(y):
    x = numpyro.sample("x", dist.LogNormal(0.0, 1.0))
    numpyro.sample("y", dist.Poisson(x * BIG), obs=y)


def counts(n, y):
    p = numpyro.sample("p", dist.Beta(1.0, 1.0))
    numpyro.sample("y", dist.Binomial(n, p), obs=y)


def unsampled(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.ImproperUniform(dist.constraints.real, (), ()), obs=y)
    numpyro.deterministic("z", x)


def sized(n):
    with numpyro.plate("row", int(n)):
        numpyro.sample("x", dist.Normal(0.0, 1.0))


def named_dataset(y):
    x = numpyro.sample("dataset", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(x, 1.0), obs=y)


def clashing(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", 3):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    with numpyro.plate("row_", 2):
        numpyro.sample("z", dist.Normal(mu, 1.0))


class Odd(dist.Normal):
    """A family whose rule returns a number instead of an `ar.Standardization`."""


class Open(dist.Normal):
    """A family whose rule calls `ar.families.log_shift` with a number."""


ar.register(Odd)(lambda d: 3)
ar.register(Open)(lambda d: ar.families.log_shift(d.loc, 3))

sample = partial(ar.sample, groups, (Y,))
learn = partial(ar.learn, groups, (Y,))

sample_many = partial(ar.sample_many, groups, (np.stack([Y, Y]),), progress=False)

# Keywords of `sample` with the same model: {keyword: value}, words of the sentence.
KEYWORDS = [
    ({"num_samples": 100}, "no keyword 'num_samples'. Did you mean 'draws'?"),
    ({"num_warmup": 100}, "Did you mean 'warmup'?"),
    ({"tune": 100}, "Did you mean 'warmup'?"),
    ({"iter_sampling": 100}, "Did you mean 'draws'?"),
    ({"iter_warmup": 100}, "Did you mean 'warmup'?"),
    ({"num_chains": 4}, "Did you mean 'chains'?"),
    ({"cores": 4}, "Did you mean 'chains'?"),
    ({"rng_key": 0}, "Did you mean 'seed'?"),
    ({"random_seed": 0}, "Did you mean 'seed'?"),
    ({"target_accept_prob": 0.9}, "Did you mean 'target_accept'?"),
    ({"adapt_delta": 0.9}, "Did you mean 'target_accept'?"),
    ({"max_treedepth": 9}, "Did you mean 'max_tree_depth'?"),
    ({"init_params": {}}, "Did you mean 'init'?"),
    ({"initvals": {}}, "Did you mean 'init'?"),
    ({"progress_bar": False}, "Did you mean 'progress'?"),
    ({"progressbar": False}, "Did you mean 'progress'?"),
    ({"thinning": 2}, "Did you mean 'thin'?"),
    ({"drws": 10}, "Did you mean 'draws'?"),
    ({"parametrization": "auto"}, "Did you mean 'parameterization'?"),
    ({"chain_method": "parallel"}, "chains run in parallel without being asked to"),
    ({"dense_mass": True}, "the metric is chosen during warm-up"),
    ({"return_inferencedata": True}, "always a DataTree"),
    ({"zebra": 1}, "Its keywords are 'model', 'args'"),
    ({"parameterization": "center"}, "expected one of 'auto', 'vip'"),
    ({"parameterization": 0.5}, "expected one of 'auto', 'vip'"),
    ({"parameterization": None}, "or a Parameterization; found None"),
    ({"parameterization": ar.Parameterization({"beta": 0.5})}, "site 'beta' cannot be"),
    ({"parameterization": ar.Parameterization({"theta": np.ones(7)})}, "λ has shape (7,)"),
    ({"kernel": "NUTS"}, "kernel: expected one of 'auto', 'nuts', 'hmc'"),
    ({"kernel": 3}, "kernel: expected one of"),
    ({"draws": 0}, "draws: expected an integer >= 1; found 0"),
    ({"draws": -5}, "draws: expected an integer >= 1; found -5"),
    ({"draws": 2.5}, "draws: expected an integer"),
    ({"draws": "100"}, "draws: expected an integer"),
    ({"draws": True}, "draws: expected an integer"),
    ({"draws": 10**12}, "expected at most 2,147,483,647"),
    ({"warmup": -1}, "warmup: expected an integer >= 0"),
    ({"warmup": None}, "warmup: expected an integer"),
    ({"chains": 0}, "chains: expected an integer >= 1"),
    ({"chains": 2.0}, "chains: expected an integer"),
    ({"seed": -1}, "seed: expected an integer from 0"),
    ({"seed": 2**70}, "found 1,180,591,620,717,411,303,424"),
    ({"seed": 1.5}, "or a key of jax.random; found 1.5"),
    ({"seed": "zero"}, "seed: expected an integer"),
    ({"seed": None}, "seed: expected an integer"),
    ({"seed": np.arange(3)}, "seed: expected an integer"),
    ({"num_steps": 0}, "num_steps: expected an integer >= 1"),
    ({"num_steps": 3, "kernel": "nuts"}, "NUTS chooses its own number of steps"),
    ({"target_accept": 0.0}, "between 0 and 1; found 0.0"),
    ({"target_accept": 80}, "between 0 and 1; found 80"),
    ({"target_accept": float("nan")}, "between 0 and 1; found nan"),
    ({"target_accept": "high"}, "between 0 and 1; found 'high'"),
    ({"max_tree_depth": 0}, "max_tree_depth: expected an integer >= 1"),
    ({"thin": 0}, "thin: expected an integer >= 1"),
    ({"thin": 2000}, "at most the number of draws (1000); found 2000"),
    ({"save_warmup": 3}, "save_warmup: expected True or False; found 3"),
    ({"save_working": "yes"}, "save_working: expected True or False; found 'yes'"),
    ({"log_likelihood": 3}, "log_likelihood: expected True or False; found 3"),
    ({"posterior_predictive": "y"}, "posterior_predictive: expected True or False"),
    ({"progress": 3}, "progress: expected True or False; found 3"),
    ({"init": 3}, "init: expected a dict of values by site; found int"),
    ({"init": {"nu": 0.0}}, "init: 'nu' is not a latent site; those are"),
    ({"init": {"y": Y}}, "init: 'y' is not a latent site"),
    ({"init": {"theta": [0.0, 1.0]}}, "init: site 'theta' expects shape (3,)"),
    ({"init": {"mu": "zero"}}, "init: site 'mu' expects numbers"),
    ({"init": {"mu": float("nan")}}, "init: site 'mu' of chain 0 is not finite"),
    ({"init": {"theta": [[1.0], [1.0, 2.0]]}}, "init: site 'theta' expects numbers"),
    ({"var_names": 3}, "var_names: expected a list of names; found int"),
    ({"var_names": ["nu"]}, "var_names: no variable 'nu'; there are 'mu', 'theta'"),
    ({"var_names": "nu"}, "var_names: no variable 'nu'"),
    ({"coords": 3}, "coords: expected a dict of labels by dimension; found int"),
    ({"coords": {"school": ["a"]}}, "coords: no variable has a dimension 'school'"),
    ({"coords": {"group": ["a"]}}, "coords: dimension 'group' has 3 elements"),
    ({"dims": 3}, "dims: expected a dict of dimensions by variable; found int"),
    ({"dims": {"nu": ["a"]}}, "dims: no variable 'nu'"),
    ({"dims": {"theta": ["a", "b"]}}, "dims: 'theta' has 1 axes"),
    ({"dims": {"theta": "school"}}, "dims: 'theta' has 1 axes"),
    ({"dims": {"theta": ["draw"]}}, "cannot have a dimension 'draw'"),
    ({"dims": {"theta": ["a/b"]}}, "contains '/'"),
    ({"dims": {"theta": 3}}, "dims: 'theta'"),
    ({"dims": {"theta": [3]}}, "dims: 'theta'"),
    ({"checkpoint": 3}, "checkpoint: expected a path, as text or a Path; found int"),
    ({"checkpoint": __file__}, "is a file. Choose another path"),
    ({"checkpoint": "/dev/null/run"}, "/dev/null"),
    ({"precision": "float64"}, "precision: expected one of 'auto', 'single', 'double'"),
    ({"adaptation": {}}, "adaptation: expected an Adaptation"),
    ({"adaptation": 3}, "adaptation: expected an Adaptation"),
]

# Models and arguments of `sample`.
MODELS = [
    ((3,), "expected a NumPyro model, a callable; found int"),
    ((None,), "expected a NumPyro model, a callable; found NoneType"),
    (("groups",), "a callable; found str"),
    ((groups, Y), "expected args as a tuple; found ndarray. Write args=(x,)."),
    ((groups, "y"), "expected args as a tuple; found str"),
    ((groups, 3), "expected args as a tuple; found int"),
    ((groups, (), 3), "expected kwargs as a dict; found int"),
    ((groups, (), {"y": Y, "z": 1}), "unexpected keyword argument 'z'"),
    ((groups,), "missing 1 required positional argument: 'y'"),
    ((groups, (Y, 1.0, 2.0)), "takes from 1 to 2 positional arguments"),
    ((groups, (np.array(["a", "b"]),)), "'y' holds text"),
    ((groups, ("abc",)), "'y' holds text"),
    ((groups, (None,)), "failed on its data: TypeError"),
    ((groups, (Y, np.ones(2))), "scale of shape (2,)"),
    ((by_text, (Y, np.array(["x", "y", "z"]))), "'county' holds text"),
    ((nothing,), "has no latent site: there is nothing to sample"),
    ((observed_only, (Y,)), "has no latent site"),
    ((twice,), "site 'x' appears twice"),
    ((branching,), "control flow depends on the value of a latent site"),
    ((keyed,), "asks for a random key with numpyro.prng_key()"),
    ((block(groups, hide=["mu"]), (Y,)), "site 'mu' is hidden by numpyro.handlers.block"),
    ((hiding, (Y,)), "block(substitute(model, data={'mu': ...}), hide=['mu'])"),
    ((hiding_scan, (Y,)), "a scan or cond is hidden by numpyro.handlers.block"),
    ((subsampled, (Y,)), "plate 'rows' subsamples 2 of 3"),
    ((with_param,), "site 'a' is a param, which MCMC does not learn"),
    ((counted,), "in one run of the model and"),
    ((negative, (Y,)), "Normal distribution got invalid scale parameter"),
    ((latent("draw"),), "site 'draw': draws have an axis of this name"),
    ((latent("chain"),), "site 'chain': draws have an axis of this name"),
    ((latent("slot"),), "Call it something else, 'slot_' for example"),
    ((latent("x", dist.Bernoulli(0.5)),), "site 'x' is a discrete latent"),
    ((latent("x", dist.Poisson(3.0)),), "too many values to sum over"),
    ((latent(3),), "site 3"),
    ((latent("x", 3),), "failed on its data"),
]


def wide(call, *args):
    """In single precision, where integers have 32 bits."""

    def refused():
        with jax.enable_x64(False):
            call(*args)

    return refused


# Everything else: a call of no arguments that is refused. Those of a run take one.
CALLS = [
    (wide(ar.inspect, capturing, (Y,)), "'BIG' holds the integer 6,000,000,000"),
    (wide(ar.inspect, counts, (BIG, 5.0)), "'n' holds the integer 6,000,000,000"),
    (wide(ar.inspect, counts, (2**40, 5.0)), "'n' holds the integer 1,099,511,627,776"),
    (
        wide(partial(ar.sample, precision="single"), counts, (BIG, 5.0)),
        "precision='double' of ar.sample",
    ),
    (partial(ar.sample, unsampled, (Y[0],), posterior_predictive=True), "posterior_predictive: it"),
    (partial(ar.inspect, groups, (Y,), site="all"), "Did you mean 'sites'?"),
    (partial(ar.inspect, groups, (Y,), sites="every"), "sites: expected 'auto', 'all' or a list"),
    (partial(ar.inspect, groups, (Y,), sites=["nu"]), "site 'nu' cannot be reparameterized"),
    (partial(ar.inspect, groups, (Y,), sites=3), "sites: expected 'auto', 'all' or a list"),
    (partial(ar.inspect, 3), "expected a NumPyro model, a callable"),
    (partial(learn, objective="kl"), "objective: expected 'elbo' or 'score'; found 'kl'"),
    (partial(learn, objective="score"), "pass draws=tree"),
    (partial(learn, objective="score", draws=3), "draws: expected a run, the DataTree"),
    (partial(learn, stepss=3), "learn has no keyword 'stepss'. Did you mean 'steps'?"),
    (partial(learn, num_steps=3), "Did you mean 'steps'?"),
    (partial(learn, rng_key=3), "Did you mean 'seed'?"),
    (partial(learn, objective="score", draws=3, steps=4), "learn has no keyword 'steps'"),
    (partial(learn, steps=0), "expected at least one step"),
    (partial(learn, steps="many"), "expected at least one step"),
    (partial(learn, samples=-1), "expected at least one step"),
    (partial(learn, learning_rates=()), "one positive learning rate"),
    (partial(learn, learning_rates=0.1), "one positive learning rate"),
    (partial(learn, s0=-1.0), "s0: expected a positive number; found -1.0"),
    (partial(learn, objective="score", s0=1.0), "s0 is for objective='elbo'"),
    (partial(learn, s0="one"), "s0: expected a positive number; found 'one'"),
    (partial(learn, seed="x"), "seed: expected an integer"),
    (partial(ar.learn, 3), "expected a NumPyro model"),
    (partial(ar.log_joint, 3), "expected a NumPyro model"),
    (partial(ar.log_joint, groups, (Y,), parameterization=0.5), "expected a Parameterization or"),
    (partial(ar.log_joint, groups, (Y,), lam=0.5), "log_joint has no keyword 'lam'"),
    (lambda: ar.log_joint(groups, (Y,))({"mu": 0.0}), "site 'theta' has no value"),
    (partial(ar.reparameterize, groups, 0.5), "expected a Parameterization, found float"),
    (partial(ar.reparameterize, 3, 0.5), "expected a NumPyro model"),
    (partial(ar.Parameterization, {"theta": 1.5}), "expected λ between 0"),
    (partial(ar.Parameterization, {"theta": -0.1}), "expected λ between 0"),
    (partial(ar.Parameterization, {"theta": float("nan")}), "expected λ between 0"),
    (partial(ar.Parameterization, {"theta": "half"}), "expected numbers, found 'half'"),
    (partial(ar.Parameterization, {"theta": [[1], [1, 0]]}), "expected numbers"),
    (partial(ar.Parameterization, {"theta": 0.5}, {"tau": 1.0}), "site 'tau' has no λ"),
    (partial(ar.Parameterization, {"theta": 0.5}, None, {"theta": 0.0}), "positive reference"),
    (partial(ar.Parameterization, 3), "expected a dict of λ by site; found int"),
    (partial(ar.Parameterization.centered, 3), "expected a Program"),
    (partial(ar.Parameterization.constant, groups, 0.5), "expected a Program"),
    (partial(ar.Parameterization.from_json, "{"), "not JSON"),
    (partial(ar.Parameterization.from_json, "[1]"), "not a parameterization"),
    (partial(ar.Parameterization.from_json, 3), "not JSON"),
    (partial(ar.Parameterization.load, "/nowhere/lam.json"), "cannot read /nowhere/lam.json"),
    (partial(ar.Parameterization.load, __file__), "cannot read"),
    (partial(ar.Parameterization.load, 3), "load: expected a path"),
    (partial(ar.Parameterization({"a": 0.5}).save, "/nowhere/lam.json"), "no folder '/nowhere'"),
    (partial(ar.Parameterization({"a": 0.5}).save, "/tmp"), "is a folder; name a file"),
    (partial(ar.Parameterization({"a": 0.5}).replace, {"b": 0.1}), "its sites are 'a'"),
    (partial(ar.Parameterization({"a": 0.5}).replace, {"a": [1, 2]}), "expected λ as a number"),
    (partial(ar.resume, "/nowhere/run", groups, (Y,)), "there is nothing there"),
    (partial(ar.resume, __file__, groups, (Y,)), "it is a file"),
    (partial(ar.resume, "/tmp", groups, (Y,)), "it has no manifest.json"),
    (partial(ar.resume, 3, groups, (Y,)), "checkpoint: expected a path"),
    (partial(ar.resume, "run", groups, (Y,), num_samples=3), "Did you mean 'draws'?"),
    (partial(ar.resume, "run", groups, (Y,), dims=3), "dims: expected a dict"),
    (partial(ar.report, None), "tree: expected a run, the DataTree that ar.sample gives back"),
    (partial(ar.report, {"posterior": 1}), "tree: expected a run"),
    (partial(ar.summary, None), "expected a run"),
    (partial(ar.summary, Y), "expected a run"),
    (partial(ar.efficiency, None), "expected a run"),
    (partial(ar.parameterization, None), "expected a run"),
    (partial(ar.plots.parameterization, None), "expected a run"),
    (partial(ar.plots.geometry, None), "expected a run"),
    (partial(ar.plots.efficiency, None), "expected a run"),
    (partial(ar.plots.efficiency, {"a": 3}), "expected a run"),
    (partial(ar.interop.numpyro_code, None), "expected a run"),
    (partial(ar.interop.on_verdict, None, groups, (Y,), None, {}), "expected BlackJAX's verdict"),
    (partial(ar.interop.model_values, groups, (Y,), None, {}, 3), "expected a Parameterization"),
    (
        lambda: ar.interop.model_values(
            groups, (Y,), None, {}, ar.Parameterization({"theta": np.ones(3)})
        ),
        "no value for 'mu'",
    ),
    (partial(sample_many, {"scale": 1.0}), "argument 'scale' has no leading axis of data sets"),
    (partial(sample_many, {"scale": np.ones(3)}), "found 2 in 'y', 3 in 'scale'"),
    (partial(sample_many, shared=["sigma"]), "no argument 'sigma'; its arguments are 'y'"),
    (partial(sample_many, shared="y"), "shared: expected a list of names; found 'y'"),
    (partial(sample_many, shared=["y"]), "no argument has a leading axis of data sets"),
    (partial(sample_many, parameterization="vip"), "expected one of 'auto', 'centered'"),
    (partial(sample_many, kernel="nuts"), "sample_many has no keyword 'kernel'"),
    (partial(sample_many, num_samples=3), "Did you mean 'draws'?"),
    (partial(sample_many, draws=0), "draws: expected an integer >= 1"),
    (partial(sample_many, seed=-1), "seed: expected an integer"),
    (partial(sample_many, var_names=["nu"]), "var_names: no variable 'nu'"),
    (partial(sample_many, dims={"theta": ["dataset"]}), "cannot have a dimension 'dataset'"),
    (partial(ar.sample_many, groups, Y), "expected args as a tuple"),
    (partial(ar.sample_many, groups, (np.empty((0, 3)),)), "found 0 in 'y'"),
    (partial(ar.sample_many, sized, (np.array([2, 3]),)), "'n' differs between data sets"),
    (partial(ar.sample_many, named_dataset, (np.stack([Y, Y]),)), "have an axis of this name"),
    (partial(ar.compilation_cache, 3), "folder: expected a path"),
    (partial(ar.compilation_cache, __file__), "is a file; expected a folder"),
    (partial(ar.register, 3), "expected distribution classes; found 3"),
    (partial(ar.register), "expected distribution classes"),
    (partial(ar.inspect, latent("x", Odd(0.0, 1.0))), "the rule for Odd returned int"),
    (partial(ar.inspect, latent("x", Open(0.0, 1.0))), "the rule for Open failed: AttributeError"),
    (partial(ar.Adaptation, 3), "Adaptation: expected sampler as SamplerSettings; found int"),
    (partial(ar.zoo.load, "nine_schools"), "The zoo has no model named 'nine_schools'"),
    (partial(ar.zoo.load, 3), "The zoo has no model named 3"),
    (partial(ar.zoo.load, "funnel", size=3), "has no option 'size'"),
    (partial(ar.zoo.load, "funnel", n=-1), "n"),
    (partial(ar.paper.make_ncp, 3), "expected a NumPyro model"),
    (partial(ar.paper.make_vip, 3), "expected a NumPyro model"),
    (partial(ar.paper.make_log_joint, 3), "expected a NumPyro model"),
    # of an ar.Program
    (lambda: ar.inspect(groups, (Y,))["nu"], "site 'nu'; sites of this model: 'mu', 'theta'"),
    (lambda: ar.Parameterization({"a": 0.5})["b"], "sites of this parameterization: 'a'"),
]

RUNS = [
    (lambda tree: ar.summary(tree, ["nu"]), "var_names: no variable 'nu'; there are 'mu', 'theta'"),
    (lambda tree: ar.summary(tree, 3), "var_names: expected a list of names; found int"),
    (lambda tree: ar.summary(tree, names=["mu"]), "Did you mean 'var_names'?"),
    (lambda tree: ar.predict(groups, (Y,), draws=3), "draws: expected the tree of a run"),
    (lambda tree: ar.predict(groups, (Y,), num_samples=3), "no keyword 'num_samples'"),
    (lambda tree: ar.predict(groups, (Y,), num_draws=0), "num_draws: expected an integer >= 1"),
    (lambda tree: ar.predict(groups, (Y,), seed="a"), "seed"),
    (lambda tree: ar.predict(3), "expected a NumPyro model, a callable; found int"),
    (lambda tree: ar.efficiency(tree, most="all"), "most: expected a number of scalars, or None"),
    (lambda tree: ar.report(tree, "/nowhere/r.html"), "report: there is no folder '/nowhere'"),
    (lambda tree: ar.report(tree, "/tmp"), "report: /tmp is a folder; name a file"),
    (lambda tree: ar.report(tree, 3), "report: expected a path"),
    (lambda tree: ar.report(tree, out="r.html"), "Did you mean 'path'?"),
    (lambda tree: ar.report(tree, "r.html", alternatives=[tree]), "alternatives: expected a dict"),
    (lambda tree: ar.report(tree, "r.html", alternatives={"a": 3}), "alternatives['a']: expected"),
    (
        lambda tree: ar.parameterization(tree, slot=5),
        "slot: expected a number from -1 to 0; found 5",
    ),
    (lambda tree: ar.plots.geometry(tree, "nu"), "has no pair to show for 'nu'"),
    (lambda tree: ar.summary(tree["posterior"]), "has no group 'posterior'"),
    (lambda tree: ar.learn(other_names, objective="score", draws=tree), "have no latent 'nu'"),
]


def other_names():
    numpyro.sample("nu", dist.Normal(0.0, 1.0))


# Commands, in a folder with `model.py`, whose model is `groups(sigma, y)`, and `data.json`.
MODEL = ("model.py:groups", "--data", "data.json")
COMMANDS = [
    (("sample", *MODEL, "--out", "run.txt"), "--out: expected a name ending in .nc or .zarr"),
    (("sample", *MODEL, "--out", "no/run.nc"), "--out: there is no folder"),
    (("sample", *MODEL, "--out", "full.zarr"), "full.zarr holds something else, which was left"),
    (("sample", *MODEL, "--out", "full.nc"), "full.nc is a folder; name a file"),
    (("sample", *MODEL, "--report", "no/page.html"), "--report: there is no folder"),
    (("sample", *MODEL, "--report", "full.nc"), "--report: full.nc is a folder"),
    (("sample", *MODEL, "--report", "data.json"), "--report: data.json holds the data"),
    (("compare", *MODEL, "--report", "./data.json"), "--report: data.json holds the data"),
    (("learn", *MODEL, "--out", "data.json"), "--out: data.json holds the data"),
    (("resume", "nowhere", *MODEL, "--report", "data.json"), "data.json holds the data"),
    (("sample", *MODEL, "--checkpoint", "data.json"), "data.json is a file"),
    (("sample", *MODEL, "--checkpoint", "full.nc"), "is not empty and is not a checkpoint"),
    (("sample", *MODEL, "-p", "center"), "expected one of 'auto', 'vip'"),
    (("sample", *MODEL, "-p", "no.json"), "cannot read no.json"),
    (("sample", *MODEL, "-p", "data.json"), "not a parameterization"),
    (("sample", *MODEL, "--kernel", "gibbs"), "kernel: expected one of"),
    (("sample", *MODEL, "--draws", "0"), "Invalid value for"),
    (("sample", *MODEL, "--draws", "many"), "Invalid value for '--draws'"),
    (("sample", *MODEL, "--seed", "-1"), "Invalid value for '--seed'"),
    (("sample", *MODEL, "--target-accept", "2"), "between 0 and 1; found 2.0"),
    (("sample", *MODEL, "--thin", "5000"), "thin: expected at most the number of draws"),
    (("sample", *MODEL, "--num-samples", "5"), "No such option: --num-samples"),
    (("sample",), "Missing argument"),
    (("sample", "model.py:groups"), "needs 'sigma'"),
    (("sample", "model.py:nothing"), "has no function 'nothing'"),
    (("sample", "model.py:LIMIT"), "is not a function but of type int"),
    (("sample", "broken.py:model"), "could not be loaded: ZeroDivisionError"),
    (("sample", "nowhere.py:model"), "there is no such file"),
    (("sample", "zoo:nothing"), "The zoo has no model named 'nothing'"),
    (("sample", "zoo:funnel", "--data", "data.json"), "brings its own data"),
    (("sample", *MODEL, "--data", "data.json"), "is also in an earlier file"),
    (("sample", *MODEL, "--set", "sigma"), "expected NAME=VALUE"),
    (("sample", *MODEL, "--set", "tau=3"), "'tau', which is not an argument"),
    (("sample", "model.py:groups", "-d", "huge.json"), "an integer of more than 64 bits"),
    (
        ("sample", "model.py:groups", "-d", "text.json"),
        "a model needs numbers, or a column of text",
    ),
    (("sample", "model.py:groups", "-d", "list.json"), "expected an object"),
    (("sample", "model.py:groups", "-d", "torn.json"), "cannot be read"),
    (("sample", "model.py:groups", "-d", "text.csv"), "'3' among it is a number"),
    (("sample", "model.py:groups", "-d", "uneven.csv"), "line 3 has 1 values"),
    (("sample", "model.py:groups", "-d", "model.py"), "expected a file ending in"),
    (("resume", "nowhere", *MODEL), "there is nothing there"),
    (("resume", "data.json", *MODEL), "it is a file"),
    (("resume", "full.nc", *MODEL), "it has no manifest.json"),
    (("resume", "nowhere", *MODEL, "--out", "run.txt"), "ending in .nc or .zarr"),
    (("resume", "nowhere", *MODEL, "--report", "no/page.html"), "--report: there is no folder"),
    (("resume", "nowhere"), "Missing argument"),
    (("learn", *MODEL, "--out", "lam.txt"), "--out: expected a name ending in .json"),
    (("learn", *MODEL, "--out", "no/lam.json"), "--out: there is no folder"),
    (("learn", *MODEL, "--objective", "kl"), "objective: expected 'elbo' or 'score'"),
    (("learn", *MODEL, "--objective", "score"), "pass --draws RUN"),
    (("learn", *MODEL, "--objective", "score", "--draws", "no.nc"), "there is no such run"),
    (("learn", *MODEL, "--steps", "0"), "Invalid value for"),
    (("compare", *MODEL, "-m", "centered", "-m", "center"), "methods: expected one of"),
    (("compare", *MODEL, "--report", "no/page.html"), "--report: there is no folder"),
    (("compare", *MODEL, "--chains", "0"), "Invalid value for"),
    (("inspect", "model.py"), "expected path/to/model.py:function"),
    (("inspect", "nowhere.module:model"), "could not be imported"),
    (("inspect", "folder.py:model"), "it is a folder"),
    (("predict", *MODEL, "--out", "run.txt"), "ending in .nc or .zarr"),
    (("predict", *MODEL, "--out", "no/run.nc"), "--out: there is no folder"),
    (("predict", *MODEL, "--draws", "nowhere.nc"), "there is no such run"),
    (("report", "nowhere.nc"), "there is no such run"),
    (("report", "data.json"), "is not a run that can be read"),
    (("report", "nowhere.nc", "--out", "no/page.html"), "--out: there is no folder"),
    (("report", "nowhere.nc", "--with", "x"), "there is no such run"),
    (("data", "fetch", "x"), "no data file named 'x'"),
    (("data", "fetch"), "or pass --all"),
    (("data", "lost"), "No such command 'lost'"),
    (("demo", "--draws", "2"), "4 or more for an ESS"),
    (("demo", "--report", "no/page.html"), "--report: there is no folder"),
    (("reproduce", "--quick", "--full"), "choose one of --quick and --full"),
    (("reproduce", "--model", "nothing"), "nothing"),
    (("reproduce", "--method", "nothing"), "nothing"),
    (("reproduce", "--model", "eight_schools", "--out", "data.json"), "is a file; expected a"),
    (("sampel",), "No such command 'sampel'"),
]
