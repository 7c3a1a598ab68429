"""Ctrl-C at a moment of one's choice."""

from contextlib import contextmanager

import pytest

from autoreparam.mcmc.chains import Chains


@contextmanager
def interrupted_at(chunk):
    """A block in which a run is interrupted instead of drawing its n-th chunk."""
    advance, calls = Chains.run, []

    def run(self, start, count, *rest):
        calls.extend([1] * (count > 0))
        if len(calls) == chunk:
            raise KeyboardInterrupt
        return advance(self, start, count, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Chains, "run", run)
        yield
