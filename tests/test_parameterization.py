"""λ as a value: immutable, a pytree, checked, and the same after a trip through a file."""

import copy
import json
import pickle
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from origins import with_origins

import autoreparam as ar
from autoreparam.errors import ParameterizationError
from autoreparam.program import parameterization_file
from autoreparam.program.target import Target


def model(size=3):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    tau = numpyro.sample("tau", dist.LogNormal(1.0, 0.5))
    with numpyro.plate("groups", size):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("x", dist.Normal(theta, 2.5))


def other_model():
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    numpyro.sample("b", dist.Normal(a, 1.0))


@pytest.fixture(scope="module")
def program():
    return ar.inspect(model)


@pytest.fixture
def lam(program):
    return ar.Parameterization.constant(program, 0.5)


ODD = np.array([0.1, 1 / 3, np.nextafter(1.0, 0.0)])


# -- a value ----------------------------------------------------------------------------------


def test_lam_has_the_shape_of_the_sites_value_for_candidates_only(lam):
    assert lam.sites == ("theta", "x")
    assert tuple(lam) == lam.sites
    assert len(lam) == 2
    assert lam["theta"].shape == (3,)
    assert "mu" not in lam
    with pytest.raises(KeyError, match="site 'mu'; sites of this parameterization: 'theta', 'x'"):
        lam["mu"]


def test_the_constructors_say_what_they_are(program):
    assert np.all(ar.Parameterization.centered(program)["theta"] == 1)
    assert np.all(ar.Parameterization.noncentered(program)["theta"] == 0)
    assert np.all(ar.Parameterization.constant(program, 0.3)["x"] == 0.3)


def test_it_cannot_be_changed(lam):
    with pytest.raises(AttributeError, match=r"immutable; use \.replace"):
        lam.scale = {}
    with pytest.raises(TypeError):
        lam["theta"] = 0.3
    with pytest.raises(TypeError):
        lam.scale["theta"] = 0.3
    with pytest.raises(ValueError, match="read-only"):
        lam["theta"][0] = 0.3
    with pytest.raises(ValueError, match="read-only"):
        lam.reference["x"][...] = 3.0
    with pytest.raises(TypeError, match="unhashable"):
        hash(lam)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_does_not_change_with_the_array_it_was_made_from(dtype):
    given = np.full(3, 0.25, dtype)
    lam = ar.Parameterization({"theta": given})
    given[:] = 0.75
    assert np.all(lam["theta"] == 0.25)
    assert lam["theta"].dtype == dtype


def test_all_about_a_site_is_one_value(lam):
    site = lam.replace({"x": ODD}, scale={"x": 0.9}).of("x")
    np.testing.assert_array_equal(site.loc, ODD)
    np.testing.assert_array_equal(site.scale, [0.9, 0.9, 0.9])
    assert (site.reference, site.tail) == (2.5, None)
    np.testing.assert_array_equal(site.spread().reference, [2.5, 2.5, 2.5])
    with pytest.raises(AttributeError):
        site.loc = 0.3
    with pytest.raises(KeyError, match="site 'mu'; sites of this parameterization"):
        lam.of("mu")


def test_it_can_be_made_of_its_sites_and_checks_them(lam):
    sites = {name: lam.of(name) for name in lam}
    assert ar.Parameterization.by_site(sites) == lam
    sites["x"] = replace(sites["x"], loc=2 * ODD)
    with pytest.raises(ParameterizationError, match="site 'x': expected λ between 0"):
        ar.Parameterization.by_site(sites)
    sites["x"] = replace(lam.of("x"), tail=np.ones(2))
    with pytest.raises(ParameterizationError, match=r"site 'x': the tail has shape \(2,\)"):
        ar.Parameterization.by_site(sites)


def test_replace_gives_a_new_one_and_spreads_numbers(lam):
    new = lam.replace({"theta": 0.2})
    assert np.all(lam["theta"] == 0.5)
    np.testing.assert_array_equal(new["theta"], [0.2, 0.2, 0.2])
    np.testing.assert_array_equal(new["x"], lam["x"])
    np.testing.assert_array_equal(lam.replace({"x": ODD})["x"], ODD)
    assert new.reference["x"] == lam.reference["x"]
    assert lam.replace() == lam


