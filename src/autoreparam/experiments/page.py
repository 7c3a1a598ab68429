"""The page of a reproduction: claims, figures, tables, all rendered from the stored results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from autoreparam.disk import write_text
from autoreparam.experiments import store
from autoreparam.experiments.budget import METHODS, RADON
from autoreparam.experiments.claims import judge
from autoreparam.experiments.evidence import CONFIRMED, REFUTED, UNDECIDED, Claim, Evidence
from autoreparam.experiments.figures import draw_measured
from autoreparam.experiments.figures_theory import draw_theory
from autoreparam.experiments.lam import RadonLam, radon_lams
from autoreparam.experiments.problem import without_data
from autoreparam.experiments.protocol import wanted
from autoreparam.experiments.queue import SPREAD
from autoreparam.experiments.store import Results
from autoreparam.experiments.theory import (
    condition_errors,
    distance_from_gaussian,
    funnel,
    funnel_fits,
)
from autoreparam.experiments.words import entry, gaps_in_words, title_of
from autoreparam.render.markdown import to_page
from autoreparam.render.table import Best, Table

TITLE = "Automatic Reparameterisation of Probabilistic Programs, reproduced"

FIGURES = {
    "figure1_funnel": "Figure 1. Neal's funnel, centered and non-centered (log density).",
    "figure2_condition_numbers": "Figure 2. Condition number of the two-level Gaussian model's "
    "posterior under the best diagonal preconditioner, against the strength of the data; dots mark "
    "where the two are equal.",
    "figure3_funnel_fits": "Figure 3. The funnel for λ = 1 to 0 with its mean-field fit (white: "
    "one, two, three standard deviations), in working coordinates and carried to the original "
    "space.",
    "figure4_radon": "Figure 4. Radon in seven states: ESS per 1000 gradients of sampling at the "
    "best number of leapfrog steps, with 95% intervals over chains.",
    "figure5_ess_and_elbo": "Figure 5. ESS per 1000 gradients (with 95% intervals), and how far "
    "the optimized ELBO is below the model's best.",
    "figure6_lambda": "Figure 6. λ found by VIP, sorted within each site; in parentheses the "
    "number of elements.",
    "radon_lambda": "Radon, every county of seven states: λ by the ELBO against its exact optimum, "
    "and λ by scores against the minimum of the exact score objective.",
}
NO_GAPS: Mapping[str, str] = MappingProxyType({})
MODELS_LEFT_OUT = "These models were left out, because their data could not be loaded:"
STATES_LEFT_OUT = "These states are not compared, because their data could not be loaded:"
SHORT = 2  # leapfrog steps, far too few to resonate
CORRECTIONS = (
    "Radon: uranium is matched to counties by fips code, not by row position; homes with an "
    "unknown floor (code 9) are left out, floors 1 to 3 all count as above ground; homes with a "
    "blank county name keep the county of their fips code. `zoo.load('radon', as_published=True)` "
    "has the data as published.",
    "Electric and Election '88: codes that start at 1 were used as if they started at 0, so that "
    "grade 4, pair 96 and state 51 lost their effects.",
    "Electric: the factor 100 of the authors' code on the grade means is kept; the text omits it.",
    "Election '88: the rows are respondents, not counties.",
    "Appendix: κ_NCP has a stray factor σ_μ²; `v` stands for σ_μ²; 'softmax' of the variational "
    "scale means softplus.",
    "VIP: final ELBOs are evaluated again on fresh, common random numbers, and a λ that is clearly "
    "below plain CP or NCP is not used. The authors' VIP could end below CP, which it contains.",
)


def write_page(out: Path, gaps: Mapping[str, str] = NO_GAPS) -> list[Claim]:
    """Writes figures, Markdown and HTML from the results in a folder; returns the judged claims.

    `gaps` are models that were left out because their data could not be loaded, with the reason.
    """
    results = store.load_all(out)
    blind = without_data(model for model in RADON if model in results)
    lams = radon_lams({model: found for model, found in results.items() if model not in blind})
    target = funnel()
    fits = funnel_fits(target)
    draw_theory(target, fits, out / "figures")
    draw_measured(results, lams, out / "figures")
    evidence = Evidence(
        results=results,
        lams=lams,
        gaussian_error=distance_from_gaussian(target),
        condition_errors=condition_errors(),
        funnel_elbos=[(fit.value, fit.elbo) for fit in fits],
    )
    claims = judge(evidence)
    markdown = "\n\n".join(_blocks(results, lams, claims, gaps, blind, out)) + "\n"
    write_text(out / "paper.md", markdown)
    write_text(out / "paper.html", to_page(TITLE, markdown))
    return claims


def _blocks(
    results: Mapping[str, Results],
    lams: Mapping[str, RadonLam],
    claims: list[Claim],
    gaps: Mapping[str, str],
    blind: Mapping[str, str],
    out: Path,
) -> list[str]:
    confirmed = sum(claim.verdict == CONFIRMED for claim in claims)
    blocks = [
        f"# {TITLE}",
        "The experiments of [Gorinova, Moore and Hoffman (2019)]"
        f"(https://arxiv.org/abs/1906.03028), repeated with `autoreparam`. {confirmed} of the "
        f"{len(claims)} claims below are confirmed. "
        "Everything on this page is rendered from the files in `results/`.",
        *_settings(results),
        *_left_out(MODELS_LEFT_OUT, gaps),
        "## The claims",
        _claims(claims),
        "## Effective sample sizes",
        *_tables(results),
        "## Figures",
    ]
    for name, caption in FIGURES.items():
        if (out / "figures" / f"{name}.svg").is_file():
            blocks.append(f"![{caption}](figures/{name}.svg)\n\n*{caption}*")
    if lams or blind:
        table = [_lam_table(lams)] if lams else []
        blocks += ["## λ on radon, beside linear algebra", *table]
        blocks += _left_out(STATES_LEFT_OUT, blind)
    return [*blocks, "## What was corrected", _bullets(CORRECTIONS)]


def _bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _left_out(what: str, gaps: Mapping[str, str]) -> list[str]:
    return [what, _bullets(gaps_in_words(gaps))] if gaps else []


def _settings(results: Mapping[str, Results]) -> list[str]:
    if not results:
        return ["No model has been run yet."]
    first = next(iter(results.values()))
    s, fit = first.settings, first.settings["fit"]
    machines = sorted({f"{r.machine['device']} ({r.machine['dtype']})" for r in results.values()})
    seconds = sum(r.seconds for r in results.values())
    return [
        f"Budget **{s['name']}**: variational fits of {fit['steps']} steps with "
        f"{fit['samples']} samples at learning rates "
        f"{', '.join(map(str, fit['learning_rates']))}; {s['chains']} chains, {s['warmup']} "
        f"warm-up steps ({s['adapt']} of them adapt the step size, by the mean acceptance "
        f"probability of all chains), {s['draws']} draws; "
        f"leapfrog steps {', '.join(map(str, s['num_steps']))}, of which the best is reported. Run "
        f"on {', '.join(machines)}; {seconds / 60:.1f} minutes in all, compilation "
        "included. To repeat it:",
        f"```console\nautoreparam reproduce --{s['name']} --out DIR\n```",
    ]


def _claims(claims: list[Claim]) -> str:
    rows = []
    for number, claim in enumerate(claims, 1):
        why = f": {claim.why}" if claim.why and claim.verdict in (REFUTED, UNDECIDED) else ""
        verdict = f"**{claim.verdict}**{why}"
        rows.append([str(number), f"{claim.claim} ({claim.where})", claim.found, verdict])
    return Table(["", "the paper", "here", "verdict"], rows).to_markdown()


def _tables(results: Mapping[str, Results]) -> list[str]:
    shown = [m for m in METHODS if any(r.best(m) for r in results.values())]
    sampling, arviz, total, detail = [], [], [], []
    detail_columns = ["model", "method", "acceptance", "step size", "R-hat", "longest stay",
                      "slowest", "its ESS"]  # fmt: skip
    for model, found in results.items():
        best = {method: cell for method in shown if (cell := found.best(method)) is not None}
        if not best:
            continue
        top = max(cell["ess"] for cell in best.values())
        top_total = max(cell["total"] for cell in best.values())
        sampling.append([title_of(model), *(entry(best.get(m), top) for m in shown)])
        other = {m: cell for m in shown if (cell := found.best(m, "arviz")) is not None}
        top_arviz = max(cell["arviz"] for cell in other.values())
        arviz.append([title_of(model), *(entry(other.get(m), top_arviz, "arviz") for m in shown)])
        total.append([title_of(model), *(_total(best.get(m), top_total) for m in shown)])
        for method, cell in best.items():
            sizes = ", ".join(f"{size:.3g}" for size in cell["step_size"])
            detail.append(
                [title_of(model), method, f"{cell['acceptance']:.2f}", sizes,
                 f"{cell['r_hat']:.3f}", str(cell["longest_stay"]), cell["slowest"],
                 f"{cell['slowest_ess']:.3g} ± {cell['slowest_error']:.2g}"]
            )  # fmt: skip
    return [
        "ESS per 1000 gradients of sampling: the mean over chains of the smallest ESS over "
        "variables, ± its standard error; in brackets, the number of leapfrog steps. ESS is "
        "estimated as in the paper, from autocorrelations up to the first negative one, so it "
        "never exceeds the number of draws. With n leapfrog steps it is therefore at most 1000/n "
        "(half that for iHMC, which takes two trajectories per draw); numbers of steps whose "
        "bound is below a result already found are not run. `auto` is this project's own method: "
        "λ learned from the scores of a pilot run.",
        Table(["model", *shown], sampling).to_markdown(),
        *_unfinished(results),
        *_resonance(results),
        "The same by ArviZ's estimator of the ESS of means, in which antithetic draws count "
        "for more than independent ones.",
        Table(["model", *shown], arviz).to_markdown(),
        "The same ESS per 1000 gradients in total, including warm-up and learning. The paper's "
        "variational fits draw many samples per step at five learning rates; each of them counts "
        "here.",
        Table(["model", *shown], total).to_markdown(),
        "How those runs went. There is one step size per λ; the chains' own step sizes are spread "
        f"around it by up to {SPREAD:.0%} in both directions, so that they do not all resonate, "
        "or none of them. The longest stay is the largest number of draws in a row that a chain "
        "spent at one point. The last columns take the other reading of the paper's measure: the "
        "mean ESS of each variable over chains, and the smallest of these means. The first "
        "reading, that of the authors' code, is lower where single-chain estimates are noisy, "
        "since the minimum picks up the noise too.",
        Table(detail_columns, detail).to_markdown(),
    ]


def _unfinished(results: Mapping[str, Results]) -> list[str]:
    """The numbers of steps that were not run, but could have been a method's best."""
    missing = [
        f"{title_of(model)}, {method}: {', '.join(map(str, left))}"
        for model, found in results.items()
        for method in found.cells
        if (left := wanted(found.settings["num_steps"], method, found))
    ]
    if not missing:
        return []
    return [
        "The run was stopped early. These numbers of leapfrog steps were not run, and could do "
        f"better than what is shown: {'; '.join(missing)}."
    ]


