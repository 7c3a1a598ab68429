"""The keywords of a run, and checks that they are valid."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import jax
import numpy as np

from autoreparam.errors import AutoreparamError, known
from autoreparam.learn.settings import ScoreSettings
from autoreparam.mcmc.delayed import Again
from autoreparam.mcmc.policy import Policy
from autoreparam.mcmc.settings import SamplerSettings

SEEDS = 2**63  # how many there are
METHODS = ("auto", "vip", "centered", "noncentered", "interleaved")
KERNELS = ("auto", "nuts", "hmc")
PRECISIONS = ("auto", "single", "double")
MOST = 2**31 - 1  # draws are numbered in 32 bits


def check_flag(name: str, value: Any) -> None:
    """Raises unless a keyword is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise AutoreparamError(f"{name}: expected True or False; found {value!r}")


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raises unless a keyword is a number of things that 32 bits can count."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise AutoreparamError(f"{name}: expected an integer >= {least}; found {value!r}")
    if value > MOST:
        raise AutoreparamError(f"{name}: expected at most {MOST:,}; found {value:,}")


def as_seed(seed: Any) -> int:
    """The seed as an integer; a key of JAX's counts as the seed that it was made from."""
    if isinstance(seed, jax.Array | np.ndarray) and np.ndim(seed) <= 1:
        words = _words(seed)
        if words is not None:
            if not words[:-1].any():
                return int(words[-1])
            return int.from_bytes(hashlib.sha256(words.tobytes()).digest()[:7], "big")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < SEEDS:
        found = f"{seed:,}" if type(seed) is int else repr(seed).partition("\n")[0]
        raise AutoreparamError(
            f"seed: expected an integer from 0 to 2**63 - 1, or a key of jax.random; found {found}"
        )
    return int(seed)


def _words(key: Any) -> np.ndarray | None:
    """The words of a single key, old or new; None if it is none."""
    if isinstance(key, jax.Array) and jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(key)) if key.shape == () else None
    return np.asarray(key) if key.shape == (2,) and key.dtype == np.uint32 else None


@dataclass(frozen=True)
class Adaptation:
    """Every number that steers warm-up: of the sampler, and of learning λ.

    Args:
        sampler: Of the sampler: windows, metric, step size, trajectory.
        learner: Of learning λ from scores.
    """

    sampler: SamplerSettings = field(default_factory=SamplerSettings)
    learner: ScoreSettings = field(default_factory=ScoreSettings)

    def __post_init__(self):
        for name, wanted in (("sampler", SamplerSettings), ("learner", ScoreSettings)):
            if not isinstance(getattr(self, name), wanted):
                raise AutoreparamError(
                    f"Adaptation: expected {name} as {wanted.__name__}; found "
                    f"{type(getattr(self, name)).__name__}"
                )

    @classmethod
    def from_dict(cls, stored: Mapping[str, Mapping[str, Any]]) -> Adaptation:
        """The numbers, as read back from JSON."""
        parts: list[dict[str, Any]] = [
            {name: tuple(x) if isinstance(x, list) else x for name, x in stored[part].items()}
            for part in ("sampler", "learner")
        ]
        if "again" in parts[0]:
            parts[0]["again"] = Again(*parts[0]["again"])
        return cls(SamplerSettings(**parts[0]), ScoreSettings(**parts[1]))


@dataclass(frozen=True)
class Settings:
    """The keywords of a run that a checkpoint must store."""

    parameterization: str
    kernel: str
    draws: int
    warmup: int
    chains: int
    seed: int
    num_steps: int | None
    target_accept: float
    max_tree_depth: int
    thin: int
    save_warmup: bool
    save_working: bool
    precision: str = "auto"
    adaptation: Adaptation = field(default_factory=Adaptation)
    implicit: bool = True
    shard: tuple[str, ...] = ()

    @property
    def policy(self) -> Policy:
        """What the run may change about its kernel."""
        return Policy.of(self.kernel, self.num_steps)

    @property
    def slots(self) -> int:
        """The number of parameterizations that take turns."""
        return 2 if self.parameterization == "interleaved" else 1

    def keywords(self) -> dict[str, Any]:
        """Only the keywords, for the attributes of a tree."""
        return {name: value for name, value in asdict(self).items() if name != "adaptation"}

    def to_dict(self) -> dict[str, Any]:
        """All settings, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Settings:
        """The settings, as read back from JSON, without what an older release did not store."""
        words = {"implicit": False, **stored}  # an older release did not look
        words["shard"] = tuple(words.get("shard", ()))
        if "adaptation" in words:
            words["adaptation"] = Adaptation.from_dict(words["adaptation"])
        return cls(**words)

    def checked(self) -> Settings:
        """These settings if they are valid; otherwise an error that names the keyword."""
        if self.kernel not in KERNELS:
            raise AutoreparamError(
                f"kernel: expected one of {known(KERNELS)}; found {self.kernel!r}"
            )
        if self.precision not in PRECISIONS:
            raise AutoreparamError(
                f"precision: expected one of {known(PRECISIONS)}; found {self.precision!r}"
            )
        least = {"draws": 1, "warmup": 0, "chains": 1, "thin": 1, "max_tree_depth": 1}
        if self.num_steps is not None:
            least["num_steps"] = 1
            if self.kernel == "nuts":
                raise AutoreparamError(
                    "num_steps: NUTS chooses its own number of steps. Leave it out, or use "
                    "kernel='hmc'."
                )
        check_flag("save_warmup", self.save_warmup)
        check_flag("save_working", self.save_working)
        for name, low in least.items():
            check_count(name, getattr(self, name), low)
        if self.thin > self.draws:
            raise AutoreparamError(
                f"thin: expected at most the number of draws ({self.draws}); found {self.thin}"
            )
        if not isinstance(self.target_accept, float | np.floating) or not (
            0 < self.target_accept < 1
        ):
            raise AutoreparamError(
                f"target_accept: expected a number between 0 and 1; found {self.target_accept!r}"
            )
        if not isinstance(self.adaptation, Adaptation):
            raise AutoreparamError(
                "adaptation: expected an Adaptation, the numbers that steer warm-up; found "
                f"{type(self.adaptation).__name__}"
            )
        if not isinstance(self.implicit, bool):
            raise AutoreparamError(f"implicit: expected True or False; found {self.implicit!r}")
        if not isinstance(self.shard, tuple) or not all(isinstance(x, str) for x in self.shard):
            raise AutoreparamError(
                f"shard: expected the names of arguments, such as ('y',); found {self.shard!r}"
            )
        if self.shard and jax.process_count() > 1:
            raise AutoreparamError(
                "shard: rows are spread over the devices of one process, and this run has "
                f"{jax.process_count()}. Leave it out, or use one process with all devices."
            )
        integers: dict[str, Any] = {name: int(getattr(self, name)) for name in least}
        return replace(self, **integers)
