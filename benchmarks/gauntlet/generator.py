"""Random hierarchical models: a frozen description by seed, and data drawn from it.

Even seeds are for tuning the library on, odd ones for reporting. True scales come from sensible
ranges rather than from the priors, some of which are so vague that data drawn with them overflow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

LIKELIHOODS = ("normal", "student_t", "poisson", "negative_binomial", "bernoulli", "binomial",
               "ordered", "censored")  # fmt: skip
KINDS = ("normal", "student_t", "log_normal", "gamma", "correlated", "walk", "gp")
PRIORS = ("half_normal", "half_cauchy", "exponential", "uniform", "inverse_gamma", "log_normal")
# Observations per group: few, about fifty, half with one and half with many, thousands.
PATTERNS = ("few", "even", "mixed", "rich")
IDENTITY = ("normal", "student_t", "censored")  # the mean is the linear predictor itself
NESTABLE = ("normal", "student_t", "log_normal")  # with a location that can be a parent's value
MULTIPLES = ("log_normal", "gamma")  # positive, without a unit: they multiply one
MOST_OBSERVATIONS, MOST_DIMENSIONS = 20_000, 500
COUNT = 400


@dataclass(frozen=True)
class Effect:
    """One batch of effects: a value per group, added to the linear predictor."""

    name: str
    kind: str
    groups: int
    prior: str  # of its scale
    width: float  # of that prior, a power of ten
    truth: float  # the scale that data are drawn with
    parent: str = ""  # the effect whose groups these are nested in
    covariate: int = -1  # the covariate that they multiply; -1: none

    @property
    def dimensions(self) -> int:
        """How many scalars it adds, its scales included."""
        return self.groups + 1 if self.kind != "correlated" else 2 * self.groups + 3


@dataclass(frozen=True)
class Covariate:
    """A column of numbers in units of their own."""

    unit: float
    offset: float  # its mean in these units: zero if the user has centered it


@dataclass(frozen=True)
class Spec:
    """A hierarchical model; with its seed, also its data."""

    seed: int
    likelihood: str
    pattern: str
    unit: float  # of the outcome, where it has one
    effects: tuple[Effect, ...]
    covariates: tuple[Covariate, ...]
    noise_prior: str
    intercept_width: float

    def children(self, effect: Effect) -> bool:
        """Whether other effects are nested in this one: then it acts through them."""
        return any(other.parent == effect.name for other in self.effects)


def draw_spec(seed: int) -> Spec:
    """The model of a seed, the same on every machine."""
    rng = np.random.default_rng([seed, 1])
    likelihood = _choice(rng, LIKELIHOODS)
    unit = 10.0 ** rng.integers(-2, 4) if likelihood in IDENTITY else 1.0
    covariates = tuple(
        Covariate(10.0 ** rng.integers(-3, 5), float(_choice(rng, (0.0, 0.0, 3.0))))
        for _ in range(rng.integers(0, 4))
    )
    pattern = _choice(rng, PATTERNS)
    effects: list[Effect] = []
    for factor in range(int(rng.choice([1, 2, 3], p=[0.5, 0.35, 0.15]))):
        effects += _factor(rng, "abc"[factor], factor, pattern, covariates, unit)
    while sum(effect.dimensions for effect in effects) > MOST_DIMENSIONS - 20:
        effects = [_smaller(effect) for effect in effects]
    noise_prior, width = _choice(rng, PRIORS), unit * 10.0 ** rng.integers(1, 4)
    return Spec(seed, likelihood, pattern, unit, tuple(effects), covariates, noise_prior, width)


def _factor(rng, letter, position, pattern, covariates, unit) -> list[Effect]:
    """One crossed factor: one level, or two or three nested in each other, the highest first."""
    kind = _choice(rng, KINDS)
    if kind == "correlated" and not covariates:
        kind = "normal"
    if kind in ("walk", "gp"):
        groups = int(_choice(rng, (10, 20, 30) if kind == "gp" else (20, 50, 100)))
    elif position == 0:
        most = {"few": 200, "even": 100, "mixed": 50, "rich": 6}[pattern]
        fewest = 12 if pattern == "few" else 3
        groups = int(np.exp(rng.uniform(np.log(fewest), np.log(most))))
    else:
        groups = int(np.exp(rng.uniform(np.log(3), np.log(60))))
    levels = int(rng.choice([1, 2, 3], p=[0.55, 0.3, 0.15])) if kind in NESTABLE else 1
    sizes = [groups]
    while len(sizes) < levels and sizes[0] >= 6:
        sizes.insert(0, max(2, sizes[0] // int(rng.integers(2, 6))))
    covariate = -1
    if kind == "correlated" or (covariates and kind in NESTABLE and rng.random() < 0.25):
        covariate = int(rng.integers(len(covariates)))
    base = 1.0 if kind in MULTIPLES else unit
    if covariate >= 0 and kind in ("normal", "student_t"):
        base /= covariates[covariate].unit
    if kind == "walk":
        base *= 2 / groups**0.5  # so that it ends where the others do
    found: list[Effect] = []
    for level, size in enumerate(sizes):
        truth = base * float(np.exp(rng.uniform(np.log(0.1), np.log(0.8))))
        prior = _choice(rng, PRIORS)
        found.append(Effect(
            f"{letter}{level + 1}", kind if level == len(sizes) - 1 else "normal", size, prior,
            power_of_ten(truth) if prior == "log_normal" else max(1.0, power_of_ten(truth)),
            truth, found[-1].name if found else "", covariate,
        ))  # fmt: skip
    return found


def describe(spec: Spec) -> str:
    """One line of text about a model."""
    parts = []
    for effect in spec.effects:
        text = f"{effect.kind}[{effect.groups}] {effect.prior}"
        text += f" in {effect.parent}" if effect.parent else ""
        text += f" * x{effect.covariate}" if effect.covariate >= 0 else ""
        parts.append(f"{effect.name}: {text}")
    units = ", ".join(f"{one.unit:g}{'+' if one.offset else ''}" for one in spec.covariates)
    ending = f"; noise {spec.noise_prior}, unit {spec.unit:g}" * (spec.likelihood in IDENTITY)
    return (
        f"{spec.likelihood}, {spec.pattern}; "
        + "; ".join(parts)
        + f"; x of units [{units}]{ending}"
    )


def draw_index(spec: Spec) -> dict[str, np.ndarray]:
    """The group of each observation for every lowest level, and the parent of each group."""
    rng = np.random.default_rng([spec.seed, 2])
    lowest = [effect for effect in spec.effects if not spec.children(effect)]
    first = lowest[0].groups
    sizes = {
        "few": lambda: rng.integers(1, 6, first),
        "even": lambda: rng.integers(30, 80, first),
        "mixed": lambda: np.where(np.arange(first) % 2, rng.integers(200, 2001, first), 1),
        "rich": lambda: rng.integers(2000, 5001, first),
    }[spec.pattern]()
    while sizes.sum() > MOST_OBSERVATIONS:
        sizes = np.maximum(1, sizes // 2)
    index = {lowest[0].name: np.repeat(np.arange(first), sizes)}
    for effect in lowest[1:]:
        shares = rng.dirichlet(np.full(effect.groups, 1.0))
        index[effect.name] = rng.choice(effect.groups, len(index[lowest[0].name]), p=shares)
    groups = {effect.name: effect.groups for effect in spec.effects}
    for effect in spec.effects:
        if effect.parent:
            above = groups[effect.parent]
            every = np.arange(effect.groups) % above  # no parent without a child
            index[f"{effect.name}_parent"] = rng.permutation(every)
    return index


def power_of_ten(value: float) -> float:
    """The next power of ten: what a user who knows the order of magnitude would write."""
    return float(10.0 ** np.ceil(np.log10(value)))


def _smaller(effect: Effect) -> Effect:
    return replace(effect, groups=max(2, effect.groups * 3 // 4))


def _choice(rng, values):
    return values[int(rng.integers(len(values)))]
