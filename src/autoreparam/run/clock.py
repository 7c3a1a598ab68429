"""What a user waited for, in parts that add up."""

from __future__ import annotations

import time

from autoreparam.run.session import Session


class Clock:
    """Started when the call begins; `begin` marks the first draw."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.drawing = self.started
        self.before = 0.0  # seconds of sampling that earlier sessions of a resumed run took

    def begin(self, session: Session) -> None:
        """Everything up to here was setting up: tracing, compiling, starting points."""
        self.drawing, self.before = time.perf_counter(), session.state.seconds

    def times(self, session: Session) -> dict[str, float]:
        """Seconds to set up, to sample and to finish, and their sum: what the user waited."""
        waited = time.perf_counter() - self.started
        setup, sampling = self.drawing - self.started, session.state.seconds - self.before
        finishing = max(0.0, waited - setup - sampling)
        return {
            "setup_time": setup,
            "finishing_time": finishing,
            "total_time": setup + session.state.seconds + finishing,
        }
