"""The tree, its diagnostics and its summary, on draws whose answers are known."""

import re
import subprocess
import sys
from importlib.util import find_spec

import arviz_stats
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from numpyro.handlers import scope

import autoreparam as ar
from autoreparam.errors import AutoreparamError
from autoreparam.program.target import Target
from autoreparam.results.advice import warnings_for
from autoreparam.results.diagnostics import efficiency, summary
from autoreparam.results.lam import lam_by_site
from autoreparam.results.tree import Draws, texts, to_tree

SCHOOLS = list("ABCDEFGH")
LEDGER = {"learning": 100, "warmup": 200, "sampling": 700}


def schools(J, sigma, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("school", J):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.deterministic("doubled", 2 * theta)
        numpyro.deterministic("alone", 2 * mu)
        numpyro.sample("pair", dist.Normal(jnp.zeros(3), 1).to_event(1))
        with scope(prefix="inner"):
            numpyro.sample("shift", dist.Normal(mu, 1))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


ARGS = (8, np.ones(8), np.arange(8.0))


@pytest.fixture(scope="module")
def program():
    return ar.inspect(schools, ARGS)


def draws_of(program, chains=4, draws=100, slots=None, seed=0):
    rng = np.random.default_rng(seed)
    sites = [site for site in program.sites if site.kind in ("latent", "deterministic")]
    values = {site.name: rng.normal(size=(chains, draws, *site.shape)) for site in sites}
    shape = (chains, draws) if slots is None else (chains, draws, slots)
    stats = {
        "diverging": np.zeros(shape, bool),
        "acceptance_rate": np.full(shape, 0.8),
        "n_steps": np.full(shape, 7),
        "energy": rng.normal(size=shape),
        "tree_depth": np.full(shape, 3),
        "lp": rng.normal(size=(chains, draws)),
    }
    return Draws(values, stats)


def tree_of(program, sampling=None, parameterizations=None, attrs=None, **keywords):
    given = {
        "warmup": None,
        "ledger": LEDGER,
        "observed": {"y": ARGS[2]},
        "constant": {"J": np.asarray(8), "sigma": ARGS[1]},
    }
    return to_tree(
        program,
        sampling or draws_of(program),
        parameterizations=parameterizations or [ar.Parameterization.constant(program, 0.25)],
        attrs={"max_tree_depth": 10, "interrupted": False, **(attrs or {})},
        **(given | keywords),
    )


# -- the tree ---------------------------------------------------------------------------------


def test_plates_name_the_dimensions_in_every_group(program):
    tree = tree_of(program)
    assert tree["posterior"]["theta"].dims == ("chain", "draw", "school")
    assert tree["posterior"]["pair"].dims == ("chain", "draw", "school", "pair_dim_1")
    assert tree["posterior"]["alone"].dims == ("chain", "draw")
    assert tree["posterior"]["mu"].dims == ("chain", "draw")
    assert tree["observed_data"]["y"].dims == ("school",)
    assert tree["constant_data"]["sigma"].dims == ("school",)  # the only plate of that length
    assert tree["parameterization"]["theta"].dims == ("school",)


def test_values_come_through_unchanged(program):
    sampling = draws_of(program)
    tree = tree_of(program, sampling)
    np.testing.assert_array_equal(tree["posterior"]["theta"], sampling.values["theta"])
    np.testing.assert_array_equal(tree["sample_stats"]["lp"], sampling.stats["lp"])
    np.testing.assert_array_equal(tree["parameterization"]["theta"], np.full(8, 0.25))
    np.testing.assert_array_equal(
        tree["parameterization"]["theta_reference"], program.reference_scales["theta"]
    )
    assert "theta_scale" not in tree["parameterization"]


def test_the_ledger_and_the_latents_are_plain_attributes(program):
    attrs = tree_of(program, attrs={"seed": np.int64(3), "nothing": None, "big": 2**70}).attrs
    assert {name: attrs[f"gradients_{name}"] for name in LEDGER} == LEDGER
    assert attrs["latents"] == ["mu", "tau", "theta", "pair", "inner.shift"]
    assert (attrs["interrupted"], attrs["seed"], attrs["big"]) == (0, 3, str(2**70))
    assert type(attrs["interrupted"]) is int
    assert type(attrs["seed"]) is int
    assert "nothing" not in attrs


def test_a_slash_in_a_name_becomes_a_dot(program):
    tree = tree_of(program, var_names=["inner/shift"], dims={"inner/shift": ["place"]})
    assert list(tree["posterior"].data_vars) == ["inner.shift"]
    assert tree["posterior"]["inner.shift"].dims == ("chain", "draw", "place")
    assert tree["posterior"]["inner.shift"].attrs["site"] == "inner/shift"
    assert list(tree_of(program, var_names="inner.shift")["posterior"].data_vars) == ["inner.shift"]


def test_interleaved_runs_have_a_slot(program):
    both = [ar.Parameterization.centered(program), ar.Parameterization.noncentered(program)]
    both[1] = both[1].replace(scale={"theta": 0.5})
    tree = tree_of(program, draws_of(program, slots=2), both)
    assert tree["sample_stats"]["diverging"].dims == ("chain", "draw", "slot")
    assert tree["parameterization"]["theta"].dims == ("slot", "school")
    np.testing.assert_array_equal(tree["parameterization"]["theta"][:, 0], [1, 0])
    np.testing.assert_array_equal(tree["parameterization"]["theta_scale"][:, 0], [1, 0.5])
    assert list(summary(tree).columns)[-4:] == ["λ [0]", "λ [1]", "λ scale [0]", "λ scale [1]"]


def test_warmup_and_working_draws_have_groups_of_their_own(program):
    sampling = draws_of(program)
    full = Draws(sampling.values, sampling.stats, np.zeros((4, 100, 42)))
    tree = tree_of(program, full, warmup=draws_of(program, draws=30))
    assert tree["warmup_posterior"].sizes["draw"] == 30
    assert "warmup_sample_stats" in tree
    assert tree["working"]["position"].dims == ("chain", "draw", "element")


def test_coords_and_dims_label_the_axes(program):
    tree = tree_of(program, coords={"school": SCHOOLS}, dims={"sigma": ["school"]})
    assert tree["posterior"]["theta"].sel(school="C").sizes == {"chain": 4, "draw": 100}
    assert tree["constant_data"]["sigma"].sel(school="C") == 1
    assert "theta[C]" in summary(tree, "theta").labels


def test_a_plate_may_have_the_name_of_an_argument_or_of_an_axis_of_arviz():
    def model(J):
        with numpyro.plate("draw", J):
            numpyro.sample("theta", dist.Normal(0, 1))
        with numpyro.plate("J", J):
            numpyro.sample("other", dist.Normal(0, 1))

    program = ar.inspect(model, (3,))
    constant = {"J": np.asarray(3), "theta": np.zeros(5)}
    tree = tree_of(program, observed={}, constant=constant, coords={"draw": list("abc")})
    assert tree["posterior"]["theta"].dims == ("chain", "draw", "draw_dim")
    assert tree["posterior"]["theta"]["draw_dim"].values.tolist() == list("abc")
    assert tree["posterior"]["other"].dims == ("chain", "draw", "J")
    assert tree["constant_data"]["theta"].shape == (5,)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"var_names": ["thet"]}, "var_names: no variable 'thet'; there are 'mu'"),
        ({"dims": {"thet": ["a"]}}, "dims: no variable 'thet'"),
        ({"dims": {"theta": ["a", "b"]}}, r"'theta' has 1 axes of its own \(shape \(8,\)\)"),
        ({"dims": {"theta": "school"}}, "'theta' has 1 axes"),
        ({"dims": {"theta": ["mu"]}}, "'theta' cannot have a dimension 'mu'"),
        ({"dims": {"theta": ["draw"]}}, "'theta' cannot have a dimension 'draw'"),
        ({"dims": {"sigma": ["J"]}}, "'sigma' cannot have a dimension 'J'"),
        (
            {"dims": {"pair": [None, "school"]}},
            "'school' has 8 elements in 'theta' and 3 in 'pair'",
        ),
        ({"dims": {"pair": ["a", "a"]}}, "'pair' has the same dimension twice"),
        ({"coords": {"pupil": SCHOOLS}}, "no variable has a dimension 'pupil'; .* 'school'"),
        ({"coords": {"school": SCHOOLS[:3]}}, r"'school' has 8 elements; found labels of shape"),
    ],
)
def test_unknown_names_and_wrong_sizes_are_refused_by_name(program, keywords, message):
    with pytest.raises(AutoreparamError, match=message):
        tree_of(program, **keywords)


