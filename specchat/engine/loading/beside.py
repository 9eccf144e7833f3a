"""Loading a pair that shares its target with a loaded one: the target's weights and KV cache are there once."""

from collections.abc import Callable
from dataclasses import replace

from specchat.engine.backends import DEFAULT_BACKEND
from specchat.engine.loading import load, native
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.protocol.events import Loading
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.runners.host import NativeModel
from specchat.engine.session import Session


def load_beside(session: Session, loaded: PairSpec, pair: PairSpec, progress: Callable[[Loading], None]) -> Session:
    """Load `pair` beside `session`, which was loaded by the spec `loaded`; see `shared_target`.

    Where the target is shared, only one of the two may write at a time, and each reply has to be cold: the KV cache
    holds what the other left.

    Raises:
        EngineError: a model cannot be found, read, or run by this version.
    """
    shared = shared_target(session, loaded, pair)
    pair = replace(pair, long_context=False)  # as the target that it shares
    return native.load(pair, progress, lambda: None, shared) if shared is not None else load(pair, progress)


def shared_target(session: Session, loaded: PairSpec, pair: PairSpec) -> NativeModel | None:
    """The target of `session`, if `pair` has the same and specchat's own decoder runs it on the CPU."""
    same = (pair.target, pair.context, pair.backend) == (loaded.target, loaded.context, DEFAULT_BACKEND)
    model = session.target.model
    return model if same and isinstance(model, CachedDecoder) and isinstance(model, NativeModel) else None