def test_location_and_scale_are_tied_until_told_otherwise(lam):
    assert lam.tied
    untied = lam.replace(scale={"theta": 0.9})
    assert not untied.tied
    assert np.all(untied["theta"] == 0.5)
    assert np.all(untied.scale["theta"] == 0.9)
    assert untied.replace({"theta": 0.4}).tied
    both = lam.replace({"theta": 0.4}, scale={"theta": 0.6})
    assert (both["theta"][0], both.scale["theta"][0]) == (0.4, 0.6)


def test_round_takes_each_element_to_the_nearer_end(lam):
    rounded = lam.replace({"x": [0.1, 0.5, 0.51]}, scale={"x": [0.9, 0.49, 0.0]}).round()
    np.testing.assert_array_equal(rounded["x"], [0, 1, 1])
    np.testing.assert_array_equal(rounded.scale["x"], [1, 0, 0])
    assert rounded["x"].dtype == lam["x"].dtype


def test_equality_is_by_sites_lam_and_reference(program, lam):
    assert lam == ar.Parameterization.constant(program, 0.5)
    assert lam != lam.replace({"x": 0.4})
    assert lam != lam.replace(scale={"x": 0.4})
    assert lam != ar.Parameterization.constant(program, 0.5, s0=1.0)
    assert lam != ar.Parameterization({"theta": lam["theta"]})
    assert lam != "a string"


def test_repr_is_short_and_readable(lam):
    assert repr(lam) == "Parameterization(theta[3]: 0.5, x[3]: 0.5)"
    untied = lam.replace({"theta": ODD}, scale={"theta": 1.0})
    assert repr(untied) == "Parameterization(theta[3]: 0.1 to 1 (scale 1), x[3]: 0.5)"
    assert repr(ar.Parameterization({})) == "Parameterization()"
    assert "no elements" in repr(ar.Parameterization({"x": np.zeros((0, 3))}))


def test_it_can_be_copied_and_pickled(lam):
    untied = lam.replace({"theta": ODD}, scale={"x": 0.1})
    assert copy.deepcopy(untied) == untied
    assert pickle.loads(pickle.dumps(untied)) == untied


def test_a_model_without_candidates_has_an_empty_one():
    def flat():
        numpyro.sample("a", dist.Normal(0.0, 1.0))

    program = ar.inspect(flat)
    lam = ar.Parameterization.centered(program)
    assert lam.sites == ()
    assert ar.Parameterization.from_json(lam.to_json(), program) == lam
    assert np.isfinite(Target(program).logdensity(jnp.zeros(1), lam))


# -- a pytree ---------------------------------------------------------------------------------


def test_it_passes_through_jit_vmap_and_grad(lam):
    doubled = jax.jit(lambda p: jax.tree.map(lambda leaf: leaf / 2, p))(lam)
    assert isinstance(doubled, ar.Parameterization)
    np.testing.assert_array_equal(doubled["theta"], lam["theta"] / 2)
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), lam)
    sums = jax.vmap(lambda p: p["theta"].sum())(batch)
    np.testing.assert_allclose(sums, [1.5, 1.5])
    slope = jax.grad(lambda p: (p["theta"] ** 2).sum())(lam)
    np.testing.assert_allclose(slope["theta"], 1.0)


def test_replace_and_repr_work_on_traced_values(lam):
    @jax.jit
    def shifted(value):
        new = lam.replace({"theta": value})
        assert "theta[3]: traced" in repr(new)
        return new

    np.testing.assert_allclose(shifted(0.25)["theta"], 0.25)


# -- checks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-0.1, 1.0000001, np.nan, np.inf, [0.5, 2.0, 0.5]])
def test_lam_outside_zero_and_one_is_refused_by_name(program, lam, value):
    message = r"site 'theta': expected λ between 0 \(non-centered\) and 1 \(centered\); found"
    with pytest.raises(ParameterizationError, match=message):
        lam.replace({"theta": value})
    with pytest.raises(ParameterizationError, match=message):
        lam.replace(scale={"theta": value})
    with pytest.raises(ParameterizationError, match=message):
        ar.Parameterization.constant(program, np.max(value))


