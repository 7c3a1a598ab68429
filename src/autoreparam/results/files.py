"""Trees on disk, as NetCDF or zarr, depending on the file extension."""

from __future__ import annotations

import shutil
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from autoreparam.errors import AutoreparamError, DataError

if TYPE_CHECKING:
    import xarray

ENDINGS = (".nc", ".zarr")


def check_name(path: Path) -> None:
    """Rejects a file name before the run if it could not be written afterwards."""
    if path.suffix not in ENDINGS:
        raise AutoreparamError(f"expected a name ending in .nc or .zarr; found '{path}'")
    if not path.absolute().parent.is_dir():
        raise AutoreparamError(f"there is no folder '{path.absolute().parent}' to write to")
    if path.suffix == ".nc":
        _netcdf_engine()


def write_tree(tree: xarray.DataTree, path: Path) -> None:
    """Writes a run, replacing one of the same name."""
    check_name(path)
    if path.suffix == ".nc":
        tree.to_netcdf(path, engine=_netcdf_engine())
        return
    if path.is_dir():
        if not (path / "zarr.json").exists():
            raise AutoreparamError(
                f"{path} is a folder that holds something else; it was left alone"
            )
        shutil.rmtree(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr's, about how it stores text
        tree.to_zarr(path, consolidated=False)


def read_tree(path: Path) -> xarray.DataTree:
    """A run written by `write_tree` or xarray."""
    import xarray

    if not path.exists():
        raise DataError(f"{path}: there is no such run. Check the path.")
    try:
        if path.suffix == ".nc":
            return xarray.open_datatree(path, engine=_netcdf_engine()).load()
        return xarray.open_datatree(path, engine="zarr", consolidated=False).load()
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
