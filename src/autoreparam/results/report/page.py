"""The page itself: turns content into HTML. Everything that comes from a user is escaped here."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib.resources import files

import numpy as np

from autoreparam.render.table import Html, Table
from autoreparam.results.report.content import Content, Pair, Series, SiteRow
from autoreparam.results.report.estimates import Check, Estimates
from autoreparam.results.report.heat import heat_map, legend
from autoreparam.results.report.pictures import check_picture, forest
from autoreparam.results.report.svg import ranks, scatter, traces

VALUES_LISTED = 2000  # of λ, in the table under the heat map


def render(content: Content) -> str:
    """The whole page, with its style and its script inside."""
    sections = [
        _estimates(content.estimates),
        _checks(content.checks),
        _warnings(content),
        _sites(content.sites, content.found.r_hat_name),
        _lam(content),
        _efficiency(content),
        _geometry(content.pair),
        _ledger(content.ledger),
        _worst(content.worst, content.found.r_hat_name),
        _origin(content),
    ]
    shown = [(title, body) for title, body in sections if body]
    links = "".join(f'<li><a href="#{_id(title)}">{title}</a></li>' for title, _ in shown)
    body = "".join(
        f'<section aria-labelledby="{_id(title)}"><h2 id="{_id(title)}">{title}</h2>{text}'
        "</section>"
        for title, text in shown
    )
    title = escape(content.title)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}: report of a run</title>
<style>{_asset("style.css")}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the report</a>
<header>
<h1>{title}</h1>
<p class="verdict {"good" if content.good else "bad"}"><strong>{
        "Good." if content.good else "Look closer."
    }</strong> {escape(content.verdict)}</p>
{_numbers(content)}
<nav aria-label="Sections"><ul>{links}</ul></nav>
</header>
<main id="main" tabindex="-1">{body}</main>
<footer><p>Made by autoreparam {escape(content.versions.get("autoreparam", ""))}. This page works
offline.</p></footer>
<div id="tip" role="status" aria-live="polite" hidden></div>
<script>{_asset("script.js")}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return files("autoreparam.results.report").joinpath(name).read_text(encoding="utf-8").strip()


def _id(title: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in title.lower())


def _number(value: float, form: str = ",.0f") -> str:
    return format(value, form) if np.isfinite(value) else "–"


def _numbers(content: Content) -> str:
    found = content.found
    numbers = {
        "smallest ESS": _number(found.ess),
        "ESS per 1000 gradients": _number(found.ess_per_1000_sampling, ",.3g"),
        "the same, all costs included": _number(found.ess_per_1000_total, ",.3g"),
        f"largest {found.r_hat_name}": _number(found.r_hat, ".3f"),
        "divergences": f"{found.divergences:,}",
        "chains × draws": f"{found.chains} × {found.draws:,}",
    }
    inside = "".join(f"<div><dt>{key}</dt><dd>{value}</dd></div>" for key, value in numbers.items())
    return f"<dl>{inside}</dl>"


def _estimates(found: Estimates) -> tuple[str, str]:
    if not found.labels:
        return "Estimates", ""
    rows = [
        (label, *(_number(found.numbers[key][row], ".4g") for key in found.numbers))
        for row, label in enumerate(found.labels)
    ]
    text = "<p>Mean, standard deviation and the central 90% of the posterior.</p>"
    left = f"<p>{found.more:,} more are not shown; ar.summary has them.</p>" if found.more else ""
    table = Table(("", *found.numbers), rows, numbers=True).to_html("Estimates")
    picture = f'<figure class="forest">{forest(found)}</figure>'
    if len(rows) > 20:
        table = f"<details><summary>All numbers</summary>{table}</details>"
    return "Estimates", text + picture + table + left


def _checks(checks: list[Check]) -> tuple[str, str]:
    parts = []
    for check in checks:
        rows = [
            (word, _number(own, ".4g"), f"{_number(low, '.4g')} to {_number(high, '.4g')}")
            for word, own, low, high in check.statistics
        ]
        head = ("", "observed", "90% of the simulated")
        parts.append(
            f'<div class="figures"><figure>{check_picture(check)}<figcaption>The share of values '
            "up to each number: the line is the data, the band holds 90% of the simulated data "
            f"sets.</figcaption></figure>{Table(head, rows).to_html(check.name)}</div>"
        )
    if not parts:
        return "Posterior predictive check", ""
    text = (
        "<p>Data simulated from the posterior beside those observed. Where the line leaves the "
        "band, the model does not describe the data.</p>"
    )
    return "Posterior predictive check", text + "".join(parts)


def _warnings(content: Content) -> tuple[str, str]:
    said = [*content.warnings, *(note for note in content.notes if note not in content.warnings)]
    if not said:
        return "What to do", "<p>Nothing: no warning was raised.</p>"
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in said)
    return "What to do", f'<ul class="said">{items}</ul>'


def _sites(rows: list[SiteRow], r_hat: str) -> tuple[str, str]:
    measured = any(np.isfinite(row.inflation_before) for row in rows)
    head = ["site", "family", "elements", "λ"]
    head += ["variance inflation before", "after"] if measured else []
    head += ["ESS", r_hat, "why"]
    lines = []
    for row in rows:
        cells = [
            row.name,
            row.distribution,
            "×".join(map(str, row.shape)) or "1",
            _lam_range(row.lam) + (f"; tail {_lam_range(row.tail)}" if row.tail else ""),
        ]
        if measured:
            cells += [_number(row.inflation_before, ".3g"), _number(row.inflation_after, ".3g")]
        why = row.note if row.moved else f"not moved: {row.note}" if row.note else "not moved"
        cells += [_number(row.ess), _number(row.r_hat, ".3f"), why]
        lines.append(cells)
    text = (
        "<p>λ says how far an element is centered; a tail, how much lighter heavy tails were made "
        f"for the sampler. ESS is the smallest over the site's elements, {r_hat} the largest.</p>"
    )
    table = Table(head, lines).to_html("Latent sites of the model", "sites")
    return "Sites", text + table + _suggestions(rows)


def _suggestions(rows: list[SiteRow]) -> str:
    """What a person would write now, for sites that are sampled in their other form."""
    statements = [escape(row.suggestion) for row in rows if row.suggestion]
    if not statements:
        return ""
    code = "\n".join(statements)
    return (
        "<p>Most elements of these sites are sampled nearer to their other form. Written by hand, "
        f"it would be</p><pre><code>{code}</code></pre>"
    )


def _lam_range(lam: tuple[float, float] | None) -> str:
    if lam is None:
        return "–"
    low, high = (f"{part:.2f}" for part in lam)
    return low if low == high else f"{low} to {high}"


def _lam(content: Content) -> tuple[str, str]:
    title, parts = "Parameterization", []
    for slot, sites in content.lams.items():
        if not sites:
            continue
        if len(content.lams) > 1:
            parts.append(f"<h3>{escape(slot)}</h3>")
        for site in sites:
            parts.append(
                f'<div class="site"><h3>{escape(site.variable)}</h3>{heat_map(site)}</div>'
            )
        listed = [
            (label, f"{lam:.3f}") for site in sites for label, lam in zip(site.labels, site.lam)
        ]
        more = len(listed) - VALUES_LISTED
        left = f"<p>{more:,} more are not shown.</p>" if more > 0 else ""
        table = Table(("element", "λ"), listed[:VALUES_LISTED]).to_html("λ of each element")
        parts.append(f"<details><summary>All values</summary>{table}{left}</details>")
    if not parts:
        return title, "<p>No site of this model can be reparameterized.</p>"
    text = "<p>One cell per element; point at it, or use the arrow keys, to read its λ.</p>"
    return title, text + legend() + "".join(parts)


def _efficiency(content: Content) -> tuple[str, str]:
    compared = content.compared
    totals = [e.ess_per_1000_total for e in compared.values()]
    best = np.nanmax(totals) if np.isfinite(totals).any() else np.nan
    most = np.nanmax([best, *(e.ess_per_1000_sampling for e in compared.values()), 1e-300])
    rows = [
        (
            name,
            _bar(e.ess_per_1000_sampling, most),
            _bar(e.ess_per_1000_total, most, best=e.ess_per_1000_total == best),
            f"{e.divergences:,}",
            _number(e.r_hat, ".3f") + (" (nested)" if e.nested else ""),
        )
        for name, e in compared.items()
    ]
    text = (
        "<p>Effective draws of the worst variable per 1000 gradients: for the sampling phase "
        "alone, and with warm-up and learning included. More is better.</p>"
    )
    if len(compared) == 1:
        text += "<p>There are no other runs to compare with.</p>"
    head = ("run", "sampling", "all costs", "divergences", "R-hat")
    return "Efficiency", text + Table(head, rows).to_html("ESS per 1000 gradients", "bars")


def _bar(value: float, most: float, best: bool = False) -> Html:
    width = 0 if not np.isfinite(value) else 100 * value / most
    kind = "best" if best else ""
    return Html(
        f'<span class="bar {kind}"><span style="width:{width:.1f}%"></span></span> '
        f"{_number(value, ',.3g')}"
    )


def _geometry(pair: Pair | None) -> tuple[str, str]:
    if pair is None:
        return "Geometry", ""
    hits = int(pair.diverging.sum())
    figures = []
    for title, (x, y), size in (
        ("As the model is written", pair.before, pair.dependence[0]),
        ("As the sampler saw it", pair.after, pair.dependence[1]),
    ):
        said = (
            f"{title}: {len(x)} draws of {pair.child} and {pair.parent}, {hits} of them after a "
            f"divergence; dependence {size:.2f}"
        )
        picture = scatter(x, y, pair.diverging, (pair.child, pair.parent), said)
        figures.append(
            f"<figure>{picture}<figcaption>{title}. Dependence {size:.2f}.</figcaption></figure>"
        )
    text = (
        f"<p>The two variables that depend on each other most, {escape(pair.child)} and "
        f"{escape(pair.parent)}, in unconstrained coordinates. A funnel or a narrow line is hard "
        "to sample, a round cloud is easy. Dependence is a rank correlation, of values or of "
        f"spread; 0 means none. Crosses are divergences ({hits} here).</p>"
    )
    return "Geometry", f'{text}<div class="figures">{"".join(figures)}</div>'


def _ledger(ledger: Mapping[str, int]) -> tuple[str, str]:
    total = sum(ledger.values())
    words = {
        "learning": "learning λ before the run",
        "warmup": "starting points, step size, metric, warm-up draws",
        "sampling": "the draws of the posterior",
    }
    rows = [
        (name, f"{count:,}", _share(count, total), words.get(name, ""))
        for name, count in ledger.items()
    ]
    rows.append(("total", f"{total:,}", _share(total, total), ""))
    text = "<p>Every gradient of the log density that any chain computed.</p>"
    head = ("purpose", "gradients", "share", "what for")
    return "Gradient ledger", text + Table(head, rows).to_html("Gradients by purpose")


def _share(count: int, total: int) -> str:
    return f"{count / total:.0%}" if total else "–"


def _worst(series: list[Series], r_hat: str) -> tuple[str, str]:
    parts = []
    for one in series:
        numbers = f"ESS {_number(one.ess)}, {r_hat} {_number(one.r_hat, '.3f')}"
        chains, draws = one.draws.shape
        if draws < 4:
            continue
        lines = traces(one.draws, f"Trace of {one.name}: {chains} chains of {draws} draws")
        levels = ranks(one.draws, f"Ranks of {one.name} by chain; level lines mean agreement")
        parts.append(
            f"<h3>{escape(one.name)}</h3><p>{numbers}</p>"
            f'<div class="figures"><figure>{lines}<figcaption>Trace: chains should look alike and '
            f"never get stuck.</figcaption></figure><figure>{levels}<figcaption>Ranks by chain: "
            "lines should stay close to level.</figcaption></figure></div>"
        )
    return "Worst variables", "".join(parts)


def _origin(content: Content) -> tuple[str, str]:
    settings, versions = (list(pairs.items()) for pairs in (content.settings, content.versions))
    return "How it was made", (
        '<div class="figures">'
        + Table(("setting", "value"), settings).to_html("Settings and seed")
        + Table(("package", "version"), versions).to_html("Versions")
        + "</div>"
    )
