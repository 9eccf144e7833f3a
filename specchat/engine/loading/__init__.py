"""Loading: from a pair's description to a session."""

from collections.abc import Callable
from dataclasses import replace

from specchat.engine.backends import BACKENDS, DEFAULT_BACKEND, GGUF_BACKEND, HF_BACKEND
from specchat.engine.errors import ForeignModel, ModelError
from specchat.engine.hardware.gpu_record import GpuRecord
from specchat.engine.loading.drafting import noted
from specchat.engine.loading.next_best import KernelsUnsupported, instead
from specchat.engine.protocol.events import Loading
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.session import Session
from specchat.engine.strategy import resolved


def load(pair: PairSpec, progress: Callable[[Loading], None], make_room: Callable[[], None] = lambda: None) -> Session:
    """Load a pair and measure it.

    A model that the native decoder does not support runs by transformers, or by llama.cpp where the target is a GGUF
    file, with a note in the pair's info. A pair on a GPU that the kernels do not support runs by transformers, too;
    where that fails, the CPU runs it. `make_room` is called when all files are found and match, before they are read
    into memory.

    Raises:
        EngineError: a model cannot be found, read, or run by this version.
    """
    if pair.backend not in BACKENDS:
        raise ModelError(f'{pair.id}: there is no backend "{pair.backend}" ({", ".join(BACKENDS)}).')

    def emptied() -> None:
        make_room()
        GpuRecord.use(None)

    try:
        return _loaded(pair.backend, pair, progress, emptied)
    except ForeignModel as foreign:
        of_gguf = pair.target.is_gguf
        if pair.backend != DEFAULT_BACKEND or (not of_gguf and pair.draft is not None and pair.draft.is_gguf):
            raise
        backend, program = (GGUF_BACKEND, "llama.cpp") if of_gguf else (HF_BACKEND, "transformers")
        note = f"{program} runs this pair: {foreign.reason}"
        if pair.cache:
            raise ModelError(_no_cache(pair, note)) from None
    except KernelsUnsupported as unsupported:
        return instead(pair, unsupported, lambda other: _loaded(other.backend, other, progress, make_room))
    session = _loaded(backend, pair, progress, emptied)
    notes = session.info.notes
    session.info = replace(session.info, notes=replace(notes, note=noted(note, notes.note)))
    return session


def _no_cache(pair: PairSpec, reason: str) -> str:
    return f'{pair.id}: cache = "{pair.cache}" is of specchat\'s own decoder, but {reason}. Leave cache out.'


def _loaded(
    backend: str, pair: PairSpec, progress: Callable[[Loading], None], make_room: Callable[[], None]
) -> Session:
    if pair.cache and backend != DEFAULT_BACKEND:
        raise ModelError(_no_cache(pair, f'backend = "{backend}" runs this pair'))
    session: Session = resolved(BACKENDS[backend])(pair, progress, make_room)
    return session
