"""Loading: from a pair's description to a session."""

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec

from specchat.engine.backends import BACKENDS, DEFAULT_BACKEND, GGUF_BACKEND, HF_BACKEND
from specchat.engine.errors import EngineError, ForeignModel, ModelError
from specchat.engine.hardware.gpu_record import GpuRecord
from specchat.engine.llama_cpp.library import PACKAGE
from specchat.engine.loading.drafting import noted
from specchat.engine.loading.next_best import KernelsUnsupported, instead
from specchat.engine.protocol.events import Loading
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.session import Session
from specchat.engine.strategy import resolved
from specchat.installing import install_command

NOT_INSTALLED = (
    'backend = "gguf" has no effect: llama-cpp-python is not installed, and specchat\'s own decoder runs this pair.'
)


def load(pair: PairSpec, progress: Callable[[Loading], None], make_room: Callable[[], None] | None = None) -> Session:
    """Load a pair and measure it.

    A model that the native decoder does not support runs by transformers, or by llama.cpp where the target is a GGUF
    file, with a note in the pair's info. A pair of llama.cpp runs natively, with a warning, where that is not
    installed. A pair on a GPU that the kernels do not support runs by transformers, too; where that fails, the CPU
    runs it. `make_room` is called when all files are found and match, before they are read into memory. Without it
    the pair is not loaded for chats, and leaves the memory of a context as long as fits to its caller.

    Raises:
        EngineError: a model cannot be found, read, or run by this version.
    """
    if make_room is None:
        pair, make_room = replace(pair, long_context=False), lambda: None
    if pair.backend not in BACKENDS:
        raise ModelError(f'{pair.id}: there is no backend "{pair.backend}" ({", ".join(BACKENDS)}).')
    if pair.backend == GGUF_BACKEND and pair.target.is_gguf and not _llama_is_installed():
        session = load(replace(pair, backend=DEFAULT_BACKEND), progress, make_room)
        session.warn(NOT_INSTALLED)
        return session

    def emptied() -> None:
        make_room()
        GpuRecord.use()

    try:
        return _loaded(pair.backend, pair, progress, emptied)
    except ForeignModel as foreign:
        of_gguf = pair.target.is_gguf
        if pair.backend != DEFAULT_BACKEND or (not of_gguf and pair.draft is not None and pair.draft.is_gguf):
            raise
        if of_gguf and not _llama_is_installed():
            raise _needs_llama(foreign) from None
        backend, program = (GGUF_BACKEND, "llama.cpp") if of_gguf else (HF_BACKEND, "transformers")
        note = f"{program} runs this pair: {foreign.reason}"
        _check_own(pair, note)
    except KernelsUnsupported as unsupported:
        return instead(pair, unsupported, lambda other: _loaded(other.backend, other, progress, make_room))
    session = _loaded(backend, pair, progress, emptied)
    notes = session.info.notes
    session.info = replace(session.info, notes=replace(notes, note=noted(note, notes.note)))
    return session


def _llama_is_installed() -> bool:
    return find_spec("llama_cpp") is not None


def _needs_llama(foreign: ForeignModel) -> EngineError:
    """The error for a GGUF file that only llama.cpp may run, which is not installed."""
    command = install_command(PACKAGE)
    return EngineError("config", f"{foreign.file}: {foreign.reason}. llama.cpp may run it, and is missing: {command}.")


def _check_own(pair: PairSpec, reason: str) -> None:
    """Check that a pair which another program runs, for a `reason`, has no setting of specchat's own decoder.

    Raises:
        ModelError: it has one.
    """
    for key, setting in pair.own_settings.items():
        words = f"is of specchat's own decoder, but {reason}. Leave {key} out."
        raise ModelError(f'{pair.id}: {key} = "{setting}" {words}') from None


def _loaded(
    backend: str, pair: PairSpec, progress: Callable[[Loading], None], make_room: Callable[[], None]
) -> Session:
    if backend != DEFAULT_BACKEND:
        _check_own(pair, f'backend = "{backend}" runs this pair')
    session: Session = resolved(BACKENDS[backend])(pair, progress, make_room)
    return session
