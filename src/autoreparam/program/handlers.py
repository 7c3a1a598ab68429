"""A model rewritten in a parameterization, for any NumPyro tool: `reparameterize`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.handlers import condition, do, replay, substitute
from numpyro.infer import initialization
from numpyro.primitives import _PYRO_STACK, Messenger

from autoreparam.errors import ModelError, ParameterizationError, known
from autoreparam.program.by_hand import ByHand
from autoreparam.program.centering import Centering
from autoreparam.program.families import Unsupported, standardize, unwrap
from autoreparam.program.held import loose
from autoreparam.program.loops import enter_steps, is_scan, steps
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.target import Target
from autoreparam.program.trace import inspect
from autoreparam.program.working import WorkingDistribution, per_element, site_map


def working_name(name: str) -> str:
    """The name under which a rewritten site's working coordinates are sampled."""
    return f"{name}_working"


def reparameterize(
    model: Callable, parameterization: Parameterization, *, implicit: bool = True
) -> Reparameterized:
    """An ordinary NumPyro model with the same posterior, in working coordinates.

    Each site of the parameterization is sampled as `<name>_working`, and becomes a deterministic
    under its own name and shape. Use it with any NumPyro tool. `implicit` is that of `inspect`.

    >>> m2 = ar.reparameterize(model, fit.parameterization)
    >>> mcmc = MCMC(NUTS(m2), num_warmup=500, num_samples=1000)

    Args:
        model: The NumPyro model, a function.
        parameterization: λ of the sites to rewrite.
        implicit: Whether sites that were non-centered by hand are recognized.
    """
    if not callable(model):
        raise ModelError(f"expected a NumPyro model, a callable; found {type(model).__name__}")
    if not isinstance(parameterization, Parameterization):
        raise ParameterizationError(
            f"expected a Parameterization, found {type(parameterization).__name__}; make one with "
            "Parameterization.noncentered(inspect(model, args, kwargs))"
        )
    # A grip varies with latents that the model may sample after the site.
    return Reparameterized(model, loose(parameterization), implicit)


class Reparameterized:
    """A model that samples its sites in working coordinates; call it like the original."""

    def __init__(self, model: Callable, parameterization: Parameterization, implicit: bool = True):
        update_wrapper(self, model, updated=())
        self.model = model
        self.parameterization = parameterization
        self.implicit = implicit

    def __call__(self, *args, **kwargs):
        """Runs the model with its sites in working coordinates."""
        sites, by_hand = self.parameterization.sites, ByHand()
        if self.implicit and sites:
            by_hand = ByHand.of(self.model, args, kwargs, sites)
        rewrite = Rewrite(self.parameterization, by_hand)
        with rewrite:
            result = self.model(*args, **kwargs)
        unseen = [name for name in self.parameterization.sites if name not in rewrite.seen]
        if unseen:
            raise ParameterizationError(
                f"the model has no latent site {known(unseen)} that could be reparameterized; it "
                f"sampled {known(rewrite.sampled)}. Was the parameterization made for another "
                "model?"
            )
        return result

    def initial_values(self, values: Mapping[str, Any], args: tuple = (), kwargs=None) -> dict:
        """Values under original names, mapped to the sites of this model for `init_to_value`.

        A reparameterized site needs the values of the sites its distribution depends on.
        """
        lam = self.parameterization
        program = inspect(self.model, args, kwargs, sites=lam.sites, implicit=self.implicit)
        latents = {site.name: site for site in program.latents}
        for name in values:
            if name not in latents:
                raise ModelError(
                    f"'{name}' is not a latent site of the model; it has {known(latents)}"
                )
            needed = latents[name].parents if latents[name].candidate else ()
            for parent in needed:
                if parent not in values:
                    raise ModelError(
                        f"an initial value for '{name}' needs one for '{parent}' too, since its "
                        "distribution depends on it"
                    )
        filled = dict(values)
        for site in program.latents:  # the other sites need values only to run the model
            if site.name not in filled:
                filled[site.name] = jnp.full(site.shape, 0.5)
        target = Target(program)
        working = target.unflatten(target.from_sites(filled, lam.check(program)))
        return {
            working_name(name) if name in lam else name: (
                working[name] if name in lam else jnp.asarray(value)
            )
            for name, value in values.items()
        }


