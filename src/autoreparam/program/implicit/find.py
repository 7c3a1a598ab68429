"""Finds the latents of a traced model that were non-centered by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autoreparam.program.dependence import Names
from autoreparam.program.graph import Graph, Node
from autoreparam.program.implicit.facts import Facts
from autoreparam.program.implicit.loop import Loop, enter_loop
from autoreparam.program.implicit.walk import DIFFERS, Form, Walk


@dataclass(frozen=True)
class Noise:
    """A latent whose own location and scale are constant, and what its family allows."""

    name: str
    size: int
    positive: bool = False
    coupled: bool = False
    normal: bool = True


@dataclass(frozen=True, eq=False)
class Traced:
    """A traced model: what its distributions are made of, and its deterministics, as nodes."""

    graph: Graph
    facts: Facts
    latents: Mapping[str, Node]
    parameters: Sequence[Node]
    deterministics: Mapping[str, Node]


@dataclass(frozen=True, eq=False)
class Found:
    """A form, the deterministic that names it, or the reason why there is none."""

    form: Form | None
    through: str = ""
    reason: str = ""
    alike: bool = False  # the noise meets other latents, so the reason is worth telling


def find(traced: Traced, noises: Iterable[Noise], parents: Mapping[str, Names]) -> dict[str, Found]:
    """What became of each noise, by name.

    `parents` are the latents that the distribution of each latent depends on. Among noises that
    could each be given the other as a location, the larger, the scaled, the later one gets it.
    """
    used = _users(traced.parameters)
    shown = [*traced.parameters, *traced.deterministics.values()]
    kinds = [(nodes, _users(nodes)) for nodes in (traced.parameters, shown)]
    order = {name: i for i, name in enumerate(traced.latents)}
    walks: dict[str, tuple[list[Form], str]] = {}
    only_shown: set[str] = set()
    rank: dict[str, tuple[int, bool, int]] = {}
    for noise in noises:
        # What is only shown, by a deterministic, is a funnel without data if it is anything.
        number = traced.latents[noise.name].number
        shown_only = number not in used and all(number != n.number for n in traced.parameters)
        nodes, users = kinds[shown_only]
        if shown_only:
            only_shown.add(noise.name)
        walk = Walk(
            traced.graph,
            traced.facts,
            users,
            frozenset(node.number for node in nodes),
            noise.positive,
            noise.coupled,
            noise.normal,
            frozenset(order) - {noise.name},
            enter_loop,
        )
        reason = walk.follow(traced.latents[noise.name])
        walks[noise.name] = walk.forms, reason
        rank[noise.name] = (noise.size, _scaled(walk.forms[-1]), order[noise.name])
    needs = {name: set(above) for name, above in parents.items()}
    found = {}
    for name in sorted(walks, key=rank.__getitem__, reverse=True):
        forms, reason = walks[name]
        usable = list(forms)
        while _circular(name, usable[-1].names, needs):  # the longer the form, the more it needs
            usable.pop()
        if len(usable) < len(forms) and not usable[-1].names:
            reason = "what it is combined with depends on it in turn"
        sizes = {other: traced.latents[other].size for other in order}
        chosen, through = _choose(usable, traced.deterministics, sizes)
        if chosen is None or (name in only_shown and not _scaled(chosen)):
            if not reason and forms[-1].names:
                reason = "the latents it is added to are not fewer than its own elements"
            reason = reason or "what becomes of it has a constant location and scale"
            meets = used.get(forms[-1].node.number, [])
            alike = any(node.names - {name} for node in meets) and reason != DIFFERS
            found[name] = Found(None, "", reason, alike)
        else:
            needs[name] = needs[name] | chosen.names
            found[name] = Found(chosen, through)
    return {name: found[name] for name in walks}


def _users(ends: Iterable[Node]) -> dict[int, list[Node]]:
    """The nodes that use each node, among those that the given ones depend on."""
    users: dict[int, list[Node]] = {}
    seen: set[int] = set()
    waiting = list(ends)
    while waiting:
        node = waiting.pop()
        if node.number in seen:
            continue
        seen.add(node.number)
        for before in dict.fromkeys(node.inputs):
            users.setdefault(before.number, []).append(node)
        waiting += node.inputs
    return users


def _scaled(form: Form) -> bool:
    return bool(form.gain and form.gain.names) or form.coupling is not None


def _circular(name: str, above: Names, needs: Mapping[str, set[str]]) -> bool:
    """Whether a latent would be needed for itself."""
    waiting, seen = list(above), set(above)
    while waiting:
        for other in needs.get(waiting.pop(), ()):
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return name in seen


def _choose(
    forms: Sequence[Form], names: Mapping[str, Node], sizes: Mapping[str, int]
) -> tuple[Form | None, str]:
    """The form to sample in, and the deterministic that it is.

    It is the last one, but not beyond a deterministic that has a location, or has all that follows.
    """
    usable = [form for form in forms if _hierarchical(form, sizes)]
    if not usable:
        return None, ""
    for form in reversed(usable):
        through = next((name for name, node in names.items() if _is(node, form)), "")
        complete = form.offset is not None or usable[-1].offset is None
        if through and complete:
            return form, through
    return usable[-1], ""


def _is(node: Node, form: Form) -> bool:
    """Whether a node is what has become of the noise, element by element."""
    if isinstance(form.coupling, Loop):
        return (
            node.op == "part"
            and node.inputs[0] is form.node
            and (node.value in form.coupling.series)
        )
    return node is form.node and node.shape == form.noise.shape


def _hierarchical(form: Form, sizes: Mapping[str, int]) -> bool:
    """Whether location or scale depend on other latents, as those of a group on its hyperpriors.

    Where only the location does, these must be fewer: a sum of two alike is no hierarchy.
    """
    if _scaled(form) and form.names:
        return True
    return bool(form.names) and all(sizes[name] < form.noise.size for name in form.names)
