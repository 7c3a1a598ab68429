"""The summary table: as text for a terminal, as HTML for a notebook, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from autoreparam.render.table import Table

if TYPE_CHECKING:
    import pandas

ROWS_SHOWN = 60
FORMATS = {"ess_bulk": ".0f", "ess_tail": ".0f", "r_hat": ".3f", "mcse_mean": ".2g"}


@dataclass(frozen=True)
class Summary:
    """One row per scalar; prints as a table, and `to_dict()` has everything at full precision."""

    labels: tuple[str, ...]
    columns: Mapping[str, np.ndarray]
    footer: str = ""

    def __getitem__(self, column: str) -> np.ndarray:
        return self.columns[column]

    def __len__(self) -> int:
        return len(self.labels)

    def to_dict(self) -> dict[str, dict[str, float]]:
        """The numbers of each scalar by the name of their column."""
        return {
            label: {key: float(values[row]) for key, values in self.columns.items()}
            for row, label in enumerate(self.labels)
        }

    def to_dataframe(self) -> pandas.DataFrame:
        """The table as a pandas DataFrame, one row per scalar."""
        import pandas

        return pandas.DataFrame(dict(self.columns), index=list(self.labels))

    def _table(self) -> Table:
        """The rows as text; long tables are cut in the middle."""
        count = len(self)
        half = ROWS_SHOWN // 2
        long = count > ROWS_SHOWN
        shown = [*range(half), *range(count - half, count)] if long else list(range(count))
        rows = [
            [self.labels[row], *(_format(key, values[row]) for key, values in self.columns.items())]
            for row in shown
        ]
        if long:
            rows.insert(half, [f"... {count - len(shown)} more", *[""] * len(self.columns)])
        return Table(("", *self.columns), rows, numbers=True)

    def __repr__(self) -> str:
        return self._table().to_text() + (f"\n{self.footer}" if self.footer else "")

    def _repr_html_(self) -> str:
        return self._table().to_html() + (f"<p>{escape(self.footer)}</p>" if self.footer else "")


def _format(column: str, value: float) -> str:
    if not np.isfinite(value):
        return "" if np.isnan(value) else str(value)
    return format(value, ".2f" if column.startswith("λ") else FORMATS.get(column, ".4g"))
