"""Models of NumPyro's example gallery in other words, on made-up data; names are the gallery's."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.handlers import mask

# -- regressions and hierarchies --------------------------------------------------------------


def baseball(at_bats, hits=None):
    """Players whose chances differ around a common one, on the scale of log odds."""
    center = numpyro.sample("center", dist.Normal(-1.0, 1.0))
    spread = numpyro.sample("spread", dist.HalfNormal(0.5))
    with numpyro.plate("player", len(at_bats)):
        skill = numpyro.sample("skill", dist.Normal(center, spread))
        numpyro.sample("hits", dist.Binomial(at_bats, logits=skill), obs=hits)


def baseball_data(random):
    chance = 1 / (1 + np.exp(-random.normal(-1.0, 0.3, 12)))
    return (np.full(12, 45),), {"hits": random.binomial(45, chance)}


def bayesian_imputation(ages, known, unknown, survived=None):
    """Ages are missing for some passengers, and are sampled there."""
    center = numpyro.sample("center", dist.Normal(0.0, 1.0))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("known", len(known)):
        numpyro.sample("ages", dist.Normal(center, spread), obs=ages)
    with numpyro.plate("unknown", len(unknown)):
        lost = numpyro.sample("lost", dist.Normal(center, spread))
    age = jnp.zeros(len(known) + len(unknown)).at[known].set(ages).at[unknown].set(lost)
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    with numpyro.plate("passenger", len(age)):
        numpyro.sample("survived", dist.Bernoulli(logits=level + slope * age), obs=survived)


def bayesian_imputation_data(random):
    age = random.normal(size=60)
    survived = random.binomial(1, 1 / (1 + np.exp(0.8 * age)))
    order = random.permutation(60)
    return (age[order[10:]], order[10:], order[:10]), {"survived": survived}


def bayesian_hierarchical_linear_regression(patient, week, capacity=None):
    """A line per patient, both of whose coefficients vary between patients."""
    level = numpyro.sample("level", dist.Normal(0.0, 3.0))
    trend = numpyro.sample("trend", dist.Normal(0.0, 3.0))
    level_spread = numpyro.sample("level_spread", dist.HalfNormal(2.0))
    trend_spread = numpyro.sample("trend_spread", dist.HalfNormal(2.0))
    with numpyro.plate("patient", 9):
        own_level = numpyro.sample("own_level", dist.Normal(level, level_spread))
        own_trend = numpyro.sample("own_trend", dist.Normal(trend, trend_spread))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    with numpyro.plate("visit", len(week)):
        mean = own_level[patient] + own_trend[patient] * week
        numpyro.sample("capacity", dist.Normal(mean, noise), obs=capacity)


def bayesian_hierarchical_linear_regression_data(random):
    patient, week = np.repeat(np.arange(9), 7), np.tile(np.linspace(-1, 1, 7), 9)
    lines = random.normal([2.0, -1.0], [1.0, 0.7], (9, 2))
    capacity = lines[patient, 0] + lines[patient, 1] * week + 0.4 * random.normal(size=63)
    return (patient, week), {"capacity": capacity}


def ucbadmit(department, male, applications, admitted=None):
    """Admission by department, with an effect of sex that differs between departments."""
    center = numpyro.sample("center", dist.Normal(0.0, 1.5))
    effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
    spreads = numpyro.sample("spreads", dist.HalfNormal(1.0).expand([2]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(2, 2.0))
    with numpyro.plate("department", 6):
        both = numpyro.sample(
            "both",
            dist.MultivariateNormal(
                jnp.stack([center, effect]), scale_tril=spreads[:, None] * factor
            ),
        )
    logits = both[department, 0] + both[department, 1] * male
    with numpyro.plate("cell", len(male)):
        numpyro.sample("admitted", dist.Binomial(applications, logits=logits), obs=admitted)


def ucbadmit_data(random):
    department, male = np.repeat(np.arange(6), 2), np.tile([0.0, 1.0], 6)
    logits = random.normal(-0.5, 1.0, 6)[department] + random.normal(0.2, 0.3, 6)[department] * male
    applications = random.integers(80, 300, 12)
    admitted = random.binomial(applications, 1 / (1 + np.exp(-logits)))
    return (department, male, applications), {"admitted": admitted}


def ordinal_regression(x, grade=None):
    """Ordered grades by a latent score and its cut points."""
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    ordered = dist.transforms.OrderedTransform()
    cuts = numpyro.sample(
        "cuts", dist.TransformedDistribution(dist.Normal(0.0, 1.0).expand([3]).to_event(1), ordered)
    )
    with numpyro.plate("pupil", len(x)):
        numpyro.sample("grade", dist.OrderedLogistic(slope * x, cuts), obs=grade)


def ordinal_regression_data(random):
    x = random.normal(size=80)
    score = 1.2 * x + random.logistic(size=80)
    return (x,), {"grade": np.digitize(score, [-1.0, 0.3, 1.5])}


def zero_inflated_poisson(days, catch=None):
    """Catches of which some are zero for another reason."""
    dry = numpyro.sample("dry", dist.Uniform(0.0, 1.0))
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("trip", len(days)):
        rate = jnp.exp(level + slope * days)
        numpyro.sample("catch", dist.ZeroInflatedPoisson(dry, rate), obs=catch)


def zero_inflated_poisson_data(random):
    days = random.normal(size=70)
    caught = random.poisson(np.exp(0.8 + 0.4 * days))
    return (days,), {"catch": np.where(random.uniform(size=70) < 0.3, 0, caught)}


# -- processes in time and space --------------------------------------------------------------


def gp(x, y=None):
    """A smooth function with unknown length and size, seen through noise."""
    size = numpyro.sample("size", dist.LogNormal(0.0, 0.5))
    length = numpyro.sample("length", dist.LogNormal(0.0, 0.5))
    noise = numpyro.sample("noise", dist.HalfNormal(0.5))
    distance = (x[:, None] - x[None, :]) / length
    covariance = size**2 * jnp.exp(-0.5 * distance**2) + (noise**2 + 1e-6) * jnp.eye(len(x))
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(len(x)), covariance), obs=y)


def gp_data(random):
    x = np.linspace(-2, 2, 20)
    return (x,), {"y": np.sin(2 * x) + 0.2 * random.normal(size=20)}


def stochastic_volatility(returns):
    """Returns whose log scale walks."""
    step = numpyro.sample("step", dist.LogNormal(-1.8, 0.4))
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    walk = numpyro.sample("walk", dist.GaussianRandomWalk(step, num_steps=len(returns)))
    with numpyro.plate("day", len(returns)):
        numpyro.sample("returns", dist.Normal(0.0, jnp.exp(level + walk)), obs=returns)


def stochastic_volatility_data(random):
    scale = np.exp(np.cumsum(0.15 * random.normal(size=50)))
    return (scale * random.normal(size=50),), {}


def holt_winters(y):
    """A local level that follows the series, as a fold over time."""
    weight = numpyro.sample("weight", dist.Beta(2.0, 2.0))
    first = numpyro.sample("first", dist.Normal(0.0, 2.0))
    spread = numpyro.sample("spread", dist.LogNormal(-0.7, 0.3))
    noise = numpyro.sample("noise", dist.LogNormal(-0.9, 0.3))

    def step(level, now):
        level = numpyro.sample("level", dist.Normal(level, spread))
        seen = numpyro.sample("y", dist.Normal(level, noise), obs=now)
        return weight * seen + (1 - weight) * level, None

    scan(step, first, y)


def holt_winters_data(random):
    return (np.cumsum(0.5 * random.normal(size=25)) + 0.4 * random.normal(size=25),), {}


# -- discrete latents -------------------------------------------------------------------------


def toy_mixture_model_discrete_enumeration(y):
    """Two clusters in order, each observation in one of them."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    ordered = dist.transforms.OrderedTransform()
    means = numpyro.sample(
        "means",
        dist.TransformedDistribution(dist.Normal(0.0, 2.0).expand([2]).to_event(1), ordered),
    )
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("obs", len(y)):
        cluster = numpyro.sample(
            "cluster", dist.Categorical(weights), infer={"enumerate": "parallel"}
        )
        numpyro.sample("y", dist.Normal(means[cluster], scale), obs=y)