def test_lam_of_the_wrong_shape_is_refused_by_name(lam):
    message = r"site 'theta': expected λ as a number or of shape \(3,\).*found shape \(2,\)"
    with pytest.raises(ParameterizationError, match=message):
        lam.replace({"theta": [0.1, 0.2]})
    with pytest.raises(ParameterizationError, match=r"λ of the scale has shape \(2,\)"):
        ar.Parameterization({"x": np.ones(3)}, {"x": np.ones(2)})


def test_lam_for_an_unknown_site_is_refused_by_name(lam):
    with pytest.raises(ParameterizationError, match=r"site 'mu' is not part.*'theta', 'x'"):
        lam.replace({"mu": 0.5})
    with pytest.raises(ParameterizationError, match=r"site 'mu' has no λ.*'theta'"):
        ar.Parameterization({"theta": 0.5}, reference={"mu": 1.0})


@pytest.mark.parametrize("value", ["0.5", None, [0.1, [0.2]], 1j])
def test_lam_that_is_no_number_is_refused_by_name(lam, value):
    with pytest.raises(ParameterizationError, match="site 'x': expected numbers, found"):
        lam.replace({"x": value})


@pytest.mark.parametrize("s0", [0.0, -1.0, np.nan, np.inf])
def test_a_reference_scale_that_is_not_positive_is_refused(program, s0):
    with pytest.raises(ParameterizationError, match="site 'theta': expected a positive reference"):
        ar.Parameterization.constant(program, 0.5, s0=s0)


def test_another_models_parameterization_is_refused_with_both_lists(lam):
    other = ar.inspect(other_model)
    with pytest.raises(
        ParameterizationError, match=r"site 'theta'.*is not a site.*'b'.*another model"
    ):
        lam.check(other)
    with pytest.raises(ParameterizationError, match="not a site of this model"):
        ar.Parameterization.from_json(lam.to_json(), other)


def test_another_shape_of_the_data_is_refused(lam):
    message = r"site 'theta': λ has shape \(3,\), the site's value has shape \(4,\).*other data"
    with pytest.raises(ParameterizationError, match=message):
        lam.check(ar.inspect(model, (4,)))


def test_a_missing_or_extra_site_is_refused(program, lam):
    part = ar.Parameterization({"theta": lam["theta"]})
    with pytest.raises(ParameterizationError, match="no λ for 'x'; it covers 'theta'"):
        part.check(program)
    with pytest.raises(
        ParameterizationError, match=r"site 'x'.*not reparameterized.*not requested"
    ):
        lam.check(ar.inspect(model, sites=["theta"]))


def test_check_puts_the_sites_in_the_order_of_the_program(program, lam):
    turned = ar.Parameterization(
        {name: lam[name] for name in reversed(lam.sites)}, reference=lam.reference
    )
    assert turned != lam
    assert turned.check(program) == lam


# -- reference scales -------------------------------------------------------------------------


def test_the_reference_scale_is_the_scale_where_that_is_constant(lam):
    assert lam.reference["x"] == 2.5


def test_the_reference_scale_is_the_prior_median_where_the_scale_is_random(lam):
    np.testing.assert_allclose(lam.reference["theta"], np.exp(1.0), rtol=0.2)


def test_the_papers_reference_scale_is_one_argument_away(program):
    lam = ar.Parameterization.constant(program, 0.5, s0=1)
    assert (lam.reference["x"], lam.reference["theta"]) == (1.0, 1.0)


def test_lam_does_not_depend_on_units():
    def in_units(unit):
        def scaled():
            tau = numpyro.sample("tau", dist.LogNormal(0.3, 0.5))
            numpyro.sample("x", dist.Normal(0.0, unit * tau))

        program = ar.inspect(scaled)
        return Target(program), ar.Parameterization.constant(program, 0.4)

    (meters, lam_m), (millimeters, lam_mm) = in_units(1.0), in_units(1000.0)
    np.testing.assert_allclose(lam_mm.reference["x"], 1000 * lam_m.reference["x"], rtol=1e-12)
    values = {"tau": jnp.array(0.7), "x": jnp.array(1.2)}
    here = meters.from_sites(values, lam_m)
    there = millimeters.from_sites({**values, "x": values["x"] * 1000}, lam_mm)
    np.testing.assert_allclose(there / here, [1.0, 1000.0], rtol=1e-12)


