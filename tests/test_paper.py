"""The paper's closed forms against numbers that come from the models themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autoreparam as ar
from autoreparam import paper
from autoreparam.experiments import exact, theory
from autoreparam.program.target import Target
from autoreparam.zoo.radon import radon

QS = (0.05, 1.0, 7.0, 200.0)
SIGMAS = (0.3, 1.0, 4.0)


@jax.jit
def hessian(target, lam):
    return jax.hessian(target.logdensity)(jnp.zeros(target.size), lam)


def precision_of(target, lam):
    return -np.asarray(hessian(target, lam))


def best_condition_number(precision):
    covariance = np.linalg.inv(precision)
    scale = np.sqrt(np.diag(covariance))
    low, high = np.linalg.eigvalsh(covariance / np.outer(scale, scale))
    return high / low


@pytest.mark.parametrize("sigma_mu", SIGMAS)
@pytest.mark.parametrize("q", QS)
def test_condition_numbers_are_those_of_the_model(q, sigma_mu):
    problem = ar.zoo.load("toy", n=4, sigma_mu=sigma_mu, sigma=(4 / q) ** 0.5)
    target = Target(ar.inspect(problem.model, problem.args, problem.kwargs))
    for form, end in (
        (paper.condition_number_cp, ar.Parameterization.centered),
        (paper.condition_number_ncp, ar.Parameterization.noncentered),
    ):
        numeric = best_condition_number(precision_of(target, end(target.program)))
        np.testing.assert_allclose(form(q, sigma_mu), numeric, rtol=1e-8)


@pytest.mark.parametrize("sigma_mu", SIGMAS)
def test_no_diagonal_preconditioner_does_better(sigma_mu):
    q, v = 3.0, sigma_mu**2
    covariance = np.linalg.inv(np.array([[1 / v + q, -1 / v], [-1 / v, 1 / v + 1]]))
    kappas = []
    for d in np.logspace(-3, 3, 601):
        low, high = np.linalg.eigvalsh(covariance * np.outer([d, 1], [d, 1]))
        kappas.append(high / low)
    assert min(kappas) == pytest.approx(paper.condition_number_cp(q, sigma_mu), rel=1e-3)


@pytest.mark.parametrize("sigma_mu", SIGMAS)
def test_both_are_equal_at_the_crossing_and_differ_on_its_sides(sigma_mu):
    q = paper.condition_crossing(sigma_mu)
    cp, ncp = paper.condition_number_cp, paper.condition_number_ncp
    np.testing.assert_allclose(cp(q, sigma_mu), ncp(q, sigma_mu))
    assert cp(2 * q, sigma_mu) < ncp(2 * q, sigma_mu)
    assert cp(q / 2, sigma_mu) > ncp(q / 2, sigma_mu)


def test_the_printed_form_is_right_for_unit_scale_alone():
    np.testing.assert_allclose(
        theory.printed_condition_number_ncp(2.0, 1.0), paper.condition_number_ncp(2.0, 1.0)
    )
    assert theory.printed_condition_number_ncp(2.0, 0.5) > 6 * paper.condition_number_ncp(2.0, 0.5)
    errors = theory.condition_errors()
    assert max(errors["CP"], errors["NCP"]) < 1e-8 < 1 < errors["NCP as printed"]


def homes():
    random = np.random.default_rng(3)
    county = np.repeat(np.arange(5), [1, 2, 4, 9, 30])
    floor = random.integers(0, 2, county.size).astype(float)
    return {
        "county": county,
        "floor": floor,
        "uranium": random.normal(size=5),
        "log_r": random.normal(size=county.size),
    }


def test_the_exact_posterior_of_radon_is_that_of_its_target():
    data = homes()
    target = Target(ar.inspect(radon, (), data))
    posterior = exact.radon_posterior(**data)
    lam = ar.Parameterization.centered(target.program)
    np.testing.assert_allclose(posterior.precision, precision_of(target, lam), atol=1e-8)


def test_the_exact_score_objective_is_that_of_the_target_under_any_lam():
    data = homes()
    target = Target(ar.inspect(radon, (), data))
    posterior = exact.radon_posterior(**data)
    blank = ar.Parameterization.centered(target.program, s0=1.0)
    for seed in range(3):
        lam = np.random.default_rng(seed).uniform(size=5)
        precision = precision_of(target, blank.replace({"m": lam}))
        covariance = np.linalg.inv(precision)
        objective = 0.5 * np.log(np.diag(covariance) * np.diag(precision)).sum()
        np.testing.assert_allclose(posterior.objective(lam), objective)


def test_the_score_optimum_has_no_better_neighbor():
    posterior = exact.radon_posterior(**homes())
    best = posterior.score_optimum()
    random = np.random.default_rng(0)
    for size in (1e-3, 1e-2, 1e-1):
        for _ in range(50):
            near = np.clip(best + size * random.normal(size=5), 0, 1)
            assert posterior.objective(near) >= posterior.objective(best) - 1e-9


def test_the_noncentered_funnel_is_gaussian():
    assert theory.distance_from_gaussian(theory.funnel()) < 1e-10
