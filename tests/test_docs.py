"""All code in the documentation runs, with runs made small."""

import importlib
import json
import re
import shlex
import sys
import warnings
from pathlib import Path

import numpyro.infer
import pytest
from typer.testing import CliRunner

import autoreparam as ar
from autoreparam.cli import app
from autoreparam.experiments import compare
from autoreparam.program.families import registry

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path.relative_to(ROOT)
    for path in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    if "```" in path.read_text(encoding="utf-8")
)
BLOCK = re.compile(
    r'^( *)```(python|bash|json)(?: title="([^"]+)")?\n(.*?)^ *```', re.MULTILINE | re.DOTALL
)
FOUND: dict = {}
SMALL = {"draws": 12, "warmup": 60, "chains": 2, "kernel": "hmc", "progress": False}


def blocks(page):
    """Language, file name or None, and text of each block of a page, without its indentation."""
    for indent, language, title, text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        yield language, title, re.sub(f"^{indent}", "", text, flags=re.MULTILINE)


def once(call, model, args, kwargs, options):
    """What `call` gives; pages that show the same model share it."""
    key = (call.__name__, repr(ar.inspect(model, args, kwargs)), repr(sorted(options.items())))
    if key not in FOUND:
        FOUND[key] = call(model, args, kwargs, **options)
    return FOUND[key]


@pytest.fixture
def small(monkeypatch, tmp_path):
    """An empty folder to work in, in which every run is a short one."""
    import matplotlib

    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))  # leave no rule behind
    sample, learn, resume, run_mcmc = ar.sample, ar.learn, ar.resume, numpyro.infer.MCMC.__init__

    def short(model, args=(), kwargs=None, **options):
        options = {key: value for key, value in options.items() if key != "num_steps"} | SMALL
        if options.get("checkpoint"):
            return sample(model, args, kwargs, **options)
        return once(sample, model, args, kwargs, options)

    def brief(model, args=(), kwargs=None, **options):
        quick = {"steps": 50} if options.get("objective", "elbo") == "elbo" else {}
        return once(learn, model, args, kwargs, options | quick)

    def more(checkpoint, model, args, kwargs, draws=None, **options):
        return resume(checkpoint, model, args, kwargs, SMALL["draws"] + 8, **options)

    def few(self, kernel, *, num_warmup, num_samples, **options):
        run_mcmc(self, kernel, num_warmup=20, num_samples=10, **options)

    for module, name, replacement in (
        (ar, "sample", short),
        (compare, "sample", short),
        (compare, "METHODS", ("centered", "auto")),
        (ar, "learn", brief),
        (ar, "resume", more),
        (numpyro.infer.MCMC, "__init__", few),
    ):
        monkeypatch.setattr(module, name, replacement)
    yield tmp_path
    import matplotlib.pyplot as plt

    plt.close("all")
    for module in [name for name in sys.modules if name in ("schools", "mymodel", "homes")]:
        del sys.modules[module]


def command(words):
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, (words, done.output, done.stderr)


# BlackJAX's own warm-up takes half a minute to compile; what the
# page shows of ours is in test_interop.py.
SLOW = {
    Path("docs/howto/blackjax.md"): pytest.mark.slow,
    Path("docs/howto/numpyro.md"): pytest.mark.slow,
    Path("docs/howto/own-model.md"): pytest.mark.slow,
    Path("docs/howto/command-line.md"): pytest.mark.slow,  # test_cli.py runs every command
    Path("docs/howto/discrete.md"): pytest.mark.slow,  # test_discrete.py
    Path("docs/howto/predict.md"): pytest.mark.slow,  # test_predict.py
    Path("docs/howto/checkpoints.md"): pytest.mark.slow,  # test_storage.py
    Path("docs/howto/gpu.md"): pytest.mark.slow,  # test_superchains.py
    Path("docs/howto/many.md"): (pytest.mark.slow, pytest.mark.long),  # test_many.py
    Path("docs/howto/calibration.md"): (pytest.mark.slow, pytest.mark.long),  # test_many.py
    # The build runs the case studies in full.
    Path("docs/cases/radon.md"): (pytest.mark.slow, pytest.mark.data),
    Path("docs/cases/horseshoe.md"): (pytest.mark.slow, pytest.mark.data),
    Path("docs/cases/volatility.md"): pytest.mark.slow,
    Path("docs/cases/repeated.md"): (pytest.mark.slow, pytest.mark.long),
}


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=SLOW.get(page, ()), id=str(page)) for page in PAGES]
)
def test_the_code_of_a_page_runs(page, small):
    names: dict = {"__name__": "page"}
    for language, title, text in blocks(page):
        if title:
            (small / title).write_text(text, encoding="utf-8")
        if language == "python" and not title:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                exec(compile(text, str(page), "exec"), names)
        elif language == "bash" and page.name != "README.md":
            for line in text.splitlines():
                if line.startswith("autoreparam "):
                    command(shlex.split(line)[1:])


def test_every_page_is_in_the_menu_and_every_how_to_has_code():
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for path in (ROOT / "docs").rglob("*.md"):
        assert str(path.relative_to(ROOT / "docs")) in menu
    assert len([page for page in PAGES if page.parent.name == "howto"]) >= 9


def test_stored_results_of_case_studies_are_those_of_the_code_on_the_page(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    cases = importlib.import_module("cases")
    for page in cases.STORED:
        stored = json.loads((cases.PAGES / f"{page}.json").read_text(encoding="utf-8"))
        assert stored["code"] == cases.digest(page), "run `python docs/cases.py`"
        results = cases.Results(**stored)
        assert all(text.startswith("<?xml") for text in cases.pictures(page, results).values())
        text = (cases.PAGES / f"{page}.md").read_text(encoding="utf-8")
        assert "```text" in cases.with_output(text, results)