@pytest.mark.parametrize("engine", ["zarr", "h5netcdf", "netcdf4"])
def test_the_tree_survives_a_file(program, engine, tmp_path):
    needed = {"zarr": "zarr", "h5netcdf": "h5py", "netcdf4": "netCDF4"}[engine]
    if find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    both = [ar.Parameterization.centered(program), ar.Parameterization.noncentered(program)]
    tree = tree_of(
        program,
        draws_of(program, slots=2),
        both,
        {"notes": [], "one": ["word"], "numbers": [1.5, 2.5], "ok": True, "empty": ""},
        warmup=draws_of(program, draws=5, slots=2),
        coords={"school": SCHOOLS},
        var_names=["theta"],
    )
    if engine == "zarr":
        path, options = tmp_path / "run.zarr", {"consolidated": False}
        tree.to_zarr(path, consolidated=False)
    else:
        path, options = tmp_path / "run.nc", {}
        tree.to_netcdf(path, engine=engine)
    with xr.open_datatree(path, engine=engine, **options) as stored:
        back = stored.load()
    xr.testing.assert_equal(tree, back)
    assert texts(back.attrs["latents"]) == ["theta"]
    assert all(back.attrs[f"gradients_{name}"] == count for name, count in LEDGER.items())
    assert back.attrs["ok"] == 1
    assert efficiency(back) == efficiency(tree)
    assert summary(back).to_dict().keys() == summary(tree).to_dict().keys()
    assert warnings_for(back) == warnings_for(tree)