def test_the_reference_scale_is_usable_even_when_prior_scales_overflow():
    def wild():
        log_tau = numpyro.sample("log_tau", dist.Normal(0.0, 1e5))
        numpyro.sample("x", dist.Normal(0.0, jnp.exp(log_tau)))
        p = numpyro.sample("p", dist.ImproperUniform(dist.constraints.positive, (), ()))
        numpyro.sample("z", dist.Normal(0.0, p))

    lam = ar.Parameterization.centered(ar.inspect(wild))
    for name in ("x", "z"):
        square = np.float32(lam.reference[name]) ** 2  # in double, an infinity in single is found
        assert np.isfinite(square)
        assert square > 0


# -- JSON and files ---------------------------------------------------------------------------


def test_json_brings_back_every_bit(program, lam):
    untied = lam.replace({"theta": ODD}, scale={"x": ODD[::-1]})
    text = untied.to_json()
    assert json.loads(text)["format"] == "autoreparam.parameterization"
    assert ar.Parameterization.from_json(text) == untied
    assert ar.Parameterization.from_json(text, program) == untied
    assert "lam_scale" not in json.loads(text)["sites"]["theta"]


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0), (2, 3)])
def test_json_brings_back_any_shape(shape):
    lam = ar.Parameterization({"x": np.full(shape, 0.3)})
    back = ar.Parameterization.from_json(lam.to_json())
    assert back["x"].shape == shape
    assert back == lam


def test_names_may_hold_any_character(tmp_path, monkeypatch):
    monkeypatch.setattr(parameterization_file, "INLINE", 1)
    lam = ar.Parameterization({"a/b é\"<>'": ODD, "../c": ODD, "file": ODD})
    lam.save(tmp_path / "p.json")
    assert ar.Parameterization.load(tmp_path / "p.json") == lam


def test_large_arrays_are_saved_in_an_npz_beside(tmp_path):
    random = np.random.default_rng(0)
    lam = ar.Parameterization(
        {"big": random.uniform(size=(150, 100)), "small": ODD},
        {"big": random.uniform(size=(150, 100))},
    )
    lam.save(tmp_path / "p.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.json", "p.npz"]
    assert (tmp_path / "p.json").stat().st_size < 1000
    assert ar.Parameterization.load(tmp_path / "p.json") == lam
    (tmp_path / "p.npz").unlink()
    with pytest.raises(ParameterizationError, match=r"site 'big'.*npz file beside the JSON: keep"):
        ar.Parameterization.load(tmp_path / "p.json")


def test_a_small_one_needs_one_file(tmp_path, program, lam):
    lam.save(str(tmp_path / "p.json"))
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]
    assert ar.Parameterization.load(str(tmp_path / "p.json"), program) == lam


def test_files_of_neighboring_names_do_not_share_an_npz(tmp_path):
    kept = {name: ar.Parameterization({"x": np.full(20_000, v)}) for name, v in
            [("run.1", 0.1), ("run.2", 0.2), ("run.npz", 0.3)]}  # fmt: skip
    for name, lam in kept.items():
        lam.save(tmp_path / name)
    for name, lam in kept.items():
        assert ar.Parameterization.load(tmp_path / name) == lam


@pytest.mark.parametrize("text", ["{", "", "λ", None], ids=str)
def test_broken_json_is_refused(text):
    with pytest.raises(ParameterizationError, match="not JSON"):
        ar.Parameterization.from_json(text)


