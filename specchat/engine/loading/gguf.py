"""Pairs whose target llama.cpp runs; the draft is a GGUF file too, or a checkpoint that the native decoder runs."""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from specchat.engine.backends import GGUF_BACKEND, UNSUPPORTED, plain_only
from specchat.engine.cross_tokenizer.model import wrap_draft
from specchat.engine.cross_tokenizer.vocabulary_map import VocabularyMap
from specchat.engine.decoding.cached import HostModel
from specchat.engine.decoding.guard import Guard, RoughGuard
from specchat.engine.decoding.row_invariance import Proof
from specchat.engine.errors import EngineError, ModelError
from specchat.engine.fetch.hub import locate, locate_file
from specchat.engine.gguf.files import file_parts, first_part
from specchat.engine.gguf.header import read_header
from specchat.engine.hardware.threads import CORES, leave_one_core
from specchat.engine.llama_cpp.context import GgufSettings
from specchat.engine.llama_cpp.file import GgufFile
from specchat.engine.llama_cpp.library import llama
from specchat.engine.llama_cpp.model import GgufModel
from specchat.engine.llama_cpp.proof import RUNNING, prove
from specchat.engine.llama_cpp.tokens import tokenizer_of
from specchat.engine.llama_cpp.trial import try_file
from specchat.engine.loading.drafting import host_draft, unrestricted, vocabulary_map_of, words_of
from specchat.engine.memory.plan import shortened
from specchat.engine.protocol.events import Loading
from specchat.engine.protocol.pair import DEFAULT_CONTEXT, GgufOptions, ModelSource, PairSpec
from specchat.engine.runners.host import TargetInfo, assembled
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint

ALL_LAYERS = 9999
FEW_CORES = 4

Progress = Callable[[Loading], None]


def load(pair: PairSpec, progress: Progress, make_room: Callable[[], None]) -> Session:
    """Load a pair; see `loading.load`."""
    started = perf_counter()
    leave_one_core()
    if not pair.target.is_gguf:
        raise ModelError(f"{pair.target.label} is no .gguf file. Name one, or leave the backend out.")
    llama()
    location = _located(pair.target, progress)
    small = None
    checkpoint = None
    if pair.draft is not None and pair.draft.is_gguf:
        small = _located(pair.draft, progress)
    elif pair.draft is not None:
        checkpoint = Checkpoint.open(locate(pair.draft, progress))
    make_room()
    target = _model(pair, pair.target, location, progress, 0.1)
    tokenizer, ends = tokenizer_of(target.file)
    tokenizer.use(pair.template)
    draft: HostModel | None = None
    vocabulary_map: VocabularyMap | None = None
    if pair.draft is not None:
        if small is not None:
            draft = drafting = _model(pair, pair.draft, small, progress, 0.5)
            other = tokenizer_of(drafting.file)[0]
            if drafting.file.recurrent:
                raise ModelError(f"{pair.draft.label} cannot draft: {RUNNING}. Leave the draft out, or take another.")
        elif checkpoint is not None:
            other = checkpoint.tokenizer()
            progress(Loading(f"reading {pair.draft.short}", 0.5))
            draft = host_draft(pair, pair.draft, checkpoint, target.context)
        vocabulary_map = vocabulary_map_of(pair, tokenizer, other)
        draft = None if draft is None else wrap_draft(draft, vocabulary_map, target.vocab)
    progress(Loading("comparing passes of one row and of many", 0.8))
    proof = prove(target)
    target.padding, target.alone, target.uneven = proof.padding, proof.alone, proof.uneven
    on_gpu = _gpu_layers(pair.target) > 0
    info = TargetInfo(
        eos=ends,
        device=f"llama.cpp, {'GPU' if on_gpu else 'CPU'}, {target.threads} thread{'s' * (target.threads != 1)}",
        exactness=proof.exactness,
        threads=0 if on_gpu else target.threads,
        place="cuda" if on_gpu else "cpu",
        trees=False,
        unsupported=plain_only(proof.unsupported) if proof.unsupported else UNSUPPORTED[GGUF_BACKEND],
        guard=_guard(target, proof),
    )
    progress(Loading("measuring plain speed", 0.9))
    session = Session(pair, tokenizer, assembled(target, draft, info), started, words_of(vocabulary_map))
    short = shortened(pair.context, target.context, pair.target.label)
    session.warn(short, unrestricted(pair, "it is a GGUF pair"))
    return session


def _guard(target: GgufModel, proof: Proof) -> Guard | None:
    if proof.alone:
        return RoughGuard(target, proof.error)
    return Guard(target, proof.error) if proof.error else None


def _located(source: ModelSource, progress: Progress) -> tuple[Path, bool]:
    """The file to open, and True where its weights may be repacked."""
    path = first_part(locate_file(source, progress))
    for part in file_parts(path):
        read_header(part)  # checked here, since llama.cpp does not check bounds
    progress(Loading(f"trying {source.short}", 0.05))
    return path, try_file(path)


def _model(
    pair: PairSpec, source: ModelSource, location: tuple[Path, bool], progress: Progress, share: float
) -> GgufModel:
    def report(read: float) -> None:
        progress(Loading(f"reading {source.short}", share + 0.3 * read))

    options: GgufOptions = source.gguf
    path, repacked = location
    settings = GgufSettings(pair.context or DEFAULT_CONTEXT, options.threads, options.cache, options.flash_attention)
    model = GgufModel(GgufFile(path, _gpu_layers(source), report, repacked), settings)
    if options.threads is None:
        model.choose_threads(counts(CORES))
    return model


def counts(cores: int) -> list[int]:
    """Numbers of threads to try. Unless cores are few, one is left free; see `threads.leave_one_core`."""
    return sorted({1, max(1, cores // 2), cores if cores <= FEW_CORES else cores - 1})


def _gpu_layers(source: ModelSource) -> int:
    """Number of layers on a GPU.

    Raises:
        EngineError: "config": the pair asks for some, and llama.cpp is built without a GPU.
    """
    offloads, wanted = llama().llama_supports_gpu_offload(), source.gguf.gpu_layers
    if source.device == "cpu":
        return 0
    if not offloads and (wanted or source.device == "cuda"):
        raise EngineError(
            "config",
            f"{source.label}: llama-cpp-python is built here without a GPU. Install one that is built with it, or "
            "leave gpu_layers and device out.",
        )
    return (ALL_LAYERS if wanted is None else wanted) if offloads else 0