# -- λ in the tree ----------------------------------------------------------------------------


def crowded(y=None):
    """Every name that λ of `theta` could be stored under is taken by something else."""
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.LogNormal(0.7, 0.5))
    with numpyro.plate("group", 3):
        theta = numpyro.sample("theta", dist.StudentT(4.0, mu, tau))
        numpyro.sample("theta_scale", dist.Normal(mu, tau))
        numpyro.deterministic("theta_reference", 2 * theta)
        numpyro.deterministic("theta_tail", 3 * theta)
        numpyro.sample("theta_reference_", dist.Normal(theta, 1.0), obs=y)


def crowded_tree(**keywords):
    program = ar.inspect(crowded, kwargs={"y": np.zeros(3)})
    lam = ar.Parameterization.constant(program, 0.25, tail=0.75)
    lam = lam.replace(scale={"theta": [0.1, 0.2, 0.3]})
    given = {"observed": {"theta_reference_": np.zeros(3)}, "constant": {"y": np.zeros(3)}}
    tree = tree_of(program, parameterizations=[lam], **given, **keywords)
    return tree, lam, program


def assert_same(back, lam):
    """The same but for reference scales, which come back one per element."""
    assert (back.sites, tuple(back.tail)) == (lam.sites, tuple(lam.tail))
    for name in lam:
        mine, theirs = lam.of(name).spread(), back.of(name)
        for part in ("loc", "scale", "reference", "tail"):
            np.testing.assert_array_equal(getattr(theirs, part), getattr(mine, part), part)


def as_before(tree):
    """The tree as earlier versions wrote it: its variables do not say what they are."""
    old = tree.copy()
    for variable in old["parameterization"].data_vars.values():
        variable.attrs.clear()
    return old