def toy_mixture_model_discrete_enumeration_data(random):
    return (np.concatenate([random.normal(-2, 0.6, 25), random.normal(1.5, 0.6, 40)]),), {}


def hmm_enum(y):
    """A hidden chain of two states whose levels are known apart by their priors."""
    with numpyro.plate("state", 2):
        rows = numpyro.sample("rows", dist.Dirichlet(jnp.array([2.0, 2.0])))
        level = numpyro.sample("level", dist.Normal(jnp.array([-1.5, 1.5]), 0.5))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))

    def step(state, now):
        state = numpyro.sample(
            "hidden", dist.Categorical(rows[state]), infer={"enumerate": "parallel"}
        )
        numpyro.sample("y", dist.Normal(level[state], noise), obs=now)
        return state, None

    scan(step, 0, y)


def hmm_enum_data(random):
    states = [0]
    for _ in range(39):
        states.append(int(random.uniform() < (0.2, 0.7)[states[-1]]))
    return (np.where(states, 1.2, -1.4) + 0.7 * random.normal(size=40),), {}


def capture_recapture(history):
    """Animals that survive from season to season, and are met with a chance that varies."""
    survival = numpyro.sample("survival", dist.Uniform(0.0, 1.0))
    center = numpyro.sample("center", dist.Normal(0.0, 1.5))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    animals, seasons = history.shape
    with numpyro.plate("season", seasons - 1):
        effort = numpyro.sample("effort", dist.Normal(center, spread))

    def step(carry, here):
        known, alive = carry
        logit, seen = here
        with numpyro.plate("animal", animals, dim=-1), mask(mask=known):
            chance = jnp.where(known, alive * survival, 1.0)
            alive = numpyro.sample("alive", dist.Bernoulli(chance), infer={"enumerate": "parallel"})
            met = alive * jax.nn.sigmoid(logit)
            numpyro.sample("seen", dist.Bernoulli(met), obs=seen)
        return (known | (seen > 0), alive), None

    begin = (history[:, 0] > 0, jnp.ones(animals, dtype=int))
    scan(step, begin, (effort, jnp.swapaxes(history, 0, 1)[1:]))


