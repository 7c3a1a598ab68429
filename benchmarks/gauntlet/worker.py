"""A process that takes tasks from its input, one JSON line each, and answers with their rows.

It is started by `pool`, never by hand: JAX hangs in forked children, so it is a program of its own.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    # What libraries print goes elsewhere: the answers have the output to themselves.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    from benchmarks.gauntlet.methods import perform
    from benchmarks.gauntlet.tasks import Task

    for line in sys.stdin:
        answers.write(json.dumps(perform(Task(**json.loads(line)))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
