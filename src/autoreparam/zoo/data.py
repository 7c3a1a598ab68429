"""The raw data files: where each comes from, its checksum, and how to get it onto this machine.

A file is looked for in the folder that the environment variable AUTOREPARAM_DATA names, then in the
download cache, and is downloaded otherwise. Wherever it comes from, its SHA-256 must be right.
"""

import hashlib
import importlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from autoreparam.errors import DataError, known

_GITHUB = "https://raw.githubusercontent.com"
_PAPER = f"{_GITHUB}/mgorinova/autoreparam/4d6938c322ea975d7db71fd3f09950e5c905330e/data"
_STAN = f"{_GITHUB}/stan-dev/example-models/2847a61097354785ceda9fba40c7f761d6664491"
_CONNECT, _READ = 5, 30  # seconds: without a network the wait is for nothing
_EXTRA = 'pip install "autoreparam[data]"'

# What a model's loader returns: the model, its keyword arguments, and counts of what they hold.
Loaded = tuple[Callable, dict[str, Any], dict[str, int]]


@dataclass(frozen=True)
class DataFile:
    """One file with its pinned URL."""

    url: str
    sha256: str


FILES: dict[str, DataFile] = {
    "srrs2.dat": DataFile(
        f"{_PAPER}/srrs2.dat", "4af66006f186bf84495bfe544b543b862e77f1f206b2f09534d65c5565a1ee86"
    ),
    "cty.dat": DataFile(
        f"{_PAPER}/cty.dat", "b709ee016f57e0c9141f1441bc6d4ae527b283ac06ed612f0849818ecd14061b"
    ),
    "radon.data.json": DataFile(
        f"{_STAN}/ARM/Ch.12/radon.data.json",
        "ee8ba0435a619c35e00377e619f3f3288fa6ad8d5fd6d184b531ca2577495eed",
    ),
    "german.data": DataFile(
        f"{_PAPER}/german.data", "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871"
    ),
    "election88.data.json": DataFile(
        f"{_STAN}/ARM/Ch.14/election88.data.json",
        "e218dab21ddbafaf0063a0cd1f600a5332c60b1307f4e22a38188314ff4a7138",
    ),
    "electric.data.json": DataFile(
        f"{_STAN}/ARM/Ch.23/electric.data.json",
        "b8bfeb3044428c9fb99fc8119f2a4dad8b0aa7539586712541cc5644fa123c0f",
    ),
    "rongelap.csv": DataFile(
        f"{_PAPER}/rongelap.csv", "3a3ea6684499fd01cc0b30656b32e6ea655ebb40023a3c14a12fc73785a2a625"
    ),
    "stochastic-volatility.data.json": DataFile(
        f"{_STAN}/misc/moving-avg/stochastic-volatility.data.json",
        "d8085a68a10523f193e312ac89da9c6aaf6b07d9253da4e54be25fc1d7f6d4e1",
    ),
}


@dataclass(frozen=True)
class Listed:
    """One file and where it is: `path` is None if missing, `intact` if the checksum is right."""

    name: str
    url: str
    sha256: str
    path: Path | None
    intact: bool


def fetch(name: str, *, progress: bool = True) -> Path:
    """The path of the file called `name`, downloaded first if need be."""
    if name not in FILES:
        raise DataError(f"There is no data file named {name!r}. There are: {known(FILES)}.")
    file = FILES[name]
    folder = _folder()
    if folder is not None and (folder / name).is_file():
        return _checked(folder / name, file.sha256)
    pooch = _upstream("pooch", name)
    cached = _cache(pooch) / name
    if cached.is_file() and _digest(cached) == file.sha256:
        return cached
    return _download(pooch, name, file, cached.parent, progress)


def listing() -> tuple[Listed, ...]:
    """Every file with its source, and where it is on this machine; nothing is downloaded."""
    return tuple(_listed(name, file) for name, file in FILES.items())


def read_text(name: str) -> str:
    """The text of the file called `name`."""
    return fetch(name).read_text(encoding="utf-8")


def read_json(name: str) -> dict[str, Any]:
    """The content of the JSON file called `name`."""
    return json.loads(read_text(name))


def weekly_co2() -> tuple[np.ndarray, np.ndarray]:
    """The year and the CO2 (ppm) of each week in the statsmodels series; NaN where missing."""
    co2 = _upstream("statsmodels.datasets.co2", "the CO2 series")
    series = co2.load_pandas().data["co2"]
    return series.index.year.to_numpy(), series.to_numpy(dtype=float)


def quarterly_output() -> np.ndarray:
    """Real GDP of the United States per quarter, 1959 to 2009, in the statsmodels series."""
    macro = _upstream("statsmodels.datasets.macrodata", "the series of output")
    return macro.load_pandas().data["realgdp"].to_numpy(dtype=float)


def _listed(name: str, file: DataFile) -> Listed:
    places = [folder] if (folder := _folder()) is not None else []
    with suppress(ImportError):  # without pooch nothing was ever cached
        places.append(_cache(importlib.import_module("pooch")))
    path = next((place / name for place in places if (place / name).is_file()), None)
    intact = path is not None and _digest(path) == file.sha256
    return Listed(name, file.url, file.sha256, path, intact)


def _folder() -> Path | None:
    """The user's own data folder; None if AUTOREPARAM_DATA is not set."""
    value = os.environ.get("AUTOREPARAM_DATA")
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise DataError(
            f"AUTOREPARAM_DATA names '{folder}', which is not a folder. "
            "Set it to the folder that holds the data files, or unset it to download them."
        )
    return folder


def _cache(pooch: ModuleType) -> Path:
    return Path(pooch.os_cache("autoreparam"))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _checked(path: Path, expected: str) -> Path:
    found = _digest(path)
    if found != expected:
        raise DataError(
            f"The data file '{path}' is damaged or a different version: its SHA-256 is {found}, "
            f"expected {expected}. Remove it from the folder AUTOREPARAM_DATA names, "
            "and it will be downloaded."
        )
    return path


def _download(pooch: ModuleType, name: str, file: DataFile, folder: Path, progress: bool) -> Path:
    if progress:
        _upstream("tqdm", name)  # pooch needs it for its progress bar
    once = pooch.HTTPDownloader(progressbar=progress, timeout=(_CONNECT, _READ))
    try:
        return Path(pooch.retrieve(file.url, file.sha256, name, folder, downloader=once))
    except OSError as error:  # no network, no such page, a full disk: requests raises these too
        raise DataError(
            f"Could not download the data file '{name}' from {file.url} to '{folder}': "
            f"{_root(error)}. Try again when online, or set AUTOREPARAM_DATA to a "
            "folder that holds the file."
        ) from error
    except ValueError as error:  # wrong checksum; pooch does not keep the file
        raise DataError(
            f"The data file '{name}' from {file.url} arrived damaged or changed: {error} "
            "Try again, or set AUTOREPARAM_DATA to a folder that holds the right file."
        ) from error


def _root(error: BaseException) -> str:
    """What went wrong first, without the errors around it that name objects and addresses."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return getattr(error, "strerror", None) or str(error)


def _upstream(module: str, needed_for: str) -> ModuleType:
    """An optional package, imported only when some data need it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        remedy = f"Run: {_EXTRA}"
        if needed_for in FILES:
            remedy += f"; or set AUTOREPARAM_DATA to a folder that holds '{needed_for}'"
        raise DataError(
            f"The package '{package}' is needed for {needed_for}, but is not installed. {remedy}."
        ) from error