class Rewrite(Messenger):
    """The handler behind `reparameterize`: `v ~ D` becomes `w ~ working D`, `v = f(w)`."""

    sequential = False

    def __init__(self, parameterization: Parameterization, by_hand: ByHand):
        super().__init__()
        self.lam, self.by_hand = parameterization, by_hand
        self.seen: set[str] = set()
        self.sampled: list[str] = []
        self.values: dict[str, Any] = {}
        self.loops = 0

    def process_message(self, msg) -> None:
        """Samples the working coordinates and turns the site into a deterministic of them."""
        if msg["type"] == "control_flow":
            self._enter(msg)
        if msg["type"] != "sample" or msg.get("_control_flow_done"):
            return
        name = msg["name"]
        if not msg["is_observed"]:
            self.sampled.append(name)
        if name not in self.lam:
            return
        self.seen.add(name)
        if msg["is_observed"] or msg["value"] is not None:
            return  # conditioned or substituted inside the model: there is nothing to move
        self._refuse_outside_value(msg)
        fn = msg["fn"].expand(msg["kwargs"].get("sample_shape", ()) + msg["fn"].batch_shape)
        mask = unwrap(fn)[1]
        rule = self._standardize(name, fn)
        lam = self._lam(name, rule.transform.inverse_shape(fn.shape()))
        _replace(msg, self._sample(name, fn, rule, lam, mask, msg["infer"]))

    def postprocess_message(self, msg) -> None:
        """Keeps the values that others may have been made of by hand."""
        if msg["type"] in ("sample", "deterministic"):
            self.values[msg["name"]] = msg["value"]

    def _enter(self, msg) -> None:
        """Rewrites the sites of a loop; those made by hand are sampled before it, all at once."""
        made = [name for name in self.lam if self.by_hand.loops.get(name) == self.loops]
        self.loops += 1
        if not is_scan(msg):
            return
        for name in self.by_hand.in_order(made):
            self.seen.add(name)
            fn = self.by_hand.implied[name].prior()
            rule = self.by_hand.rule(name, fn, self.values)
            self.values[name] = self._sample(name, fn, rule, self.lam.of(name), None, {})
        series = (jnp.arange(steps(msg)), {name: self.values[name] for name in made})
        enter_steps(msg, series, partial(_RewriteStep, self, steps(msg)))

    def _sample(self, name: str, fn, rule, lam: Centering, mask: Any, infer: dict) -> Any:
        """Samples the working coordinates of a site, and returns its value."""
        map_ = site_map(rule, lam, mask)
        shape = jnp.shape(lam.loc)
        moved = WorkingDistribution(map_, shape)
        masked = moved if mask is None else moved.mask(jnp.broadcast_to(mask, shape))
        with _Spy() as spy:
            working = numpyro.sample(working_name(name), masked.to_event(fn.event_dim), infer=infer)
        point = map_.point(working)
        _correct(name, spy.message, jnp.broadcast_to(map_.log_det(point), shape), fn)
        return map_.value(point)

    def _standardize(self, name: str, fn):
        if name in self.by_hand.implied:
            return self.by_hand.rule(name, fn, self.values)
        try:
            rule = standardize(fn, sequential=self.sequential)
        except Unsupported as reason:
            raise ParameterizationError(
                f"site '{name}' cannot be reparameterized: {reason}. Leave it out of the "
                "parameterization, or register a rule for it."
            ) from None
        return rule

    def _lam(self, name: str, shape: tuple[int, ...]) -> Centering:
        """λ of a site whose unconstrained value has the given shape."""
        if jnp.shape(self.lam[name]) != shape:
            raise ParameterizationError(
                f"site '{name}': λ has shape {jnp.shape(self.lam[name])}, the site's value has "
                f"shape {shape}. Was the parameterization made for other data?"
            )
        return self.lam.of(name)

    def _refuse_outside_value(self, msg) -> None:
        """Raises if an outer handler sets the site: it would be ignored, or break the density."""
        name = msg["name"]
        for handler in _PYRO_STACK[: _PYRO_STACK.index(self)]:
            if _gives(handler, msg, name) and not _gives(handler, msg, working_name(name)):
                raise ParameterizationError(
                    f"site '{name}' is reparameterized, so its value cannot be set from outside. "
                    "Condition the model first and reparameterize the result, or pass values "
                    f"mapped by initial_values({{'{name}': ...}})."
                )


