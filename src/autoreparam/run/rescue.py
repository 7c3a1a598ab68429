"""No draws get lost: whatever happens once there are some, they are in a tree or on disk."""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoreparam.errors import AutoreparamError, CheckpointError, SamplingError
from autoreparam.results.files import places
from autoreparam.results.identity import identify
from autoreparam.results.storage import Store
from autoreparam.run.processes import leads, loss
from autoreparam.run.session import Session

if TYPE_CHECKING:
    import xarray


@dataclass
class Kept:
    """What would be lost: a run in progress, then its tree."""

    session: Session | None = None
    tree: xarray.DataTree | None = None


@contextmanager
def rescuing() -> Iterator[Kept]:
    """A block that samples. If it fails, the error says in which folder the draws are.

    Once the tree is there, an interrupt that comes too late changes nothing.
    """
    kept = Kept()
    try:
        yield kept
    except (Exception, KeyboardInterrupt) as error:
        if kept.tree is not None and isinstance(error, KeyboardInterrupt):
            return
        session, lost = kept.session, loss(error)
        if session is None or not session.has_sampled or isinstance(error, CheckpointError):
            if lost:
                raise SamplingError(lost) from error
            raise
        with undisturbed():
            raise _told(error, _where(session)) from error
    finally:
        if kept.session is not None:
            kept.session.close()


def _told(error: BaseException, where: str) -> BaseException:
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt(f"interrupted before the result was complete. {where}")
    said = loss(error) or (
        str(error) if isinstance(error, AutoreparamError) else f"{type(error).__name__}: {error}"
    )
    return SamplingError(f"the draws are safe, but the run failed after them: {said}\n{where}")


def _where(session: Session) -> str:
    """In words, where the draws are."""
    if not leads():
        return "The draws are where the first process says."
    path = session.store.path if session.store is not None else _stored(session)
    if path is None:
        return "The draws could not be written anywhere: every disk is full or read-only."
    return f"The draws are in {path}: ar.resume('{path}', model, args, kwargs) returns them."


def _stored(session: Session) -> Path | None:
    """The folder that now holds the run, as a checkpoint would."""
    identity = identify(session.engine.program)
    for folder in places():
        with suppress(CheckpointError, OSError):
            path = Path(tempfile.mkdtemp(prefix="autoreparam-run-", dir=folder))
            store = Store.create(path, identity, session.settings.to_dict())
            try:
                session.write_to(store)
            finally:
                store.close()
            return path
    return None


@contextmanager
def undisturbed() -> Iterator[None]:
    """A block that Ctrl-C does not interrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: Any = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before if before is not None else signal.SIG_DFL)
