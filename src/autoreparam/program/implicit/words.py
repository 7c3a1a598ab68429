"""What a person would write: expressions of a model, and statements in its other form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autoreparam.program.graph import Node
from autoreparam.program.implicit.loop import Loop
from autoreparam.program.implicit.walk import Cumulative, Form, Matrix
from autoreparam.program.site import Site

INFIX = {"add": (" + ", 1), "sub": (" - ", 1), "mul": (" * ", 2), "div": (" / ", 2)}
FUNCTIONS = {"exp": "jnp.exp", "log": "jnp.log", "sqrt": "jnp.sqrt", "abs": "jnp.abs",
             "log1p": "jnp.log1p", "logistic": "jax.nn.sigmoid", "cholesky": "jnp.linalg.cholesky",
             "tanh": "jnp.tanh"}  # fmt: skip
SILENT = ("broadcast_in_dim", "reshape", "squeeze", "convert_element_type", "copy", "placed",
          "stop_gradient")  # fmt: skip
LONGEST = 60
POSITIVE_FAMILIES = {"HalfNormal": "{}", "HalfCauchy": "{}", "Exponential": "1 / ({})"}


@dataclass(frozen=True)
class Writer:
    """Writes nodes as expressions; `data` has the names of the model's arguments, by place."""

    data: Mapping[int, str]
    named: Mapping[int, str]  # deterministics, by the number of their node

    def text(self, node: Node | None, default: str) -> str:
        """The expression; where that is long, what it is computed from."""
        if node is None:
            return default
        written = self._write(node, 0, 0)
        if written is None or len(written) > LONGEST:
            return f"f({', '.join(sorted(node.names))})"
        return written

    def _write(self, node: Node, above: int, depth: int) -> str | None:
        op, inputs = node.op, node.inputs
        if depth > 12:
            return None
        if op == "latent":
            return str(node.value)
        if node.number in self.named and depth:
            return self.named[node.number]
        if op == "data":
            return self.data.get(node.value)
        if op == "constant":
            return _number(node.value)
        if op in SILENT or (op == "select_n" and not node.shape):
            return self._write(inputs[0], above, depth + 1)
        parts = [self._write(i, INFIX.get(op, ("", 0))[1], depth + 1) for i in inputs[:2]]
        if op == "transpose" and parts[0]:
            return f"{_closed(parts[0])}.T"
        if op == "gather" and parts[0]:
            return f"{_closed(parts[0])}[{self._index(inputs[1]) or '...'}]"
        if op in FUNCTIONS and parts[0]:
            return f"{FUNCTIONS[op]}({parts[0]})"
        if op == "neg" and parts[0]:
            return f"-{_closed(parts[0])}"
        if op == "select_n" and _zero(inputs[1]):  # the zeros above a triangle
            return self._write(inputs[2], above, depth + 1)
        if op not in INFIX or None in parts:
            return None
        sign, level = INFIX[op]
        if op == "mul" and parts[0] == "1":
            return parts[1]
        right = parts[1] or ""
        if op == "mul" and right == "-1":
            return f"-{_closed(parts[0] or '')}"
        if op in ("sub", "div") and any(mark in right for mark in " "):
            right = f"({right})"
        written = f"{parts[0]}{sign}{right}"
        return f"({written})" if above > level else written

    def _index(self, node: Node) -> str | None:
        """The argument that an index is made of."""
        while node.op != "data":
            later = [i for i in node.inputs if i.op != "constant"]
            if node.op == "select_n":
                later = later[1:2]
            if len(later) != 1:
                return None
            node = later[0]
        return self.data.get(node.value)


def implied_words(form: Form, site: Site, own: tuple[float, float], writer: Writer) -> str:
    """The distribution that a form implies, as it would be written."""
    loc, gain = writer.text(form.offset, "0.0"), writer.text(form.gain, "1.0")
    center, scale = own
    if center and not np.isnan(center):
        sign = "-" if gain.startswith("-") else "+"
        loc = f"{loc} {sign} {center:g} * {_factor(gain.removeprefix('-'))}"
    gain = gain.removeprefix("-")
    if scale != 1.0 and not np.isnan(scale):
        gain = f"{scale:g}" if gain == "1.0" else f"{scale:g} * {_factor(gain)}"
    if isinstance(form.coupling, Matrix):
        factor = writer.text(form.coupling.factor, "")
        factor = factor if gain == "1.0" else f"{_factor(gain)} * {_factor(factor)}"
        return f"MultivariateNormal({loc}, scale_tril={factor})"
    if isinstance(form.coupling, Cumulative):
        start = "" if loc == "0.0" else f"{loc} + "
        return f"{start}GaussianRandomWalk({gain}, {form.noise.shape[form.coupling.axis]})"
    if isinstance(form.coupling, Loop):
        return f"a sequence whose steps depend on {', '.join(sorted(form.names))}"
    family = site.distribution
    if site.shape_parameters is not None:
        kept = "".join(f"{name}=..., " for name in site.shape_parameters)
        return f"{family}({kept}loc={loc}, scale={gain})" if kept else f"{family}({loc}, {gain})"
    if family in POSITIVE_FAMILIES:
        return f"{family}({POSITIVE_FAMILIES[family].format(gain)})"
    return f"{_factor(gain)} * {family}"


def centered_statement(name: str, family: str) -> str:
    """The statement of a site that is centered again, or nothing where it takes more than one."""
    if "..." in family or family.startswith("a sequence") or not family[0].isupper():
        return ""
    return f'{name} = numpyro.sample("{name}", dist.{family})'


def noncentered_statement(site: Site, loc: str, scale: str) -> str:
    """The statement of a site with its location and scale taken out of its distribution."""
    if site.shape_parameters == ():
        made = "" if loc == "0.0" else f"{loc} + "
        noise = f'numpyro.sample("{site.name}_noise", dist.{site.distribution}(0.0, 1.0))'
        return f"{site.name} = {made}{_factor(scale)} * {noise}"
    if site.distribution in POSITIVE_FAMILIES:
        noise = f'numpyro.sample("{site.name}_noise", dist.{site.distribution}(1.0))'
        return f"{site.name} = {_factor(scale)} * {noise}"
    return ""


def _number(value: object) -> str | None:
    array = np.asarray(value)
    if array.size != 1 and not (array.size and (array == array.flat[0]).all()):
        return None
    return f"{array.flat[0]:g}"


def _zero(node: Node) -> bool:
    while node.op in SILENT:
        node = node.inputs[0]
    return node.op == "constant" and not np.any(np.asarray(node.value))


def _closed(text: str) -> str:
    return f"({text})" if " " in text else text


def _factor(text: str) -> str:
    return f"({text})" if " + " in text or " - " in text else text