@pytest.mark.parametrize("var_names", [None, ["theta"], ["mu"]])
@pytest.mark.parametrize("written", [lambda tree: tree, as_before], ids=["now", "before"])
def test_lam_is_read_back_whatever_else_has_its_names(var_names, written):
    tree, lam, program = crowded_tree(var_names=var_names)
    tree = written(tree)
    back = ar.parameterization(tree).check(program)
    assert_same(back, lam)
    np.testing.assert_allclose(back.reference["theta"], np.exp(0.7), rtol=0.2)
    if var_names != ["mu"]:
        rows = summary(tree, "theta").to_dict()
        assert [rows[f"theta[{i}]"]["λ scale"] for i in range(3)] == [0.1, 0.2, 0.3]


def test_each_variable_of_lam_says_its_site_and_its_part():
    group = crowded_tree()[0]["parameterization"]
    said = {(v.attrs["site"], v.attrs["part"]) for v in group.data_vars.values()}
    assert said == {
        *(("theta", part) for part in ("lam", "scale", "reference", "tail")),
        *(("theta_scale", part) for part in ("lam", "reference")),
    }


@pytest.mark.parametrize("engine", ["zarr", "h5netcdf", "netcdf4"])
def test_lam_is_read_back_from_a_file(engine, tmp_path):
    if find_spec({"zarr": "zarr", "h5netcdf": "h5py", "netcdf4": "netCDF4"}[engine]) is None:
        pytest.skip(f"{engine} is not installed")
    tree, lam, program = crowded_tree(var_names=["theta"])
    path, options = tmp_path / "run", {}
    if engine == "zarr":
        options = {"consolidated": False}
        tree.to_zarr(path, **options)
    else:
        tree.to_netcdf(path, engine=engine)
    with xr.open_datatree(path, engine=engine, **options) as stored:
        back = ar.parameterization(stored.load())
    assert_same(back.check(program), lam)


@pytest.mark.parametrize("slots", [1, 2])
def test_lam_of_a_zero_sum_site_can_be_used_again(slots, tmp_path):
    def model():
        tau = numpyro.sample("tau", dist.LogNormal(0, 1))
        with numpyro.plate("row", 2):
            numpyro.sample("x", dist.ZeroSumNormal(tau, (4, 3)))

    program = ar.inspect(model)
    lam = ar.Parameterization.constant(program, 0.25)
    lam = lam.replace({"x": np.linspace(0, 1, 12).reshape(2, 3, 2)})
    lams = [lam.round(), lam][-slots:]
    tree = tree_of(program, draws_of(program), parameterizations=lams, observed={}, constant={})
    assert tree["parameterization"]["x"].shape == (() if slots == 1 else (2,)) + (2, 4, 3)
    back = ar.parameterization(tree).check(program)
    assert_same(back, lam)
    assert np.isfinite(Target(program).logdensity(jnp.zeros(13), back))
    rows = summary(tree, "x").to_dict()
    title = "λ" if slots == 1 else "λ [1]"
    assert rows["x[1, 2, 1]"][title] == 1
    assert np.isnan(rows["x[1, 3, 1]"][title])
    assert len(lam_by_site(tree)[0].labels) == 12
    ar.report(tree, tmp_path / "report.html")
    assert "x[1, 2, 1]: λ = 1.00" in (tmp_path / "report.html").read_text()


def test_lam_of_a_site_that_is_a_single_number_is_read_back():
    def model():
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        numpyro.sample("theta", dist.Normal(0.0, tau))

    program = ar.inspect(model)
    lam = ar.Parameterization.constant(program, 0.3)
    back = ar.parameterization(tree_of(program, parameterizations=[lam]))
    assert_same(back.check(program), lam)


# -- diagnostics ------------------------------------------------------------------------------


