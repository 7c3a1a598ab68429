"""Tables and Markdown as they are shown: nothing is lost, nothing from a user is obeyed."""

import io

import numpy as np
import numpyro
import numpyro.distributions as dist
from rich.console import Console

import autoreparam as ar
from autoreparam.learn.fit import Fit
from autoreparam.render.markdown import to_page
from autoreparam.render.table import Best, Html, Table
from autoreparam.results.summary import Summary

TABLE = Table(("name", "a|b"), [("[bold]x[/]", "1"), ("<b>λ</b>", Best("23.5"))], numbers=True)


def test_text_has_aligned_columns_under_a_line():
    assert TABLE.to_text().splitlines() == [
        "name         a|b",
        "----------  ----",
        "[bold]x[/]     1",
        "<b>λ</b>    23.5",
    ]


def test_text_is_never_wrapped_and_has_no_codes_of_a_terminal(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    assert Table(("long",), [("word " * 99 + "end",)]).to_text().splitlines()[2].endswith("end")
    assert "\x1b" not in TABLE.to_text()


def test_html_escapes_every_cell_that_is_not_html_already():
    html = Table(("<i>",), [("<b>", Html("<u>1</u>"))]).to_html()
    assert '<th scope="col">&lt;i&gt;</th>' in html
    assert '<th scope="row">&lt;b&gt;</th><td><u>1</u></td>' in html


def test_a_caption_names_the_region_that_scrolls():
    html = TABLE.to_html('a "b"', "wide")
    assert 'role="region" aria-label="a &quot;b&quot;"><table class="wide">' in html
    assert "<caption>a &quot;b&quot;</caption>" in html


def test_markdown_keeps_the_columns_and_marks_the_best():
    lines = TABLE.to_markdown().splitlines()
    assert lines == ["| name | a\\|b |", "| --- | --- |", "| [bold]x[/] | 1 |",
                     "| <b>λ</b> | **23.5** |"]  # fmt: skip


def test_a_terminal_shows_brackets_as_they_are_and_colors_the_best():
    with io.StringIO() as text:
        console = Console(file=text, width=80, force_terminal=True, color_system="standard")
        console.print(TABLE.to_terminal("ESS [steps]", "so [far]"))
        shown = text.getvalue()
    assert "[bold]x[/]" in shown
    assert "ESS [steps]" in shown
    assert "so [far]" in shown
    assert "\x1b[1;32m23.5\x1b[0m" in shown


def test_a_page_is_markdown_with_tables_and_html_in_it_is_shown():
    page = to_page("A & B", f"# A & B\n\n**bold** <script>x</script>\n\n{TABLE.to_markdown()}\n")
    assert "<title>A &amp; B</title>" in page
    assert "<strong>bold</strong> &lt;script&gt;" in page
    assert "<td>&lt;b&gt;λ&lt;/b&gt;</td>\n<td><strong>23.5</strong></td>" in page
    assert "<th>a|b</th>" in page


def test_what_a_notebook_shows():
    def model():
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        with numpyro.plate("group", 3):
            numpyro.sample("x", dist.Normal(0.0, tau))

    program = ar.inspect(model)
    lam = ar.Parameterization.constant(program, 0.25)
    fit = Fit(lam, -1.5, 0.1, {}, 2000, np.zeros(4), np.ones(4), False, "still <rising>")
    assert "<td>3</td><td>0.25</td>" in lam._repr_html_()
    assert "location and scale are constant" in program._repr_html_()
    assert "ELBO -1.500, 2,000 gradients, not converged: still &lt;rising&gt;" in fit._repr_html_()
    assert "2,000 gradients" in repr(fit)
    table = Summary(("a", "b"), {"mean": np.array([1.0, 2.0])})
    assert table.to_dataframe().loc["b", "mean"] == 2.0
