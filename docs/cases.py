"""Case studies: the build runs the code of each page, and shows what it prints and draws.

Two pages need data files that a build may not have. What they gave is stored beside them;
`python docs/cases.py` stores it anew.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path

import matplotlib.pyplot as plt
from ink import INK, svg

from autoreparam.errors import DataError

PAGES = Path(__file__).parent / "cases"
STORED = ("radon", "horseshoe")
BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Results:
    """What the code of a page gave: a text per block, and its figures as SVG."""

    code: str  # a digest
    printed: list[str]
    figures: list[str]

    @classmethod
    def of(cls, page: str) -> Results:
        """The results of a page, stored ones where its data are not here."""
        blocks = BLOCK.findall(_text(page))
        try:
            return cls(digest(page), *_run(blocks))
        except DataError:
            if page not in STORED:
                raise
        stored = cls(**json.loads(_file(page).read_text(encoding="utf-8")))
        if stored.code != digest(page):
            raise ValueError(f"{page}.md has changed: run `python docs/cases.py`, with its data")
        return stored


def digest(page: str) -> str:
    """Tells whether the code of a page is that of stored results."""
    return hashlib.sha256("\n".join(BLOCK.findall(_text(page))).encode()).hexdigest()


def pages() -> dict[str, Results]:
    """The results of all pages, by name."""
    return {path.stem: Results.of(path.stem) for path in sorted(PAGES.glob("*.md"))}


def pictures(page: str, results: Results) -> dict[str, str]:
    """The figures of a page by the name of their file."""
    wanted = re.findall(rf"pictures/(case-{page}-\d+)\.svg", _text(page))
    if len(results.figures) != len(wanted):
        raise ValueError(f"{page} shows {len(wanted)} pictures and draws {len(results.figures)}")
    return {f"pictures/{name}.svg": figure for name, figure in zip(wanted, results.figures)}


def with_output(markdown: str, results: Results) -> str:
    """A page with what each block printed below it."""
    printed: Iterator[str] = iter(results.printed)

    def shown(found: re.Match) -> str:
        text = next(printed)
        return f"{found[0]}\n```text\n{text}```\n" if text else found[0]

    return BLOCK.sub(shown, markdown)


def _run(blocks: list[str]) -> tuple[list[str], list[str]]:
    names: dict = {}
    printed = []
    plt.close("all")
    with (
        tempfile.TemporaryDirectory() as folder,
        chdir(folder),
        plt.rc_context(INK),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        for block in blocks:
            with redirect_stdout(StringIO()) as text:
                exec(compile(block, "case", "exec"), names)
            printed.append(text.getvalue())
        return printed, [svg(plt.figure(number)) for number in plt.get_fignums()]


def _text(page: str) -> str:
    return (PAGES / f"{page}.md").read_text(encoding="utf-8")


def _file(page: str) -> Path:
    return PAGES / f"{page}.json"


def main() -> None:
    """Runs the pages that need data files, and stores what they give."""
    for page in STORED:
        results = Results(digest(page), *_run(BLOCK.findall(_text(page))))
        text = json.dumps(asdict(results), indent=1, ensure_ascii=False)
        _file(page).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
