"""Trees on disk, as NetCDF or zarr, depending on the file extension."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoreparam.disk import check_place, replacing, reserve
from autoreparam.errors import AutoreparamError, DataError, DiskError

if TYPE_CHECKING:
    import xarray

ENDINGS = (".nc", ".zarr")


def check_name(path: Path, what: str = "--out") -> None:
    """Rejects a place before the run if the draws could not be written there afterwards."""
    if path.suffix not in ENDINGS:
        raise DiskError(f"{what}: expected a name ending in .nc or .zarr; found '{path}'")
    check_place(path, what, folder=path.suffix == ".zarr")
    if path.suffix == ".nc":
        _netcdf_engine()
    elif path.exists() and not (path / "zarr.json").exists():
        raise DiskError(f"{what}: {path} holds something else, which was left alone")


def write_tree(tree: xarray.DataTree, path: Path) -> None:
    """Writes a run, replacing one of the same name once all of it is on disk."""
    check_name(path, "the draws")
    with replacing(path) as beside:
        reserve(beside, _size(tree))
        try:
            _write(tree, beside, path.suffix)
        except (OSError, AutoreparamError):
            raise
        except Exception as error:  # libraries have their own errors for a full disk
            raise DiskError(f"{path} could not be written: {error}") from error


def _write(tree: xarray.DataTree, path: Path, ending: str) -> None:
    if ending == ".nc":
        tree.to_netcdf(path, engine=_netcdf_engine())
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr's, about how it stores text
        tree.to_zarr(path, consolidated=False)


def _size(tree: xarray.DataTree) -> int:
    """Bytes that the file may take, with room for what the format adds."""
    datasets = [node.to_dataset() for node in tree.subtree]
    return sum(int(1.05 * data.nbytes) + 8192 * (1 + len(data.variables)) for data in datasets)


def write_anywhere(tree: xarray.DataTree) -> Path | None:
    """Where the run was written, when nobody said where, or it could not be there."""
    for folder in places():
        with suppress(DiskError, OSError):
            path = Path(tempfile.mkdtemp(prefix="autoreparam-", dir=folder)) / "run.zarr"
            write_tree(tree, path)
            return path
    return None


def places() -> Iterator[Path]:
    """Folders for what would be lost otherwise, the best place first."""
    yield Path.cwd()
    yield Path(tempfile.gettempdir())
    yield Path.home()


def read_tree(path: Path) -> xarray.DataTree:
    """A run written by `write_tree` or xarray."""
    import xarray

    if not path.exists():
        raise DataError(f"{path}: there is no such run. Check the path.")
    try:
        engine = _netcdf_engine() if path.suffix == ".nc" else "zarr"
        options: Any = {} if path.suffix == ".nc" else {"consolidated": False}
        with xarray.open_datatree(path, engine=engine, **options) as tree:
            return tree.load()
    except AutoreparamError:
        raise
    except Exception as error:
        raise DataError(
            f"{path} is not a run that can be read: {error}. To read a checkpoint, use `resume`."
        ) from error


def _netcdf_engine():
    if find_spec("h5netcdf") and find_spec("h5py"):
        return "h5netcdf"
    if find_spec("netCDF4"):
        return "netcdf4"
    raise AutoreparamError(
        'NetCDF files need a package that is not installed. Run: pip install "autoreparam[netcdf]",'
        " or choose a name ending in .zarr"
    )
