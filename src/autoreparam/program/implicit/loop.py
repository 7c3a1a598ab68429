"""Noise that enters a loop: each step makes `x_t = a(x_(t-1), ...) + b(x_(t-1), ...) * noise_t`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from autoreparam.program.dependence import Names, scan_inputs
from autoreparam.program.graph import Graph, Node, evaluate
from autoreparam.program.implicit.facts import Facts
from autoreparam.program.implicit.walk import Form, Stop, Walk


@dataclass(frozen=True, eq=False)
class Loop:
    """One step of the loop, and the nodes outside it that the step is computed from."""

    form: Form  # of the noise of one step, in the step's own graph
    outside: Mapping[int, Node]  # what enters the loop, by its place
    own: int | None  # the place of the value of the step before
    carried: Mapping[int, Node]  # the other values that are handed on, and what they become
    stacked: frozenset[int]  # the places of what has one entry per step
    series: frozenset[int]  # the outputs of the loop that are the form of every step
    length: int
    scan: Node
    first: int  # the place of the first value that is handed on

    @property
    def names(self) -> Names:
        """The latents that the steps depend on."""
        return frozenset().union(*(node.names for node in self.outside.values()))

    def steps(self, values: Mapping[int, Any]) -> tuple[dict[int, Any], dict[int, Any]]:
        """What all steps share, and what each has of its own, from the values at each place."""
        shared = {
            place: value
            for place, value in values.items()
            if place not in self.stacked and place not in self.carried and place != self.own
        }
        each = {place: values[place] for place in self.stacked if place in values}
        if self.carried:
            places = sorted(self.carried)

            def step(carry, here):
                given = {**shared, **here, **dict(zip(places, carry))}
                return tuple(self.at(given, [self.carried[p] for p in places])), carry

            init = tuple(values[place] for place in places)
            _, before = jax.lax.scan(step, init, each, length=self.length)
            each |= dict(zip(places, before))
        return shared, each

    def handed_on(self, step: Node, own: Sequence[Node]) -> dict[int, int] | None:
        """Which of the values that a loop hands on, in the end, is at which place; the first is 0.

        NumPyro's loop counts its steps besides; it is another loop if the count is not made here.
        """
        if not step.inputs or step.inputs[0] is not self.scan:
            return None
        made_here = [i for i, node in enumerate(own) if node.inputs == step.inputs]
        return {self.first + own[i].value: i for i in made_here}

    def at(self, given: Mapping[int, Any], nodes: Sequence[Node]) -> list[Any]:
        """The values of nodes of a step, from those at each place."""
        return evaluate(nodes, {("latent", str(place)): x for place, x in given.items()})

    def becomes(self, given: Mapping[int, Any], loc: Any, scale: Any) -> tuple[Any, Any]:
        """Location and scale of `a + b * noise` at one step, from those of the noise.

        These are None where they are 0 and 1: what a loop need not read is cheaper.
        """
        form, noise = self.form, self.form.noise
        a, b = jnp.zeros((), noise.dtype), jnp.ones((), noise.dtype)
        if form.offset is not None:
            a = self.at(given, [form.offset])[0]
        if form.gain is not None:
            b = self.at(given, [form.gain])[0]
        loc = a if loc is None else a + b * loc
        size = -b if form.negative else b
        scale = size if scale is None else size * scale
        return jnp.broadcast_to(loc, noise.shape), jnp.broadcast_to(scale, noise.shape)


def enter_loop(walk: Walk, form: Form, node: Node) -> Loop:
    """The loop that noise enters as something of which each step sees its own entry."""
    params = node.params
    body, (first, carries) = params["jaxpr"], scan_inputs(params["equation"])
    if params["reverse"]:
        raise Stop("it is used in a loop that runs backward")
    entry = node.inputs.index(form.node)
    if entry < first + carries:
        raise Stop("every step of a loop depends on all of it")
    graph = Graph()
    sources = [graph.source("latent", str(i), v.aval) for i, v in enumerate(body.jaxpr.invars)]
    outputs = graph.read(body.jaxpr, body.consts, sources)
    signs = {
        sources[i].number: walk.facts.sign(outer)
        for i, outer in enumerate(node.inputs)
        if i < first or i >= first + carries
    }
    own_forms = _walk(graph, Facts({}, signs), sources[entry], outputs)
    tainted = _tainted(outputs[:carries], {str(entry)}, first)
    for inner in reversed(own_forms):
        loop = _loop(node, inner, outputs, first, carries, tainted, entry)
        changed = inner.gain is not None or inner.offset is not None
        if loop is not None and changed and loop.names <= walk.free:
            return loop
    raise Stop("the steps of a loop depend on more of its past than the value before")


def _walk(graph: Graph, facts: Facts, noise: Node, outputs: Sequence[Node]) -> list[Form]:
    users: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for before in dict.fromkeys(node.inputs):
            users.setdefault(before.number, []).append(node)
    needed = _needed(outputs)
    users = {n: [u for u in found if u.number in needed] for n, found in users.items()}
    names = frozenset(node.value for node in graph.nodes if node.op == "latent")
    ends = frozenset(node.number for node in outputs)
    walk = Walk(graph, facts, users, ends, free=names - {noise.value})
    walk.follow(noise)
    return [form for form in walk.forms if not form.layout and form.coupling is None]


def _needed(outputs: Sequence[Node]) -> set[int]:
    needed: set[int] = set()
    waiting = list(outputs)
    while waiting:
        node = waiting.pop()
        if node.number not in needed:
            needed.add(node.number)
            waiting += node.inputs
    return needed


def _tainted(carried: Sequence[Node], names: set[str], first: int) -> set[int]:
    """Which of the values handed on depend, sooner or later, on the noise."""
    tainted: set[int] = set()
    while True:
        reached = names | {str(first + i) for i in tainted}
        more = {i for i, node in enumerate(carried) if node.names & reached}
        if more <= tainted:
            return tainted
        tainted |= more


def _loop(
    node: Node,
    form: Form,
    outputs: Sequence[Node],
    first: int,
    carries: int,
    tainted: set[int],
    entry: int,
) -> Loop | None:
    """The loop with this form of a step's noise; None where it depends on too much."""
    if form.moves:
        return None
    own = next((i for i in range(carries) if outputs[i] is form.node), None)
    needed = {int(name) for name in form.names}
    used = {i - first for i in needed if first <= i < first + carries}
    if used & tainted - {own}:
        return None
    carried: dict[int, Node] = {}
    waiting = list(used - tainted)
    while waiting:  # what is handed on may depend on other things that are
        i = waiting.pop()
        if first + i in carried:
            continue
        carried[first + i] = outputs[i]
        more = {int(name) for name in outputs[i].names}
        needed |= more | {first + i}
        waiting += [j - first for j in more if first <= j < first + carries]
    own_place = first + own if own is not None and first + own in needed else None
    stacked = frozenset(i for i in needed if i >= first + carries)
    series = frozenset(
        i for i, output in enumerate(outputs) if i >= carries and output is form.node
    )
    outside = {i: node.inputs[i] for i in sorted(needed)}
    length = node.params["length"]
    return Loop(form, outside, own_place, carried, stacked, series, length, node, first)
