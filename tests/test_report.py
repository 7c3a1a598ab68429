"""The report: what it says, that it is safe, and that everybody can use it."""

import json
import re
from html.parser import HTMLParser
from importlib import metadata

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray
from browser import Browser, needs_chromium

import autoreparam as ar
from autoreparam.errors import AutoreparamError
from autoreparam.results.geometry import worst_pairs
from autoreparam.results.report.content import gather, worst_pair
from autoreparam.results.report.heat import color, heat_map
from autoreparam.results.report.page import render

EVIL = "<script>alert('λ')</script>"
LABELS = ['<img src=x onerror="alert(1)">', "b & c", "d", "e", "f"]


def hostile(y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfNormal(5))
    with numpyro.plate("group", 5):
        theta = numpyro.sample(EVIL, dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


@pytest.fixture(scope="module")
def runs():
    settings = {"kernel": "hmc", "draws": 60, "warmup": 100, "chains": 2, "progress": False,
                "dims": {EVIL: ["label"]}, "coords": {"label": LABELS}}  # fmt: skip
    y = np.array([1.0, 2.0, 3.0, -2.0, 0.5])
    return {
        name: ar.sample(
            hostile,
            (),
            {"y": y},
            parameterization=name,
            **settings,
            posterior_predictive=name == "auto",
            log_likelihood=name == "auto",
        )
        for name in ("auto", "interleaved")
    }


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    alternatives = {"interleaved": runs["interleaved"], EVIL: runs["interleaved"]}
    return ar.report(runs["auto"], path, alternatives=alternatives, title=f"My {EVIL}")


class Tags(HTMLParser):
    """Every tag with its attributes, and that the tags close in the right order."""

    VOID = ("meta", "link", "br")

    def __init__(self, text):
        super().__init__()
        self.found, self.open = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_whatever_users_name_is_escaped(page):
    text = page.read_text()
    tags = Tags(text)
    assert tags.open == []
    assert [tag for tag, _ in tags.found].count("script") == 1  # our own
    assert not any(tag == "img" for tag, _ in tags.found)
    assert not any(key.startswith("on") for _, attrs in tags.found for key in attrs)
    assert "&lt;script&gt;alert(" in text
    assert EVIL not in text


def test_the_page_asks_for_nothing_from_outside(page):
    for tag, attrs in Tags(page.read_text()).found:
        for key in ("src", "href"):
            assert attrs.get(key, "#").startswith(("#", "data:")), (tag, attrs)
    assert "url(" not in page.read_text()


def test_it_says_what_the_tree_says(runs, page):
    text, found = page.read_text(), ar.efficiency(runs["auto"])
    assert f"{found.ess:,.0f}" in text
    assert f"{runs['auto'].attrs['gradients_sampling']:,}" in text
    assert "HalfNormal" in text
    assert "location depends on mu; scale depends on tau" in text
    assert "not moved: location and scale are constant" in text
    assert runs["auto"].attrs["inference_library_version"] in text
    for number, version in json.loads(runs["auto"].attrs["versions"]).items():
        assert f">{number}</th><td>{version}<" in text
    for lam in runs["auto"]["parameterization"][EVIL.replace("/", ".")].values:
        assert f"{lam:.3f}" in text


def test_the_verdict_is_one_sentence_and_warnings_come_with_remedies(runs):
    content = gather(runs["auto"], {})
    assert not content.good
    assert content.verdict.startswith("Check these draws before you use them")
    assert content.verdict.count(". ") == 0
    assert any("Use more draws" in sentence for sentence in content.warnings)


def test_variance_inflation_is_shown_where_the_run_has_measured_it(runs):
    row = gather(runs["auto"], {}).sites[-1]
    found = runs["auto"]["learning"]
    assert row.inflation_before == float(found["inflation_before"][0])
    assert row.inflation_after == float(found["inflation_after"][0])
    assert "variance inflation before" in render(gather(runs["auto"], {}))
    tree = runs["auto"].copy()
    del tree["learning"]
    assert "variance inflation" not in render(gather(tree, {}))


def test_the_worst_pair_is_kept_in_both_coordinates(runs):
    pair = gather(runs["auto"], {}).pair
    tree = runs["auto"]
    assert pair.parent in ("mu", "log tau")
    element = int(re.search(r"\[(\d)\]", pair.child)[1])
    child = tree["posterior"][EVIL.replace("/", ".")].values[..., element].ravel()
    kept = np.unique(np.linspace(0, 119, 120).astype(int))
    np.testing.assert_allclose(pair.before[0], child[kept], rtol=1e-6)
    centered = ar.parameterization(tree)[EVIL][element] == 1
    assert np.allclose(pair.before[0], pair.after[0]) == centered


def shares(y=None):
    p = numpyro.sample("p", dist.Beta(2, 3))
    q = numpyro.sample("q", dist.Beta(2, 3).expand([2]).to_event(1))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    with numpyro.plate("group", 3):
        numpyro.sample("x", dist.Normal(p + q.sum(), tau))
    # A Normal in the coordinates of the unit interval.
    inside = dist.transforms.SigmoidTransform()
    numpyro.sample("inner", dist.TransformedDistribution(dist.Normal(p, tau), inside))


def test_sites_on_the_unit_interval_are_among_the_pairs_as_log_odds():
    random, program = np.random.default_rng(0), ar.inspect(shares)
    odds = random.normal(size=(2, 100, 8))
    p, q, tau, x, inner = np.split(odds, [1, 3, 4, 7], axis=-1)
    x, inner = 3 * p + 0.1 * x, 2 * p + 0.1 * inner
    values = {"p": p[..., 0], "q": q, "tau": np.exp(tau[..., 0]), "x": x, "inner": inner[..., 0]}
    for name in ("p", "q", "inner"):
        values[name] = 1 / (1 + np.exp(-values[name]))
    pairs = worst_pairs(program, values, odds, np.zeros((2, 100)))
    tree = xarray.DataTree.from_dict({"geometry": pairs})
    for site, child in (("x", "x["), ("inner", "logit inner")):
        pair = worst_pair(tree, site)
        assert pair.child.startswith(child)
        assert pair.parent == "logit p"
        np.testing.assert_allclose(pair.before[1], p.ravel(), rtol=1e-5)


def test_an_interleaved_run_shows_both_of_its_parameterizations(runs):
    content = gather(runs["interleaved"], {})
    assert list(content.lams) == ["slot 0 (centered)", "slot 1 (non-centered)"]
    Tags(render(content))


def test_a_report_of_a_stored_run_is_the_same(runs, tmp_path):
    import xarray

    runs["auto"].to_zarr(tmp_path / "run.zarr", consolidated=False)
    again = xarray.open_datatree(tmp_path / "run.zarr", engine="zarr", consolidated=False)
    assert render(gather(again, {})) == render(gather(runs["auto"], {}))


def test_estimates_and_the_check_of_predictions_come_before_diagnostics(runs):
    content = gather(runs["auto"], {})
    mean = runs["auto"]["posterior"]["mu"].values.mean()
    assert content.estimates.labels[0] == "mu"
    assert content.estimates.numbers["mean"][0] == pytest.approx(mean)
    (check,) = content.checks
    inside = (check.low <= check.observed) & (check.observed <= check.high)
    assert inside.mean() > 0.8  # the model made the data
    text = render(content)
    assert (
        text.index("Estimates</h2>")
        < text.index("predictive check</h2>")
        < text.index("Sites</h2>")
    )
    assert "Posterior predictive check" not in render(gather(runs["interleaved"], {}))


def test_the_times_add_up_to_what_was_waited(runs):
    times = runs["auto"].attrs
    parts = [times[f"{name}_time"] for name in ("setup", "sampling", "finishing")]
    assert times["total_time"] == pytest.approx(sum(parts))
    assert min(parts) >= 0


def test_many_elements_share_cells():
    from autoreparam.results.lam import SiteLam

    lam = np.linspace(0, 1, 100_000)
    text = heat_map(SiteLam("x", (100_000,), [f"x[{i}]" for i in range(len(lam))], lam))
    assert text.count("<i ") == 600
    assert "x[0] to x[165]: λ = 0.00 (0.00)" in text
    assert (color(0.0), color(1.0)) == ("#443983", "#fde725")


def test_a_model_without_anything_to_move_has_a_report_too(runs):
    tree = runs["auto"].drop_nodes(["parameterization", "geometry"])
    fixed = [site | {"candidate": False} for site in json.loads(tree.attrs["sites"])]
    tree.attrs["sites"] = json.dumps(fixed)
    text = render(gather(tree, {}))
    Tags(text)
    assert "No site of this model can be reparameterized" in text
    with pytest.raises(AutoreparamError, match="no λ"):
        ar.plots.parameterization(tree)
    with pytest.raises(AutoreparamError, match="no pair"):
        ar.plots.geometry(tree)


def test_a_tree_that_lost_its_attributes_is_refused_in_words(runs):
    tree = runs["auto"].copy()
    tree.attrs = {}
    with pytest.raises(AutoreparamError, match="does not say what its sites are"):
        ar.parameterization(tree)


def test_a_run_gives_its_parameterization_back(runs):
    lam = ar.parameterization(runs["auto"])
    assert lam.sites == (EVIL,)
    np.testing.assert_array_equal(
        lam[EVIL], runs["auto"]["parameterization"][EVIL.replace("/", ".")].values
    )
    program = ar.inspect(hostile, (), {"y": np.zeros(5)})
    assert lam.check(program) == lam
    scales = ar.parameterization(runs["interleaved"]).check(program).reference[EVIL]
    np.testing.assert_allclose(scales, program.reference_scales[EVIL])
    slots = [ar.parameterization(runs["interleaved"], slot=slot)[EVIL][0] for slot in (0, 1)]
    assert slots == [1.0, 0.0]


def test_plots_draw_what_the_tree_holds(runs):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    heat = ar.plots.parameterization(runs["auto"])
    shown = np.asarray(heat.images[0].get_array())[0]
    np.testing.assert_allclose(shown, ar.parameterization(runs["auto"])[EVIL])
    before, after = ar.plots.geometry(runs["auto"])
    assert before.get_xlabel() == after.get_xlabel() == gather(runs["auto"], {}).pair.child
    bars = ar.plots.efficiency(runs)
    assert [text.get_text() for text in bars.get_yticklabels()] == ["auto", "interleaved"]
    assert len(ar.plots.efficiency(runs["auto"]).patches) == 2
    plt.close("all")


def test_predictions_follow_the_draws(runs):
    predicted = runs["auto"]["posterior_predictive"]["y"]
    assert predicted.dims == ("chain", "draw", "group")
    noise = predicted.values - runs["auto"]["posterior"][EVIL.replace("/", ".")].values
    assert noise.std() == pytest.approx(1.0, abs=0.15)  # five standard errors
    assert np.unique(noise).size == noise.size


def test_what_is_observed_inside_scan_is_predicted_too():
    from numpyro.contrib.control_flow import scan

    from autoreparam.program.predictive import predict

    def walk(y):
        def step(x, now):
            x = numpyro.sample("x", dist.Normal(x, 1.0))
            numpyro.sample("y", dist.Normal(x, 0.01), obs=now)
            return x, x

        scan(step, 0.0, y)

    program = ar.inspect(walk, (np.zeros(3),))
    found = predict(program, {"x": np.array([1.0, 2.0, 3.0])}, jax.random.key(0))["y"]
    np.testing.assert_allclose(found, [1.0, 2.0, 3.0], atol=0.05)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")  # of a run as short as this
def test_arviz_takes_the_tree(runs):
    import arviz_stats

    table = arviz_stats.summary(runs["auto"], var_names=["mu", "tau"])
    assert list(table.index) == ["mu", "tau"]
    assert np.isfinite(arviz_stats.loo(runs["auto"], var_name="y").elpd)


@pytest.mark.skipif(
    tuple(map(int, metadata.version("matplotlib").split(".")[:2])) >= (3, 11),
    reason="arviz-plots 0.8.0 fails to import with matplotlib 3.11",
)
def test_arviz_plots_draws_the_tree(runs):
    import matplotlib

    matplotlib.use("Agg")
    import arviz_plots

    arviz_plots.plot_trace(runs["auto"], var_names=["mu", "tau"], backend="matplotlib")
    arviz_plots.plot_rank(runs["auto"], var_names=["mu"], backend="matplotlib")
    arviz_plots.plot_ppc_dist(runs["auto"], backend="matplotlib", num_samples=10)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@needs_chromium
def test_a_browser_opens_it_without_an_error_or_a_request(browser, page):
    browser.open(page)
    assert browser.errors == []
    assert {url.partition(":")[0] for url in browser.requests} <= {"file", "data"}
    assert browser.run("document.title") == f"My {EVIL}: report of a run"


@needs_chromium
def test_pointing_at_a_cell_shows_its_value(browser, page, runs):
    browser.open(page)
    assert browser.run("document.getElementById('tip').hidden")
    browser.hover(".heat i:nth-child(2)")
    lam = ar.parameterization(runs["auto"])[EVIL][1]
    name = EVIL.replace("/", ".")
    assert browser.run("document.getElementById('tip').textContent") == (
        f"{name}[b & c]: λ = {lam:.2f}"
    )
    assert not browser.run("document.getElementById('tip').hidden")
    assert browser.errors == []


@needs_chromium
def test_arrow_keys_go_from_cell_to_cell(browser, page):
    browser.open(page)
    browser.run("document.querySelector('.heat').focus()")
    tips = []
    for key in ("ArrowRight", "ArrowRight", "End", "Home"):
        browser.press(key)
        browser.settle()
        assert not browser.run("document.getElementById('tip').hidden")
        tips.append(browser.run("document.getElementById('tip').textContent"))
    assert [re.search(r"\[(.*)\]", tip)[1] for tip in tips] == [LABELS[i] for i in (0, 1, 4, 0)]
    browser.press("Escape")
    assert browser.run("document.getElementById('tip').hidden")
    assert browser.errors == []


@needs_chromium
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone_shows_it_without_scrolling_sideways(browser, page, dark, tmp_path):
    browser.open(page, width=390, height=800, dark=dark)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    light, ink = (
        sum(map(int, re.findall(r"\d+", browser.run(f"getComputedStyle(document.body).{what}"))))
        for what in ("backgroundColor", "color")
    )
    assert (light < ink) == dark
    browser.screenshot(tmp_path / "phone.png")
    assert browser.errors == []


@needs_chromium
def test_a_screen_reader_has_a_name_for_everything(browser, page):
    browser.open(page)
    assert all(browser.names("image"))
    assert all(browser.names("table"))
    assert all(browser.names("region"))
    headings = browser.names("heading")
    assert headings[0] == f"My {EVIL}"
    assert {"Sites", "Parameterization", "Geometry", "Gradient ledger"} <= set(headings)