def test_efficiency_is_what_arviz_says_of_the_worst_latent(program):
    tree = tree_of(program)
    found = efficiency(tree)
    latents = tree["posterior"].dataset[tree.attrs["latents"]]

    def smallest(method):
        tails = {"prob": (0.05, 0.95)} if method == "tail" else {}  # Stan's; ArviZ has others
        ess = arviz_stats.ess(latents, method=method, **tails)
        return min(float(ess[name].min()) for name in ess.data_vars)

    # Equal but for rounding, which is not the same on every processor.
    assert found.ess == pytest.approx(min(smallest("bulk"), smallest("tail")), rel=1e-12)
    assert found.ess_mean == pytest.approx(smallest("mean"), rel=1e-12)
    r_hat = arviz_stats.rhat(latents)
    largest = max(float(r_hat[name].max()) for name in r_hat.data_vars)
    assert found.r_hat == pytest.approx(largest, rel=1e-12)
    assert found.ess_per_1000_sampling == pytest.approx(found.ess / 0.7)
    assert found.ess_per_1000_total == pytest.approx(found.ess / 1.0)
    assert found.ess_mean_per_1000_total == pytest.approx(found.ess_mean)
    energies = tree["sample_stats"]["energy"].values
    np.testing.assert_allclose(found.e_bfmi, arviz_stats.base.array_stats.bfmi(energies).min())
    assert (found.chains, found.draws, found.divergences, found.saturated) == (4, 100, 0, 0.0)


@pytest.mark.parametrize("spoil", ["slow", "apart", "tail", "not a number"])
def test_the_worst_of_many_scalars_are_found_without_measuring_all(spoil):
    def model():
        numpyro.sample("z", dist.Normal(0, 1).expand([150]))

    program = ar.inspect(model)
    values = np.random.default_rng(0).normal(size=(4, 400, 150))
    if spoil == "slow":
        values[..., 121] = np.cumsum(values[..., 121], axis=1)
    elif spoil == "apart":
        values[0, :, 121] += 1
    elif spoil == "tail":
        values[:, ::40, 121] = 0.0
        values[..., 121] *= np.repeat([1, 5, 1, 1, 5, 1, 1, 1], 50)
    else:
        values[2, 3, 121] = np.nan
    stats = {"diverging": np.zeros((4, 400), bool)}
    tree = tree_of(program, Draws({"z": values}, stats), observed={}, constant={})
    few, all_ = efficiency(tree, most=20), efficiency(tree)
    assert few.worst_ess == all_.worst_ess == "z[121]"
    assert few.ess == all_.ess or np.isnan(few.ess)


def test_only_latents_that_vary_count(program):
    sampling = draws_of(program)
    sampling.values["theta"][..., 0] = 1.0
    sampling.values["doubled"][...] = np.cumsum(sampling.values["doubled"], axis=1)
    sampling.values["tau"][...] = np.cumsum(sampling.values["tau"], axis=1)
    found = efficiency(tree_of(program, sampling))
    assert found.worst_ess == found.worst_ess_mean == found.worst_r_hat == "tau"
    row = summary(tree_of(program, sampling)).to_dict()["theta[0]"]
    assert (row["mean"], row["sd"]) == (1.0, 0.0)
    assert np.isnan(row["ess_bulk"])


def test_the_summary_agrees_with_arviz_and_adds_lam(program):
    tree = tree_of(program, coords={"school": SCHOOLS})
    table = summary(tree, ["mu", "theta"])
    assert len(table) == 9
    rows = table.to_dict()
    draws = tree["posterior"]["theta"].sel(school="B")
    row = rows["theta[B]"]
    assert row["mean"] == pytest.approx(float(draws.mean()))
    assert row["sd"] == pytest.approx(float(draws.std(ddof=1)))
    assert row["5%"] == pytest.approx(float(draws.quantile(0.05)))
    assert row["mcse_mean"] == pytest.approx(float(arviz_stats.mcse(draws)))
    tail = arviz_stats.ess(draws, method="tail", prob=(0.05, 0.95))
    assert row["ess_tail"] == pytest.approx(float(tail))
    assert row["r_hat"] == pytest.approx(float(arviz_stats.rhat(draws)))
    assert row["λ"] == 0.25
    assert np.isnan(rows["mu"]["λ"])


