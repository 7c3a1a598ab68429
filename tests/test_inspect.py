"""The table of sites, what it says in words, and what `inspect` refuses."""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import cond, scan
from numpyro.infer.util import log_density

import autoreparam as ar
from autoreparam.errors import ModelError
from autoreparam.program.diagnose import nonfinite
from autoreparam.program.target import Target

Y = np.array([0.3, -1.2, 0.8])


def two_level(y=Y, scale=1.0):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    with numpyro.plate("groups", y.shape[0]):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, scale), obs=y)


def names(sites):
    return [site.name for site in sites]


def one_site(fn_of_parents, **options):
    """The site `x` of a model in which `x` has the given distribution of `mu` and `tau`."""

    def model():
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        numpyro.sample("x", fn_of_parents(mu, tau), **options)

    return ar.inspect(model)["x"]


# -- the table --------------------------------------------------------------------------------


def test_sites_come_in_the_order_of_the_model_with_kind_shape_and_support():
    table = [
        (s.name, s.kind, s.distribution, s.shape, s.support) for s in ar.inspect(two_level).sites
    ]
    assert table == [
        ("mu", "latent", "Normal", (), "real"),
        ("tau", "latent", "HalfNormal", (), "positive"),
        ("theta", "latent", "Normal", (3,), "real"),
        ("y", "observed", "Normal", (3,), "real"),
    ]


def test_parents_are_told_apart_by_location_and_scale():
    site = one_site(lambda mu, tau: dist.StudentT(2.0 + tau, mu, 1.0))
    assert (site.loc_parents, site.scale_parents, site.parents) == (("mu",), (), ("mu", "tau"))
    site = one_site(lambda mu, tau: dist.Normal(0.0, jnp.exp(mu) * tau))
    assert (site.loc_parents, site.scale_parents) == ((), ("mu", "tau"))


def test_parents_are_found_through_deterministics_and_point_masses():
    def model():
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        double = numpyro.deterministic("double", 2 * mu)
        copy = numpyro.sample("copy", dist.Delta(double))
        numpyro.sample("x", dist.Normal(copy, 1.0))

    assert ar.inspect(model)["x"].loc_parents == ("mu",)


def test_reasons_are_given_in_words():
    program = ar.inspect(two_level)
    assert program["mu"].note == "location and scale are constant"
    assert program["theta"].note == "location depends on mu; scale depends on tau"
    assert names(program.candidates) == ["theta"]


def test_an_unregistered_family_stays_centered_and_is_reported():
    site = one_site(lambda mu, tau: dist.Kumaraswamy(1.0 + tau, 2.0))
    assert not site.candidate
    assert site.note == "no rule for the Kumaraswamy family; stays centered"
    assert site.support == "unit interval"


def test_a_transform_across_elements_stays_centered_and_is_reported():
    site = one_site(
        lambda mu, tau: dist.TransformedDistribution(
            dist.Normal(mu, tau).expand([3]).to_event(1),
            dist.transforms.OrderedTransform(),
        )
    )
    assert not site.candidate
    assert "OrderedTransform does not act on each element separately; stays centered" in site.note


def test_nested_plates_may_sit_at_any_dim():
    def model():
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", 3, dim=-3), numpyro.plate("columns", 4, dim=-1):
            numpyro.sample("x", dist.Normal(mu, 1.0).expand([2]).to_event(1))

    site = ar.inspect(model)["x"]
    assert site.shape == (3, 1, 4, 2)
    assert site.event_dim == 1
    assert {(name, site.shape[axis]) for name, axis in site.plates} == {("rows", 3), ("columns", 4)}


def test_sample_shape_and_to_event_are_part_of_the_shape():
    assert one_site(dist.Normal, sample_shape=(5,)).shape == (5,)
    site = one_site(lambda mu, tau: dist.Normal(mu, tau).expand([2, 3]).to_event(2))
    assert (site.shape, site.event_dim, site.candidate) == ((2, 3), 2, True)


def test_a_latent_with_fewer_free_numbers_than_elements_says_so():
    site = one_site(lambda mu, tau: dist.Dirichlet(jnp.ones(4)))
    assert (site.shape, site.unconstrained_shape, site.size) == ((4,), (3,), 3)