class _RewriteStep(Rewrite):
    """The same inside one step of a `scan`: λ is the step's own."""

    sequential = True

    def __init__(self, outer: Rewrite, length: int, here: Any):
        super().__init__(outer.lam, ByHand())
        self.outer, self.length = outer, length
        self.step, self.given = here
        self.seen, self.sampled = outer.seen, outer.sampled

    def process_message(self, msg) -> None:
        """Rewrites a site of this step, or gives it the value it has from outside the loop."""
        if msg["type"] == "sample" and msg["name"] in self.given:
            _replace(msg, self.given[msg["name"]])
        else:
            super().process_message(msg)

    def _lam(self, name: str, shape: tuple[int, ...]) -> Centering:
        if jnp.shape(self.lam[name]) != (self.length, *shape):
            raise ParameterizationError(
                f"site '{name}': λ has shape {jnp.shape(self.lam[name])}, the site's values have "
                f"shape {(self.length, *shape)}. Was the parameterization made for other data?"
            )
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[self.step], self.lam.of(name).spread())

    def _refuse_outside_value(self, msg) -> None:
        self.outer._refuse_outside_value(msg)


def _replace(msg: dict, value: Any) -> None:
    """Turns the message of a site into that of a deterministic."""
    msg["type"], msg["value"] = "deterministic", value
    for key in set(msg) - {"type", "name", "value", "cond_indep_stack"}:
        del msg[key]


class _Spy(Messenger):
    """Keeps the last sample message as the handlers left it."""

    message: dict

    def __enter__(self):
        super().__enter__()
        return self

    def postprocess_message(self, msg) -> None:
        if msg["type"] == "sample":
            self.message = msg


class _Jacobian(dist.Unit):
    """A term of the log density that masks leave alone."""

    def mask(self, mask):
        """Itself: a Jacobian belongs to the coordinates, not to the masked density."""
        return self


def _correct(name: str, message: dict, log_det, fn) -> None:
    """Restores the Jacobian where scale or mask handlers have changed it with the density."""
    scale, mask = message["scale"], unwrap(message["fn"])[1]
    if scale is None and mask is None:
        return
    weight: Any = 1.0 if scale is None else scale
    got = per_element(weight, fn.event_dim) * log_det
    got = got if mask is None else jnp.where(mask, got, 0.0)
    missing = jnp.sum(log_det - got, axis=tuple(range(-fn.event_dim, 0)))
    unit = _Jacobian(missing / weight)  # the scale handlers will multiply it again
    numpyro.sample(f"{name}_jacobian", unit, obs=jnp.zeros((*missing.shape, 0)))


def _gives(handler: Messenger, msg: dict, name: str) -> bool:
    """Whether a handler would set the value of a site like this one under the given name."""
    if isinstance(handler, replay):
        return name in handler.trace and handler.trace[name]["type"] == "sample"
    if isinstance(handler, do):
        return name in handler.data
    if not isinstance(handler, condition | substitute):
        return False
    if handler.data is not None:
        return name in handler.data
    choose = getattr(handler, "substitute_fn", None) or getattr(handler, "condition_fn", None)
    if isinstance(choose, partial):  # init_to_value(values=...)
        return name in (choose.keywords.get("values") or {})
    if choose is None or choose.__module__ == initialization.__name__:
        return False  # the other strategies give every site a value
    try:
        return choose({**msg, "name": name}) is not None
    except Exception:  # it cannot be asked out of turn; in its turn it will raise its own error
        return False
