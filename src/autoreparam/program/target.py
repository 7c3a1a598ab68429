"""The log density over a flat working vector, with λ as an argument, and the maps around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from autoreparam.program.alike import computed_once, sum_computed_once
from autoreparam.program.at_values import AtValues
from autoreparam.program.effort import numbers_given
from autoreparam.program.flat import Part, stretched
from autoreparam.program.held import held
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.pointwise import in_all, inseparable, per_observation
from autoreparam.program.trace import Program
from autoreparam.program.visit import AtWorking
from autoreparam.program.working import site_map


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Target:
    """A program's log density in working coordinates: `position` is flat, `lam` an argument.

    A pytree whose leaves are the data: a function compiled with a target as its argument serves
    every λ and every data set of the same shapes.
    """

    program: Program

    @property
    def size(self) -> int:
        """Length of the flat working vector."""
        return sum(site.size for site in self.program.latents)

    # -- density ------------------------------------------------------------------------------

    @sum_computed_once
    def logdensity(self, position: Array, lam: Parameterization) -> list[Array]:
        """`log p(z, x) + log |dz / d working|` at a working position, as the sum of its terms."""
        return AtWorking(self.program, self.unflatten(position), lam).summands()

    def work(self, lam: Parameterization) -> int:
        """How many numbers the operations of the density give: a measure of what it costs."""
        position = np.zeros(self.size, self.program.dtype)
        return numbers_given(jax.make_jaxpr(Target.logdensity)(self, position, lam).jaxpr)

    def log_joint(self, values: Mapping[str, Array]) -> Array:
        """`log p(z, x)` at the model's own values, without any Jacobian."""
        return AtValues(self.program, values, None).total()

    def log_determinant(self, position: Array, lam: Parameterization) -> Array:
        """`log |dz / d working|`: what `logdensity` adds to the model's own log joint."""
        return self.map_back(position, lam)[1]

    def observed(self) -> dict[str, Array]:
        """The values of the observed sites."""
        visit = AtWorking(self.program, self.unflatten(jnp.zeros(self.size)), self._plain())
        visit.run()
        return visit.observed

    def log_likelihood(self, position: Array, lam: Parameterization) -> dict[str, Array]:
        """The log density of every element of the observed sites, where observations have one.

        Discrete latents are summed out.
        """
        visit = AtWorking(self.program, self.unflatten(position), lam)
        visit.run()
        lost, sites = inseparable(self.program.sites), self.program.structure.by_name
        found = {name: own for name, own in visit.likelihoods.items() if name not in lost}
        summed = [sites[name] for name in found if sites[name].discrete_parents]
        if summed:
            place = partial(AtWorking, self.program, self.unflatten(position), lam)
            found |= per_observation(place, summed)
        return found

    def total_log_likelihood(self, position: Array, lam: Parameterization) -> Array:
        """The log density of all data together, with discrete latents summed out."""
        return in_all(partial(AtWorking, self.program, self.unflatten(position), lam))

    def _plain(self) -> Parameterization:
        return Parameterization(
            {s.name: np.ones(s.unconstrained_shape) for s in self.program.candidates}
        )

    # -- coordinates --------------------------------------------------------------------------

    def to_sites(self, position: Array, lam: Parameterization) -> dict[str, Array]:
        """Every latent and deterministic under its own name, in the model's own space."""
        return self.map_back(position, lam)[0]

    @computed_once
    def map_back(self, position: Array, lam: Parameterization) -> tuple[dict[str, Array], Array]:
        """The results of `to_sites` and `log_determinant` from a single run of the model."""
        visit = AtWorking(self.program, self.unflatten(position), lam)
        visit.run()
        log_dets = [jnp.sum(log_det) for log_det in visit.log_dets.values()]
        log_dets += [visit.shift.log_det] if visit.shift is not None else []
        return visit.values, jnp.sum(jnp.stack(log_dets))

    def from_sites(self, values: Mapping[str, Any], lam: Parameterization) -> Array:
        """The working position of the latents' values; other names are ignored."""
        visit = AtValues(self.program, values, lam)
        visit.run()
        position = self.flatten(visit.working)
        return (
            position if lam.flat is None else self.translate(position, lam.with_flat(None), lam)[0]
        )

    def carry(
        self, position: Array, score: Array, lam: Parameterization, new_lam: Parameterization
    ) -> tuple[Array, Array, Array]:
        """Position and score in the coordinates of `new_lam`, and the change of the log density.

        `score` is the gradient of `logdensity` at `position`. Only the locations and scales of the
        candidate sites are evaluated, not the likelihood and no new gradient of the target.
        """
        new_position, log_det = self.translate(position, lam, new_lam)

        def back(new_position: Array) -> Array:
            old, gain = self.translate(new_position, new_lam, lam)
            return jnp.vdot(score, old) + gain

        return new_position, jax.grad(back)(new_position), -log_det

    @computed_once
    def translate(self, position, lam, new_lam) -> tuple[Array, Array]:
        """The same point in the coordinates of `new_lam`, and `log |d new / d old|`."""
        visit = AtWorking(self.program, self.unflatten(position), lam)
        visit.run()
        moved, log_dets = dict(visit.working), [jnp.zeros((), position.dtype)]
        if visit.shift is not None:  # leaders without a λ are where the shift has taken them
            own = {site.name for site in self.program.candidates}
            moved |= {name: visit.values[name] for name in lam.flat.leads if name not in own}
        new_lam = held(new_lam, self.program, moved)
        maps = {
            name: (site_map(old.rule, new_lam.of(name), old.mask), point._replace(light=None))
            for name, (old, point) in visit.maps.items()
        }
        if visit.shift is not None:
            log_dets.append(visit.shift.log_det)
        moved |= {name: new.working(point) for name, (new, point) in maps.items()}
        if (flat := new_lam.flat) is not None:
            parts = {name: Part.of(*maps[name]) for name in flat.leads if name in maps}
            shift = stretched(flat, {**visit.parts(flat.leads), **parts}, back=True)
            moved |= {name: visit.values[name] + own for name, own in shift.free.items()}
            before = AtWorking(self.program, moved, new_lam.with_flat(None))
            before.shift = shift._replace(free={})
            before.run()
            maps |= {name: before.maps[name] for name in parts}
            moved |= {name: new.working(point) for name, (new, point) in maps.items()}
            log_dets.append(shift.log_det)
        for name, (new, point) in maps.items():
            old, there = visit.maps[name]
            stretch = new.log_stretch(point) - old.log_stretch(there)
            log_dets.append(jnp.sum(jnp.broadcast_to(stretch, jnp.shape(point.noise))))
        lent = flat.lent(moved, new_lam) if flat is not None else {}
        moved |= {name: moved[name] + own for name, own in lent.items()}
        return self.flatten(moved), jnp.sum(jnp.stack(log_dets))

    def log_scales(self, position: Array, lam: Parameterization) -> dict[str, Array]:
        """`log |du / de|` of the elements of each candidate: their scales before constraints."""
        visit = AtWorking(self.program, self.unflatten(position), lam)
        visit.run()
        return visit.log_scales(visit.maps)

    # -- layout -------------------------------------------------------------------------------

    def flatten(self, working: Mapping[str, Array]) -> Array:
        """One flat vector from an array per latent, in the order of the model."""
        parts = [jnp.ravel(working[site.name]) for site in self.program.latents]
        return jnp.concatenate(parts).astype(self.program.dtype)

    def unflatten(self, position: Array) -> dict[str, Array]:
        """The inverse of `flatten`."""
        latents = self.program.latents
        # The transpose of `split` is one concatenation; slices would pad and add once per site.
        parts = jax.lax.split(position, [site.size for site in latents])
        return {
            site.name: part.reshape(site.unconstrained_shape) for site, part in zip(latents, parts)
        }