def _resonance(results: Mapping[str, Results]) -> list[str]:
    """Where "auto" is behind, and how it does with trajectories too short to resonate."""
    shares = {
        model: (_share(found, None), short)
        for model, found in results.items()
        if (short := _share(found, SHORT)) is not None
    }
    behind = {model: pair for model, pair in shares.items() if (pair[0] or 1.0) < 1}
    if not behind:
        return []
    found = ", ".join(f"{title_of(m)} {of_all:.2f} ({s:.2f})" for m, (of_all, s) in behind.items())
    return [
        "A fixed number of fixed-size steps resonates: a direction whose period it completes "
        "returns to where it started. Powers of two often miss the best length, and the rounder "
        "the posterior, the more directions resonate together. Where `auto` is behind the better "
        "of CP and NCP, this is its share of it, and in parentheses the share when all three "
        f"take {SHORT} leapfrog steps, too few to resonate: {found}."
    ]


def _share(found: Results, num_steps: int | None) -> float | None:
    """ESS of "auto" over the better of CP and NCP, at a number of steps or each at its best."""
    rows = [found.cells.get(method, {}) for method in ("auto", "CP", "NCP")]
    if num_steps is not None:
        rows = [{num_steps: row[num_steps]} for row in rows if num_steps in row]
    tops = [max((cell["ess"] for cell in row.values()), default=0.0) for row in rows]
    return tops[0] / max(tops[1:]) if len(tops) == 3 and all(tops) else None


def _total(cell: Mapping[str, Any] | None, top: float) -> str:
    if cell is None:
        return "-"
    text = f"{cell['total']:.3g}"
    return Best(text) if cell["total"] == top else text


def _lam_table(lams: Mapping[str, RadonLam]) -> str:
    rows = [
        [state, str(len(lam.elbo_exact)), _number(lam.elbo_distance), _number(lam.above)]
        for state, lam in lams.items()
    ]
    header = ["state", "counties", "λ by ELBO: largest distance from n/(n+1)",
              "λ by scores: exact objective above its minimum"]  # fmt: skip
    return Table(header, rows).to_markdown()


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