def test_deterministics_factors_and_point_masses_are_listed_as_such():
    def model():
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        index = numpyro.sample("index", dist.Delta(jnp.array([0, 2]), event_dim=1))
        x = numpyro.sample("x", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
        numpyro.deterministic("picked", x[index] + mu)  # an integer point mass can index
        numpyro.factor("penalty", -(mu**2))

    program = ar.inspect(model)
    kinds = {site.name: (site.kind, site.shape) for site in program.sites}
    assert kinds["index"] == ("deterministic", (2,))
    assert kinds["picked"] == ("deterministic", (2,))
    assert kinds["penalty"] == ("factor", ())
    target, lam = Target(program), ar.Parameterization.centered(program)
    found = target.to_sites(jnp.array([0.1, 1.0, 2.0, 3.0]), lam)
    np.testing.assert_allclose(found["picked"], [1.1, 3.1])
    own = log_density(model, (), {}, {"mu": 0.1, "x": jnp.array([1.0, 2.0, 3.0])})[0]
    np.testing.assert_allclose(target.log_joint(found), own)


def test_a_masked_site_is_reported_as_masked():
    site = one_site(lambda mu, tau: dist.Normal(mu, tau).expand([2]).mask(jnp.array([True, False])))
    assert site.candidate
    assert site.note.endswith("masked")


def test_conditioned_and_substituted_sites_are_not_latent():
    for fix in (numpyro.handlers.condition, numpyro.handlers.substitute):
        model = fix(two_level, data={"tau": jnp.array(0.7)})
        program = ar.inspect(model)
        assert program["tau"].kind == "observed"
        assert program["theta"].parents == ("mu",)
        values = {"mu": jnp.array(0.2), "theta": jnp.array([0.1, 0.2, 0.3])}
        own = log_density(model, (), {}, values)[0]
        np.testing.assert_allclose(Target(program).log_joint(values), own)


def test_a_partly_observed_site_splits_in_two():
    def model():
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", 3):
            numpyro.sample(
                "y", dist.Normal(mu, 1.0), obs=Y, obs_mask=jnp.array([True, True, False])
            )

    kinds = {site.name: site.kind for site in ar.inspect(model).sites}
    assert kinds == {"mu": "latent", "y_observed": "observed", "y_unobserved": "latent",
                     "y": "deterministic"}  # fmt: skip


def random_walk(y=Y):
    tau = numpyro.sample("tau", dist.LogNormal(0.0, 1.0))

    def step(previous, y):
        x = numpyro.sample("x", dist.Normal(previous, tau))
        spread = numpyro.sample("spread", dist.HalfNormal(tau))
        numpyro.sample("y", dist.Normal(x, spread), obs=y)
        return x, numpyro.deterministic("twice", 2 * x)

    scan(step, 0.0, y)


def test_inspect_says_that_a_site_inside_scan_depends_on_its_own_past():
    program = ar.inspect(random_walk)
    assert program["x"].shape == (3,)
    assert program["x"].note == "location depends on its own past; scale depends on tau"
    assert program["spread"].loc_parents == ("tau",)
    assert [site.name for site in program.candidates] == ["x", "spread"]


def test_a_model_with_scan_is_supported_with_every_site_left_as_it_is():
    program = ar.inspect(random_walk, sites=[])
    target, lam = Target(program), ar.Parameterization.centered(program)
    position = jnp.linspace(-0.5, 0.8, target.size)
    values = target.to_sites(position, lam)
    np.testing.assert_allclose(values["twice"], 2 * values["x"])
    np.testing.assert_allclose(target.from_sites(values, lam), position, atol=1e-12)
    given = {site.name: values[site.name] for site in program.latents}
    own = log_density(random_walk, (), {}, given)[0]
    np.testing.assert_allclose(target.log_joint(values), own)
    jacobian = jnp.log(values["tau"]) + jnp.log(values["spread"]).sum()
    np.testing.assert_allclose(target.logdensity(position, lam), own + jacobian)


def test_sites_inside_cond_stay_centered_and_the_target_supports_them():
    def model():
        c = numpyro.sample("c", dist.Normal(0.0, 1.0))
        branches = [lambda _, m=m: numpyro.sample("x", dist.Normal(m, 1.0)) for m in (20.0, c)]
        cond(c > 0, *branches, None)

    program = ar.inspect(model)
    assert not program["x"].candidate
    target, lam = Target(program), ar.Parameterization.centered(program)
    for c in (-1.0, 1.0):
        own = log_density(model, (), {}, {"c": c, "x": 2.0})[0]
        np.testing.assert_allclose(target.logdensity(jnp.array([c, 2.0]), lam), own)


def test_a_reparameterized_model_can_be_inspected_and_sampled_itself():
    program = ar.inspect(two_level)
    lam = ar.Parameterization.constant(program, 0.3)
    again = ar.inspect(ar.reparameterize(two_level, lam))
    assert names(again.latents) == ["mu", "tau", "theta_working"]
    position = jnp.linspace(-0.4, 0.9, 5)
    expected = Target(program).logdensity(position, lam)
    centered = ar.Parameterization.centered(again)
    np.testing.assert_allclose(Target(again).logdensity(position, centered), expected)


# -- which sites ------------------------------------------------------------------------------


def test_all_adds_the_sites_whose_location_and_scale_are_constant():
    program = ar.inspect(two_level, sites="all")
    assert names(program.candidates) == ["mu", "tau", "theta"]
    assert program["mu"].note == "location and scale are constant; requested"


def test_a_list_of_names_asks_for_just_these():
    program = ar.inspect(two_level, sites=["mu"])
    assert names(program.candidates) == ["mu"]
    assert program["theta"].note.endswith("not requested")
    assert ar.inspect(two_level, sites=[]).candidates == ()


@pytest.mark.parametrize(
    ("sites", "message"),
    [
        (
            ["nothing"],
            "site 'nothing' cannot be reparameterized: is not a site of the model.*'theta'",
        ),
        (["y"], "site 'y' cannot be reparameterized: observed.*'mu', 'tau', 'theta'"),
        ("theta", "expected 'auto', 'all' or a list of names; found 'theta'"),
    ],
)
def test_asking_for_what_cannot_be_reparameterized_is_an_error(sites, message):
    with pytest.raises(ModelError, match=message):
        ar.inspect(two_level, sites=sites)


def test_asking_for_an_unregistered_family_says_which():
    def model():
        numpyro.sample("p", dist.Kumaraswamy(2.0, 2.0))

    with pytest.raises(ModelError, match=r"site 'p' cannot.*no rule for the Kumaraswamy family"):
        ar.inspect(model, sites=["p"])


# -- how it prints ----------------------------------------------------------------------------


def test_the_text_table_is_aligned_and_complete():
    lines = repr(ar.inspect(two_level)).splitlines()
    assert lines[0].split() == ["site", "kind", "distribution", "shape", "support", "depends", "on",
                                "reparameterized"]  # fmt: skip
    column = lines[0].index("reparameterized")
    assert lines[4][column:] == "yes: location depends on mu; scale depends on tau"
    assert lines[2][column:] == "no: location and scale are constant"
    assert len(lines) == 2 + 4
    assert all(line == line.rstrip() for line in lines)


def test_the_html_table_escapes_names():
    def model():
        mu = numpyro.sample("<b>&mu</b>", dist.Normal(0.0, 1.0))
        numpyro.sample("x", dist.Normal(mu, 1.0))

    html = ar.inspect(model)._repr_html_()
    assert html.count("<tr>") == 3
    assert "<b>" not in html
    assert html.count("&lt;b&gt;&amp;mu&lt;/b&gt;") == 3  # its name, a parent, a reason


# -- data -------------------------------------------------------------------------------------


def test_arrays_and_floats_are_data_and_new_data_do_not_retrace():
    count = []

    @jax.jit
    def density(target, position, lam):
        count.append(1)
        return target.logdensity(position, lam)

    for number in range(3):
        y, scale = Y + number, 1.0 + number
        program = ar.inspect(two_level, (y,), {"scale": scale})
        assert len(program.data) == 2
        lam = ar.Parameterization.centered(program)
        position = jnp.linspace(-1.0, 1.0, 5)
        values = Target(program).to_sites(position, lam)
        own = log_density(two_level, (y, scale), {}, {n: values[n] for n in ("mu", "tau", "theta")})
        found = density(Target(program), position, lam)
        np.testing.assert_allclose(found, own[0] + position[1], rtol=1e-10)
    assert len(count) == 1


@pytest.mark.parametrize("array", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_data_are_static_only_where_the_model_branches_on_values(array):
    def model(kind, y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        if (kind > 1).any():
            numpyro.sample("extra", dist.Normal(mu, 1.0))
        numpyro.sample("y", dist.Normal(mu, 1.0).expand([3]).to_event(1), obs=y)

    small = ar.inspect(model, (array([0, 1]), array(Y)))
    large = ar.inspect(model, (array([0, 2]), array(Y)))
    assert "extra" not in names(small.sites)
    assert "extra" in names(large.sites)
    assert [np.shape(leaf) for leaf in large.data] == [(3,)]
    assert small.structure != large.structure
    assert large.structure == ar.inspect(model, (array([0, 2]), array(Y + 1))).structure


@pytest.mark.parametrize("size", [3, np.int64(3), np.array(3), jnp.array(3)], ids=type)
def test_an_integer_of_any_type_can_size_a_plate(size):
    def model(size):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("groups", size):
            numpyro.sample("x", dist.Normal(mu, 1.0))

    assert ar.inspect(model, (size,))["x"].shape == (3,)


def test_a_model_that_needs_numpy_arrays_gets_them():
    def model(y):
        y = y.copy()
        y[0] = 1.0
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, 1.0).expand([3]).to_event(1), obs=y)

    program = ar.inspect(model, (Y,))
    assert program.data == ()
    own = log_density(model, (Y,), {}, {"mu": 0.4})[0]
    np.testing.assert_allclose(Target(program).log_joint({"mu": jnp.array(0.4)}), own)


def test_an_error_of_the_models_own_comes_through_unchanged():
    def model(y):
        raise RuntimeError("the user's own words")

    with pytest.raises(RuntimeError, match="the user's own words"):
        ar.inspect(model, (Y,))
    with pytest.raises(ModelError, match="missing 1 required positional argument"):
        ar.inspect(model)


def test_missing_data_make_the_observation_a_latent():
    def model(y=None):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    assert ar.inspect(model)["y"].kind == "latent"
    assert ar.inspect(model, (1.0,))["y"].kind == "observed"


# -- bad input --------------------------------------------------------------------------------


def refuses(model, message, *args):
    with pytest.raises(ModelError, match=message):
        ar.inspect(model, args)


def test_a_discrete_latent_is_refused_by_name_with_the_remedy():
    def model():
        with numpyro.plate("rows", 2):
            numpyro.sample("count", dist.Poisson(3.0))

    refuses(
        model, r"site 'count' is a discrete latent \(Poisson\) with too many values.*or observe it"
    )


def test_a_discrete_latent_inside_scan_is_refused_too():
    def model():
        numpyro.sample("mu", dist.Normal(0.0, 1.0))
        scan(lambda c, _: (c, numpyro.sample("k", dist.Bernoulli(0.5))), 0.0, None, length=3)

    refuses(model, "site 'k' is a discrete latent")


def test_a_name_used_twice_is_refused_with_the_remedy():
    def model():
        for _ in range(2):
            numpyro.sample("x", dist.Normal(0.0, 1.0))

    refuses(model, r"site 'x' appears twice.*in a loop, number them: f'x_\{i\}'")


def test_a_site_named_like_its_plate_is_refused():
    def model():
        with numpyro.plate("x", 2):
            numpyro.sample("x", dist.Normal(0.0, 1.0))

    refuses(model, "site 'x' appears as a plate.*needs its own name")


def changing(*versions):
    """A model that goes through the given bodies, one a run."""
    runs = iter(range(100))

    def model():
        versions[next(runs) % len(versions)]()

    return model


def test_sites_that_come_and_go_between_runs_are_refused():
    def one():
        numpyro.sample("x", dist.Normal(0.0, 1.0))

    def two():
        one()
        numpyro.sample("extra", dist.Normal(0.0, 1.0))

    for model in (changing(one, two), changing(two, two, one), changing(one, one, two)):
        refuses(model, "site 'extra' was in one run.*depend only on its arguments")


def test_shapes_and_families_that_change_between_runs_are_refused():
    def body(fn):
        return lambda: numpyro.sample("x", fn)

    wide = body(dist.Normal(0.0, 1.0).expand([2]))
    refuses(changing(body(dist.Normal(0.0, 1.0)), wide), r"site 'x' had shape \(\) in one run")
    cauchy = body(dist.Cauchy(0.0, 1.0))
    refuses(
        changing(body(dist.Normal(0.0, 1.0)), cauchy), "site 'x' had distribution Normal in one"
    )


def test_a_structure_that_changes_after_inspection_is_refused_by_the_target():
    present = [True, False]

    def model():
        for name, there in zip("ab", present):
            if there:
                numpyro.sample(name, dist.Normal(0.0, 1.0))

    program = ar.inspect(model)
    target, lam = Target(program), ar.Parameterization.centered(program)
    present[1] = True
    with pytest.raises(ModelError, match="site 'b' was not there when the model was inspected"):
        target.logdensity(jnp.zeros(1), lam)
    present[:] = [False, False]
    with pytest.raises(ModelError, match="site 'a' was there when the model was inspected"):
        target.logdensity(jnp.zeros(1), lam)


def test_control_flow_on_a_latent_is_refused_with_the_remedy():
    def model():
        if numpyro.sample("x", dist.Normal(0.0, 1.0)) > 0:
            numpyro.sample("z", dist.Normal(0.0, 1.0))

    refuses(model, "control flow depends on the value of a latent site.*jnp.where or jax.lax.cond")


def test_a_param_is_refused_and_the_remedy_works():
    def model():
        loc = numpyro.param("loc", 1.0)
        numpyro.sample("x", dist.Normal(loc, 1.0))

    refuses(model, "site 'loc' is a param.*Give it a prior.*numpyro.handlers.substitute")
    program = ar.inspect(numpyro.handlers.substitute(model, data={"loc": jnp.array(2.0)}))
    density = Target(program).log_joint({"x": jnp.array(2.0)})
    np.testing.assert_allclose(density, dist.Normal(2.0, 1.0).log_prob(2.0))


def test_a_subsampled_plate_is_refused_and_a_full_one_is_not():
    def model(size=4):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", 10, subsample_size=size):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=jnp.zeros(size))

    refuses(model, "plate 'rows' subsamples 4 of 10.*Remove subsample_size")
    assert ar.inspect(model, (10,))["y"].shape == (10,)


def test_a_model_without_latents_is_refused():
    def model():
        numpyro.sample("y", dist.Normal(0.0, 1.0), obs=1.0)

    refuses(model, "no latent site: there is nothing to sample.*without obs")


def test_what_is_no_model_or_no_arguments_is_refused():
    refuses(None, "expected a NumPyro model, a callable; found NoneType. Pass the function itself")
    with pytest.raises(
        ModelError, match=r"expected args as a tuple; found ndarray. Write args=\(x,\)"
    ):
        ar.inspect(two_level, Y)
    with pytest.raises(ModelError, match="expected kwargs as a dict; found list"):
        ar.inspect(two_level, (), [1])


def test_a_support_that_moves_inside_scan_is_refused_with_the_remedy():
    def model():
        low = numpyro.sample("low", dist.Normal(0.0, 1.0))
        scan(lambda c, _: (c, numpyro.sample("x", dist.Uniform(low, 5.0))), 0.0, None, length=3)

    refuses(model, "site 'x' has a support that depends on values inside scan.*transform it")


# -- log densities that are not finite --------------------------------------------------------


def values_of(program):
    return {site.name: jnp.full(site.shape, 0.5) for site in program.latents}


def test_a_missing_observation_is_named_with_its_place_and_the_remedy():
    y = np.array([0.3, np.nan, 0.8])
    program = ar.inspect(two_level, (y,))
    error = nonfinite(program, values_of(program))
    assert isinstance(error, ModelError)
    message = str(error)
    assert "observed site 'y'" in message
    assert r"1 of 3 elements, first at index (1,) (value nan)" in message
    assert "use fn.mask(jnp.isfinite(y))" in message


def test_an_impossible_observation_is_named_too():
    def model(k):
        p = numpyro.sample("p", dist.Beta(1.0, 1.0))
        numpyro.sample("k", dist.Gamma(1.0 + p, 1.0), obs=k)

    program = ar.inspect(model, (-1.0,))
    assert "observed site 'k'" in str(nonfinite(program, values_of(program)))


def test_a_masked_missing_observation_is_fine():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        there = jnp.isfinite(y)
        fn = dist.Normal(mu, 1.0).expand([3]).mask(there)
        numpyro.sample("y", fn.to_event(1), obs=jnp.where(there, y, 0.0))

    program = ar.inspect(model, (np.array([0.3, np.nan, 0.8]),))
    assert nonfinite(program, values_of(program)) is None


def test_a_latent_or_factor_that_is_not_finite_is_named():
    def model():
        tau = numpyro.sample("tau", dist.Normal(0.0, 1.0))
        numpyro.sample("x", dist.Normal(0.0, tau))

    program = ar.inspect(model)
    error = nonfinite(program, {"tau": jnp.array(-1.0), "x": jnp.array(0.0)})
    assert "latent site 'x'" in str(error)
    assert "the scale of its distribution (Normal) is -1 in 1 of 1 elements" in str(error)

    def with_factor():
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.factor("penalty", jnp.log(x))

    program = ar.inspect(with_factor)
    error = nonfinite(program, {"x": jnp.array(-1.0)})
    assert "factor 'penalty' is not finite" in str(error)


class TestCapturedState:
    """A model that reads a global is sampled with the value the global has now."""

    center, table = 1.0, np.array([1.0, 2.0, 3.0])

    def model(self):
        x = numpyro.sample("x", dist.Normal(self.center, 1.0))
        with numpyro.plate("n", 3):
            numpyro.sample("y", dist.Normal(x, 1.0), obs=self.table)

    @pytest.mark.parametrize(
        ("name", "value"), [("center", 5.0), ("table", np.array([1.0, 2.0, 4.0]))]
    )
    def test_changing_it_makes_another_structure(self, name, value, monkeypatch):
        model = self.model
        before = ar.inspect(model)
        density = jax.jit(Target.log_joint)
        old = density(Target(before), {"x": 0.5})
        assert ar.inspect(model).structure == before.structure
        monkeypatch.setattr(self, name, value)
        after = ar.inspect(model)
        assert after.structure != before.structure
        new = density(Target(after), {"x": 0.5})
        assert new != old
        np.testing.assert_allclose(new, log_density(model, (), {}, {"x": 0.5})[0])


def test_threads_that_trace_at_the_same_time_do_not_disturb_each_other():
    target = Target(ar.inspect(two_level))
    lam = ar.Parameterization.noncentered(target.program)
    position = jnp.linspace(-1, 1, target.size)
    expected = float(target.logdensity(position, lam))

    def trace(_):
        return float(jax.jit(lambda p: target.logdensity(p, lam))(position))

    with jax.enable_x64(True), ThreadPoolExecutor(8) as pool:
        found = list(pool.map(trace, range(40)))
    np.testing.assert_allclose(found, expected)


def test_a_site_without_elements_is_left_alone():
    def model(y):
        mu, tau = numpyro.sample("mu", dist.Normal()), numpyro.sample("tau", dist.HalfNormal())
        numpyro.sample("none", dist.Normal(mu, tau).expand([0]).to_event(1))
        theta = numpyro.sample("theta", dist.Normal(mu, tau).expand([len(y)]).to_event(1))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)

    program = ar.inspect(model, (np.ones(3),))
    assert [site.name for site in program.candidates] == ["theta"]
    assert "has no elements" in program["none"].note
    tree = ar.sample(model, (np.ones(3),), draws=20, progress=False)
    assert tree["posterior"]["none"].shape == (4, 20, 0)
