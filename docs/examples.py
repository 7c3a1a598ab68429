"""Examples in docstrings, lines that begin with `>>>`, shown as code in the API pages."""

from __future__ import annotations

import re

from griffe import Extension, Object

EXAMPLE = re.compile(r"(?:^(?:>>>|\.\.\.).*\n?(?:^\S.*\n?)*)+", re.MULTILINE)


class FencedExamples(Extension):
    """Puts fences around examples, which Markdown would take for quotations."""

    def on_object(self, *, obj: Object, **more) -> None:
        """Rewrites the docstring of whatever was loaded."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(_fenced, obj.docstring.value)


def _fenced(found: re.Match) -> str:
    return f"```pycon\n{found[0].rstrip()}\n```\n"