def document(**entry):
    site = {"shape": [2], "lam": [0.1, 0.2], "reference": 1.0, **entry}
    site = {key: value for key, value in site.items() if value is not None}
    return {"format": "autoreparam.parameterization", "version": 1, "sites": {"x": site}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], 'expected a JSON object with "format": "autoreparam.parameterization"'),
        ({"format": "something else"}, 'expected a JSON object with "format"'),
        ({**document(), "version": 4}, "unknown version 4 of the format; this is version 3"),
        ({**document(), "sites": []}, 'expected "sites", an object'),
        ({**document(), "sites": {"x": 0.3}}, "site 'x': expected 'shape' and 'lam'"),
        (document(lam=None), "site 'x': expected 'shape' and 'lam'"),
        (document(shape=2), "site 'x': expected a list of sizes, found shape 2"),
        (document(shape=[2.0]), r"site 'x': expected a list of sizes, found shape \[2.0\]"),
        (document(shape=[3]), r"site 'x': expected values of shape \(3,\), found shape \(2,\)"),
        (document(lam=[0.1, [0.2]]), "site 'x': expected an array"),
        (document(lam=["a", "b"]), "site 'x': expected numbers"),
        (document(lam=[0.1, float("nan")]), "site 'x': expected λ between 0"),
        (document(lam=[0.1, 1.5]), "site 'x': expected λ between 0.*found 1.5 in 1 of 2"),
        (document(lam_scale=[0.1]), r"site 'x': expected values of shape \(2,\)"),
        (document(lam={"npz": "x/lam"}), "site 'x': array 'x/lam' is missing"),
        (document(reference=-1.0), "site 'x': expected a positive reference scale"),
        (document(reference=[1, 2, 3]), "site 'x': expected a positive reference scale"),
    ],
)
def test_a_file_of_the_wrong_form_is_refused_in_words(tmp_path, content, message):
    text = json.dumps(content)
    with pytest.raises(ParameterizationError, match=message):
        ar.Parameterization.from_json(text)
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(ParameterizationError, match=message):
        ar.Parameterization.load(tmp_path / "p.json")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ParameterizationError, match=r"cannot read .*nothing\.json"):
        ar.Parameterization.load(tmp_path / "nothing.json")
    (tmp_path / "p.json").write_text(json.dumps(document(lam={"npz": "x/lam"})))
    (tmp_path / "p.npz").write_bytes(b"PK broken")
    with pytest.raises(ParameterizationError, match=r"cannot read .*p\.json"):
        ar.Parameterization.load(tmp_path / "p.json")


def test_origins_of_sequences_are_checked_saved_and_filled_in(tmp_path):
    def walk():
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        numpyro.sample("x", dist.GaussianRandomWalk(scale, 3))

    program = ar.inspect(walk)
    lam = ar.Parameterization.constant(program, 0.5)
    np.testing.assert_array_equal(lam.of("x").origin, np.zeros(3))
    moved = with_origins(lam, np.random.default_rng(0))
    assert moved != lam
    moved.save(tmp_path / "p.json")
    assert ar.Parameterization.load(tmp_path / "p.json") == moved
    assert pickle.loads(pickle.dumps(moved)) == moved
    bare = ar.Parameterization({"x": lam["x"]}, reference=dict(lam.reference))
    assert bare != lam
    assert bare.check(program) == lam
    values = {"scale": 2.0, "x": jnp.arange(3.0)}

    def density(traced):
        return ar.log_joint(walk, parameterization=ar.Parameterization({"x": traced}))(values)

    assert np.isfinite(jax.grad(density)(lam["x"])).all()
    tree = ar.sample(walk, parameterization=moved, chains=1, warmup=20, draws=5, progress=False)
    assert ar.parameterization(tree) == moved
    for wrong, message in ((np.full(3, np.nan), "finite"), (np.zeros(2), "shape")):
        with pytest.raises(ParameterizationError, match=message):
            ar.Parameterization.by_site({"x": replace(lam.of("x"), origin=wrong)})

    def vector():
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        numpyro.sample("x", dist.Normal(0.0, scale).expand([3]).to_event(1))

    with pytest.raises(ParameterizationError, match="is a sequence in this parameterization"):
        lam.check(ar.inspect(vector))


# -- single precision -------------------------------------------------------------------------


@pytest.mark.usefixtures("float32")
def test_single_precision_stays_single_and_survives_json(tmp_path):
    program = ar.inspect(model)
    lam = ar.Parameterization.constant(program, 0.1).replace({"x": ODD})
    assert {leaf.dtype for leaf in jax.tree.leaves(lam)} == {np.dtype(np.float32)}
    back = ar.Parameterization.from_json(lam.to_json(), program)
    assert back == lam
    assert back["x"].dtype == np.float32
    lam.save(tmp_path / "p.json")
    assert ar.Parameterization.load(tmp_path / "p.json") == lam
    target = Target(program)
    density = target.logdensity(jnp.zeros(target.size), lam)
    assert density.dtype == jnp.float32