def capture_recapture_data(random):
    history = np.zeros((40, 6), dtype=int)
    for row, first in zip(history, random.integers(0, 4, 40)):
        row[first] = 1
        alive = True
        for season in range(first + 1, 6):
            alive = alive and random.uniform() < 0.8
            row[season] = alive and random.uniform() < 0.6
    return (history,), {}


def annotation(votes):
    """Items of three unknown classes, voted on by raters who err in their own ways."""
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.full(3, 2.0)))
    with numpyro.plate("rater", votes.shape[1], dim=-2), numpyro.plate("truth", 3, dim=-1):
        habits = numpyro.sample("habits", dist.Dirichlet(1.0 + 4.0 * jnp.eye(3)))
    with numpyro.plate("item", len(votes), dim=-1):
        own = numpyro.sample("own", dist.Categorical(shares), infer={"enumerate": "parallel"})
        with numpyro.plate("vote", votes.shape[1], dim=-2):
            rater = jnp.arange(votes.shape[1])[:, None]
            numpyro.sample("votes", dist.Categorical(habits[rater, own]), obs=votes.T)


def annotation_data(random):
    own = random.choice(3, 40, p=[0.5, 0.3, 0.2])
    right = random.uniform(size=(40, 4)) < 0.75
    return (np.where(right, own[:, None], random.integers(0, 3, (40, 4))),), {}


MODELS = (
    baseball,
    bayesian_imputation,
    bayesian_hierarchical_linear_regression,
    ucbadmit,
    ordinal_regression,
    zero_inflated_poisson,
    gp,
    stochastic_volatility,
    holt_winters,
    toy_mixture_model_discrete_enumeration,
    hmm_enum,
    capture_recapture,
    annotation,
)
