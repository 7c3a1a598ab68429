"""Single or double precision for one run, without touching the settings of the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from autoreparam.errors import SamplingError
from autoreparam.mcmc.engine import Engine
from autoreparam.mcmc.state import RunState
from autoreparam.program.numbers import WideIntegerError
from autoreparam.program.program import Program
from autoreparam.run.session import Session

TINY = 1e-6  # a step so small that energy is kept exactly, but for rounding
FACTORED = 10  # rows of a matrix whose factors single precision may spoil
LOOKS = 4  # transitions per chain of that size
ROUGH = 0.9  # mean acceptance of them below which rounding decides what is accepted
COARSE = 0.5  # distance of neighboring log densities from which differences are rounded away

STAYS_SINGLE = (
    "Rounding errors of the log density are large in single precision, so that steps get short and "
    "proposals are rejected at random. Use precision='double', or take large constants out of the "
    "model."
)


@contextmanager
def in_precision(precision: str) -> Iterator[None]:
    """A block in which JAX computes in this precision; "auto" leaves it as it is."""
    if precision == "auto":
        yield
        return
    with jax.enable_x64(precision == "double"):
        yield


def is_single() -> bool:
    """Whether JAX computes in single precision here."""
    return jnp.result_type(float) == jnp.float32


def on_cpu() -> bool:
    """Whether runs are made on a CPU, where double precision costs little."""
    return jax.default_backend() == "cpu"


def rough(engine: Engine, state: RunState) -> tuple[bool, int]:
    """Whether rounding errors of the log density would hurt, and the gradients paid to know.

    Steps of hardly any length keep their energy, so that what they lose is rounding. The compiled
    chunk makes them; nothing else has to be compiled. A large constant is not seen that way: it
    rounds every log density nearby to the same number.
    """
    still = {"step_size": TINY, "num_steps": 1.0, "length": 0.0, "jitter": 0.0}
    probe = engine.fresh(engine.tuned(state, [still] * len(state.slots)), active=False)
    trail = engine.draw(probe, LOOKS)
    rates = np.asarray(trail.info.acceptance_rate)[..., : len(state.slots)]
    paid = int(np.sum(trail.info.n_steps, dtype=np.int64))
    coarse = np.median(np.spacing(np.abs(state.chains.logdensity))) > COARSE
    return bool(coarse or np.mean(np.nan_to_num(rates)) < ROUGH), paid


def begin_precisely(
    look: Callable[[], Program],
    begin: Callable[[Program], Session],
    precision: str,
    stack: ExitStack,
) -> Session:
    """The session that `begin` gives, in double precision where "auto" finds single too rough.

    Double precision then lasts as long as the stack, and the model is looked at anew. On an
    accelerator, where it is slow, there is a warning instead.
    """
    if precision != "auto" or not is_single():
        return begin(look())
    if not on_cpu():
        program = look()
        session, noisy = _checked(begin, program)
        if noisy or _factorizes_much(program):
            notes = (*session.state.notes, STAYS_SINGLE)
            session.state = replace(session.state, notes=notes)
        return session
    with suppress(SamplingError, WideIntegerError):  # in double precision there may be none
        program = look()
        if not _factorizes_much(program):
            session, noisy = _checked(begin, program)
            if not noisy:
                return session
            session.close()
            del session  # what it compiled holds the model's arrays in single precision
        del program
    stack.enter_context(jax.enable_x64(True))
    return begin(look())


def _checked(begin: Callable[[Program], Session], program: Program) -> tuple[Session, bool]:
    """The session, and whether rounding errors would hurt it."""
    session = begin(program)
    noisy, paid = rough(session.engine, session.state)
    ledger = session.state.gradients.plus("warmup", paid)
    session.state = replace(session.state, gradients=ledger)
    return session, noisy


def _factorizes_much(program: Program) -> bool:
    return any(site.side >= FACTORED for site in program.candidates)