def test_the_summary_prints_as_an_aligned_table_in_text_and_html(program):
    table = summary(tree_of(program))
    lines = repr(table).splitlines()
    assert lines[0].split() == [*table.columns]
    assert len({len(line) for line in lines[1:-1] if "theta" in line}) == 1
    assert lines[-1].startswith("4 chains of 100 draws, 0 divergences. Smallest ESS")
    assert "theta[7]" in repr(table)
    assert table._repr_html_().count("<tr>") == len(table) + 1
    assert "<b>" not in summary(tree_of(program), "theta")._repr_html_()


def test_a_long_summary_leaves_out_its_middle():
    def model():
        with numpyro.plate("row", 200):
            numpyro.sample("x", dist.Normal(0, 1))

    program = ar.inspect(model)
    sampling = draws_of(program, chains=1, draws=4)
    table = summary(tree_of(program, sampling, observed={}, constant={}))
    assert "... 140 more" in repr(table)
    assert len(table.to_dict()) == 200


def test_a_good_run_is_not_warned_about(program):
    assert warnings_for(tree_of(program, draws_of(program, draws=400))) == []


def _diverge(s):
    s.stats["diverging"][0, :3] = True


def _part(s):
    s.values["mu"][0] += 10


def _slow(s):
    s.values["tau"][...] = np.cumsum(s.values["tau"], axis=1)


def _drift(s):
    s.stats["energy"][...] = np.cumsum(s.stats["energy"], axis=1)


def _saturate(s):
    s.stats["tree_depth"][0] = 10


def _break(s):
    s.values["mu"][1, 5] = np.nan


def _leave(s):
    pass


@pytest.mark.parametrize(
    ("spoil", "attrs", "sentence"),
    [
        (_diverge, {}, "3 of 1600 transitions diverged.*Raise target_accept"),
        (_part, {}, "R-hat is .* for mu .*the chains do not agree.*longer warmup"),
        (_slow, {}, "effective sample size is .* for tau .*Use more draws"),
        (_drift, {}, "E-BFMI is 0.0.*longer warmup"),
        (_saturate, {}, r"25.0% of the transitions stopped at the maximum tree depth \(10\)"),
        (_break, {}, "effective sample size of mu could not be computed.*not finite"),
        (_leave, {"interrupted": True}, "interrupted after 400 draws per chain.*ar.resume"),
        (_leave, {"fit_converged": False}, "did not converge: λ may be far"),
    ],
)
def test_each_trouble_has_its_sentence(program, spoil, attrs, sentence):
    sampling = draws_of(program, draws=400)
    spoil(sampling)
    said = warnings_for(tree_of(program, sampling, attrs=attrs))
    assert [text for text in said if re.search(sentence, text)], said


@pytest.mark.parametrize("chains", [1, 4])
@pytest.mark.parametrize("draws", [0, 1, 3, 5])
def test_short_runs_and_single_chains_are_handled(program, chains, draws):
    tree = tree_of(program, draws_of(program, chains, draws), attrs={"interrupted": True})
    found = efficiency(tree)
    assert np.isnan(found.ess) == (draws < 4)
    assert np.isnan(found.r_hat) == (draws < 4 or chains == 1)
    assert len(summary(tree)) == 43 + 8
    said = warnings_for(tree, found)
    assert f"after {draws} draws" in said[0]
    assert any("a single chain" in text for text in said) == (chains == 1 and draws > 0)


def test_a_tree_without_draws_or_a_wrong_name_is_refused(program):
    with pytest.raises(AutoreparamError, match="no group 'posterior'"):
        efficiency(xr.DataTree())
    with pytest.raises(AutoreparamError, match="no variable 'thet'; there are 'mu'"):
        summary(tree_of(program), ["thet"])


def test_importing_loads_only_what_every_run_needs():
    code = (
        "import sys, autoreparam; spared = ('arviz_base', 'arviz_stats', 'blackjax', 'matplotlib', "
        "'pandas', 'scipy.stats', 'xarray', 'zarr');"
        "sys.exit(str([m for m in spared if m in sys.modules]))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr.strip() == "[]"
