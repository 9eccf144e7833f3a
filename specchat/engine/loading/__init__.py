"""From a pair's description to a session."""

from collections.abc import Callable
from importlib import import_module

from specchat.engine.api import Loading, PairSpec
from specchat.engine.backends import BACKENDS
from specchat.engine.errors import ModelError
from specchat.engine.session import Session


def load(pair: PairSpec, progress: Callable[[Loading], None], make_room: Callable[[], None] = lambda: None) -> Session:
    """Load a pair and measure it.

    `make_room` is called once all files are there and fit together, before they are read into memory.

    Raises:
        EngineError: a model that cannot be found, read, or run by this version.
    """
    if pair.backend not in BACKENDS:
        raise ModelError(f'{pair.id}: there is no backend "{pair.backend}" ({", ".join(BACKENDS)}).')
    module, _, function = BACKENDS[pair.backend].partition(":")
    session: Session = getattr(import_module(module), function)(pair, progress, make_room)
    return session
