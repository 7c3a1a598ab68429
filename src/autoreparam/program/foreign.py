"""Arguments from pandas, polars and xarray as arrays, and the labels they bring along."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autoreparam.errors import ModelError

LIBRARIES = ("pandas", "polars", "xarray")


@dataclass(frozen=True)
class AxisLabels:
    """Labels that an argument has for something of that many elements, and what it calls it."""

    name: str | None
    values: np.ndarray


def _both_ways(call: Callable) -> tuple[Callable, Callable]:
    """An operator on a matrix, for use on the left and on the right."""

    def on_left(self: Frame, other: Any) -> jax.Array:
        return call(self.to_numpy(), other)

    def on_right(self: Frame, other: Any) -> jax.Array:
        return call(other, self.to_numpy())

    return on_left, on_right


@jax.tree_util.register_pytree_with_keys_class
class Frame(Mapping):
    """Columns of numbers by name, as a model sees a DataFrame; in arithmetic it is a matrix."""

    def __init__(self, columns: Mapping[str, Any]):
        self._columns = dict(columns)

    def __getitem__(self, name: Any) -> Any:
        if isinstance(name, list):
            return Frame({key: self._columns[key] for key in name})
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __getattr__(self, name: str) -> Any:
        columns = self.__dict__.get("_columns", {})
        if name in columns:
            return columns[name]
        raise AttributeError(f"there is no column '{name}'; there are {list(columns)}")

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._columns)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self), len(self._columns)

    def to_numpy(self) -> Any:
        """All columns as one matrix."""
        return jnp.stack([jnp.asarray(column) for column in self._columns.values()], axis=1)

    def __jax_array__(self) -> jax.Array:
        return self.to_numpy()

    __array_ufunc__ = None  # so that numpy's arrays leave arithmetic to this class
    __matmul__, __rmatmul__ = _both_ways(operator.matmul)
    __mul__, __rmul__ = _both_ways(operator.mul)
    __add__, __radd__ = _both_ways(operator.add)
    __sub__, __rsub__ = _both_ways(operator.sub)
    __truediv__, __rtruediv__ = _both_ways(operator.truediv)

    def tree_flatten_with_keys(self) -> tuple[tuple, tuple]:
        """Leaves: the columns; static: their names."""
        keyed = ((jax.tree_util.DictKey(name), column) for name, column in self._columns.items())
        return tuple(keyed), tuple(self._columns)

    @classmethod
    def tree_unflatten(cls, names: tuple, columns: Iterable[Any]) -> Frame:
        """Rebuilds without checks."""
        return cls(dict(zip(names, columns)))


def as_arrays(arguments: Any) -> tuple[Any, list[AxisLabels]]:
    """The arguments with tables, series and labeled arrays as plain arrays, and their labels."""
    labels: list[AxisLabels] = []
    converted = jax.tree.map(lambda leaf: _convert(leaf, labels), arguments)
    return converted, labels


def _convert(leaf: Any, labels: list[AxisLabels]) -> Any:
    library = type(leaf).__module__.partition(".")[0]
    if library not in LIBRARIES:
        return leaf
    kind = type(leaf).__name__
    if kind == "DataFrame":
        columns = {str(name): _column(leaf[name], str(name), labels) for name in leaf.columns}
        _index(leaf, labels)
        if len(columns) != len(leaf):  # else rows and columns could be taken for each other
            labels.append(AxisLabels(None, np.asarray(list(columns))))
        return Frame(columns)
    if kind == "Dataset":
        return Frame({str(name): _convert(leaf[name], labels) for name in leaf.data_vars})
    if kind == "DataArray":
        for dim in leaf.dims:
            if dim in leaf.coords:
                labels.append(AxisLabels(str(dim), np.asarray(leaf.coords[dim])))
        return np.asarray(leaf)
    if kind in ("Series", "Categorical", "CategoricalIndex", "Index"):
        found = _column(leaf, getattr(leaf, "name", None), labels)
        _index(leaf, labels)
        return found
    return leaf


def _index(leaf: Any, labels: list[AxisLabels]) -> None:
    """The labels of the rows, if pandas has any but their numbers."""
    index = getattr(leaf, "index", None)
    if index is None or callable(index) or type(index).__name__ in ("RangeIndex", "MultiIndex"):
        return
    if index.is_unique:
        labels.append(AxisLabels(index.name, np.asarray(index)))


def _column(column: Any, name: Any, labels: list[AxisLabels]) -> np.ndarray:
    """Numbers as they are; categories and text as codes, whose meaning is kept as labels."""
    name = None if name is None else str(name)
    array = np.asarray(column)
    categories = _categories(column)
    if categories is None and array.dtype.kind in "fiub":
        return array
    values = column.to_list() if hasattr(column, "to_list") else list(column)
    if categories is None and values and all(isinstance(value, str) for value in values):
        categories = words(values, name)
    if categories is not None:
        place = {category: code for code, category in enumerate(categories)}
        if any(value not in place for value in values):
            raise ModelError(
                f"column '{name}' has missing values. Drop these rows, or impute them."
            )
        labels.append(AxisLabels(name, np.asarray(categories)))
        return np.asarray([place[value] for value in values], dtype=int)
    try:  # such as pandas' integers with gaps
        return np.asarray([np.nan if value is None else value for value in values], dtype=float)
    except (TypeError, ValueError):
        raise ModelError(
            f"column '{name}' holds {array.dtype}, and a model needs numbers. Convert it, or leave "
            "it out."
        ) from None


def words(values: Iterable[str], name: str | None) -> list[str]:
    """The different words of a column of text in their order, none of which may be a number."""
    found = sorted(set(values))
    for word in found:
        if _is_number(word) or not word.strip():
            raise ModelError(
                f"column '{name}' holds text, but {word!r} among it is a number or empty. Make it "
                "a column of numbers, or of categories."
            )
    return found


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _categories(column: Any) -> list | None:
    """What the codes of a column stand for, if it says so: pandas' Categorical, polars' Enum."""
    categories = getattr(getattr(column, "dtype", None), "categories", None)
    return None if categories is None else list(categories)


# -- labels for plates ------------------------------------------------------------------------


def fitting(labels: Iterable[AxisLabels], plates: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Labels by plate: of the plate with their name, else of the only one with as many elements."""
    found: dict[str, np.ndarray] = {}
    for brought in labels:
        names = [name for name in plates if name == brought.name] or list(plates)
        fits = [plate for plate in names if plates[plate] == len(brought.values)]
        if len(set(brought.values.tolist())) == len(brought.values) and len(fits) == 1:
            found.setdefault(fits[0], brought.values)
    return found
