"""How programs are compiled: on a CPU, most of a short run is waiting for the compiler."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property, update_wrapper
from typing import Any

import jax
import jax.numpy as jnp
from jax.lib import __version__ as jaxlib_version

# Parts that are compiled apart repeat each other.
TO_RUN_ON_MUCH = (("xla_cpu_parallel_codegen_split_count", 1),)
# XLA's newer way to fuse loops takes up to twice the time to compile. What many numbers go through
# gains a tenth to a half of its time, and a gradient that is mostly overhead hardly anything.
TO_RUN_OFTEN = (("xla_cpu_use_fusion_emitters", False), *TO_RUN_ON_MUCH)
# Four fifths of the time to compile; loops over thousands of numbers would take a fifth longer.
TO_RUN_ON_LITTLE = (*TO_RUN_OFTEN, ("xla_backend_optimization_level", 2))
# A third of the time to compile, half the speed: for what is called a few times per run.
TO_RUN_RARELY = (
    *TO_RUN_OFTEN,
    ("xla_backend_optimization_level", 0),
    ("xla_llvm_disable_expensive_passes", True),
)

ON_CPU = (*TO_RUN_ON_LITTLE, *TO_RUN_RARELY)  # every option, some with several values

SHARES_OUT, MENDED = (0, 10), (0, 11, 2)  # releases of jaxlib

# Kernels of a graph that do not wait for each other run side by side.
ON_GPU = (("xla_gpu_command_buffer_scheduling_mode", "CONCURRENT"),)


class Compiled:
    """A function as `jax.jit` compiles it, with options where the backend knows them.

    >>> @often
    ... def program(x):
    ...     return 2 * x
    """

    def __init__(self, function: Callable, options: tuple[tuple[str, Any], ...], **keywords: Any):
        self._function, self._options, self._keywords = function, options, keywords
        update_wrapper(self, function)

    @cached_property
    def _program(self) -> Any:
        # Chosen at the first call: to ask for the backend settles it, and importing must not.
        options = dict(_taken(self._options))
        return jax.jit(self._function, compiler_options=options or None, **self._keywords)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result, compiled first for new shapes."""
        return self._program(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """What `jax.jit` gives by this name."""
        return self._program.lower(*args, **kwargs)

    def shapes(self, *args: Any, **kwargs: Any) -> Any:
        """The shapes of the result, found without compiling."""
        return self._program.eval_shape(*args, **kwargs)

    def programs(self) -> int:
        """How many programs have been compiled: one per shape."""
        return self._program._cache_size()


def often(function: Callable, **keywords: Any) -> Compiled:
    """A program of which most of a long run consists."""
    return Compiled(function, TO_RUN_OFTEN, **keywords)


def on_much(function: Callable, **keywords: Any) -> Compiled:
    """The same where it works on so many numbers that they are worth a longer wait."""
    return Compiled(function, TO_RUN_ON_MUCH, **keywords)


def on_little(function: Callable, **keywords: Any) -> Compiled:
    """The same where it works on so few numbers that the rest takes longer."""
    return Compiled(function, TO_RUN_ON_LITTLE, **keywords)


def rarely(function: Callable, **keywords: Any) -> Compiled:
    """A program that is called a few times per run."""
    return Compiled(function, TO_RUN_RARELY, **keywords)


def for_threads(function: Callable) -> Callable:
    """The function for other threads, in the precision of this one: contexts set it by thread."""
    x64 = jnp.result_type(float) == jnp.float64

    def in_thread(*args: Any) -> Any:
        with jax.enable_x64(x64):
            return function(*args)

    return in_thread


def accelerated() -> bool:
    """Whether programs run on something else than a CPU, or on several: each call is a wait."""
    return jax.default_backend() != "cpu" or jax.process_count() > 1


@cache
def may_wait_for_itself() -> bool:
    """Whether a program that factorizes stacks of matrices may never end.

    Some releases share a stack out among the threads of the very pool that it is called from, and
    wait for them. Once every thread waits, none is left to do the work: on two cores, three stacks
    are enough. A single matrix is not shared out.
    """
    release = tuple(int(part) for part in jaxlib_version.split(".")[:3] if part.isdigit())
    return SHARES_OUT <= release < MENDED and jax.default_backend() == "cpu"


@cache
def _taken(options: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    """The options that the compiler takes; they change from one release to another."""
    if jax.default_backend() != "cpu":
        options = ON_GPU if jax.default_backend() == "gpu" else ()
    elif set(options) <= set(ON_CPU) and _known(ON_CPU):  # one trial of all names
        return options
    return options if _known(options) else tuple(one for one in options if _known((one,)))


@cache
def _known(options: tuple[tuple[str, Any], ...]) -> bool:
    try:
        jax.jit(lambda x: x, compiler_options=dict(options)).lower(0.0).compile()
    except Exception:  # whatever it says, it would say it to every program
        return False
    return True
