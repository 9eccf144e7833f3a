"""Pairs whose target transformers runs; it or, on the CPU, the native decoder runs the draft."""

from collections.abc import Callable
from time import perf_counter

import torch

from specchat.engine.backends import HF_BACKEND, UNSUPPORTED, plain_only
from specchat.engine.cross_tokenizer.model import wrap_draft
from specchat.engine.cross_tokenizer.vocabulary_map import VocabularyMap
from specchat.engine.decoding.cached import HostModel
from specchat.engine.decoding.guard import Guard
from specchat.engine.decoding.row_invariance import Proof
from specchat.engine.errors import EngineError, ForeignModel, ModelError
from specchat.engine.fetch.hub import locate
from specchat.engine.hardware.accelerator import device_of, find_accelerator, kind
from specchat.engine.hardware.free_memory import free_memory
from specchat.engine.hardware.gpu import CHOSEN, HERE, Gpu, find_gpu
from specchat.engine.hardware.threads import leave_one_core
from specchat.engine.hf.files import HfFiles
from specchat.engine.hf.model import HfModel
from specchat.engine.hf.proof import prove
from specchat.engine.loading.drafting import host_draft, noted, unrestricted, vocabulary_map_of, words_of
from specchat.engine.memory.devices import Machine
from specchat.engine.memory.need import Place
from specchat.engine.memory.plan import shortened
from specchat.engine.protocol.events import Loading
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.runners.host import TargetInfo, assembled
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint

RESERVED = 1 << 30
"""Bytes reserved for caches and the workspace of a pass."""

UNKNOWN = 1 << 50
"""Free bytes assumed where torch does not report them."""

Progress = Callable[[Loading], None]


def load(pair: PairSpec, progress: Progress, make_room: Callable[[], None]) -> Session:
    """Load a pair; see `loading.load`."""
    started = perf_counter()
    leave_one_core()
    trusted = pair.trust_remote_code
    files = HfFiles.open(locate(pair.target, progress), trusted)
    tokenizer = files.tokenizer()
    tokenizer.use(pair.template)
    small: HfFiles | Checkpoint | None = None
    vocabulary_map: VocabularyMap | None = None
    if pair.draft is not None:
        small = _opened(pair.draft, progress, trusted)
        vocabulary_map = vocabulary_map_of(pair, tokenizer, small.tokenizer())
    for source, found in ((pair.target, files), (pair.draft, small)):
        if source is not None and isinstance(found, HfFiles):
            found.check("cpu" if source.device == "cpu" else kind() or "cpu", source.quant)
    make_room()
    place, note = _placed(pair, files, small)
    context = files.context(pair.context)
    progress(Loading(f"reading {pair.target.short}", 0.1))
    target = HfModel(files.load(_device(place), pair.target.quant), context, pair.target.label)
    draft = None
    if pair.draft is not None and small is not None:
        progress(Loading(f"reading {pair.draft.short}", 0.5))
        draft = wrap_draft(_draft(pair, pair.draft, small, context, place), vocabulary_map, target.vocab)
    progress(Loading("comparing passes of one row and of many", 0.8))
    proof = prove(target, files.max_context)
    target.uneven = proof.uneven
    if files.own_programs or (isinstance(small, HfFiles) and small.own_programs):
        note = noted(note, "programs of the checkpoint are run (trust_remote_code)")
    note = noted(note, words_of(vocabulary_map))
    progress(Loading("measuring plain speed", 0.9))
    session = Session(pair, tokenizer, assembled(target, draft, target_info(target, proof, place)), started, note)
    short = "" if files.max_context is None else shortened(pair.context, files.max_context, pair.target.label)
    session.warn(short, unrestricted(pair, "transformers runs it"))
    return session


def target_info(target: HfModel, proof: Proof, place: Place) -> TargetInfo:
    """The target's properties for the runner."""
    return TargetInfo(
        eos=_ends(target),
        device=f"transformers, {_device_name(place)}, {str(target.network.dtype).removeprefix('torch.')}",
        exactness=proof.exactness,
        threads=torch.get_num_threads() if place == "cpu" else 0,
        place=place,
        trees=False,
        unsupported=plain_only(proof.unsupported) if proof.unsupported else UNSUPPORTED[HF_BACKEND],
        guard=Guard(target, proof.error) if proof.error else None,
    )


def _opened(source: ModelSource, progress: Progress, trusted: bool) -> HfFiles | Checkpoint:
    """Open a draft, for the native decoder where it supports it."""
    folder = locate(source, progress)
    try:
        checkpoint = Checkpoint.open(folder)
    except ForeignModel:
        return HfFiles.open(folder, trusted)
    return checkpoint


def _draft(pair: PairSpec, source: ModelSource, small: HfFiles | Checkpoint, context: int, place: Place) -> HostModel:
    """Read a draft.

    Raises:
        ModelError: it cannot draft.
    """
    if isinstance(small, Checkpoint) and (place == "cpu" or source.device == "cpu"):
        return host_draft(pair, source, small, context)
    files = HfFiles.open(small.folder, small.trusted if isinstance(small, HfFiles) else False)
    chosen: Place = "cpu" if source.device == "cpu" else place
    draft = HfModel(files.load(_device(chosen), source.quant), files.context(context), source.label)
    if reason := prove(draft, files.max_context).unsupported:
        raise ModelError(f"{source.label} cannot draft: {reason}. Leave the draft out, or take another.")
    return draft


def _placed(pair: PairSpec, files: HfFiles, small: HfFiles | Checkpoint | None) -> tuple[Place, str]:
    """Place of the target, and the reason why a pair on "auto" runs on the CPU.

    Raises:
        EngineError: "config": the pair asks for a GPU and there is none. "memory": the pair does not fit.
    """
    wanted = pair.target.device
    sources = [pair.target, *([pair.draft] if pair.draft is not None else [])]
    requested = any(source.device != "cpu" for source in sources)
    machine = Machine(_gpu() if requested else "it was not asked for", free_memory())
    for source in sources:
        if source.device == "cuda" and isinstance(machine.gpu, str):
            raise EngineError(
                "config", f'{source.label} asks for device = "cuda": {machine.gpu}. Say device = "auto" or "cpu".'
            )
    drafting = sum(file.stat().st_size for file in small.shards) if isinstance(small, Checkpoint) else 0
    drafting += small.size if isinstance(small, HfFiles) else 0

    def short(place: Place) -> float:
        """Missing memory in GiB."""
        free = machine.available[place]
        needed = files.weight_bytes(place == "cuda", pair.target.quant) + drafting + RESERVED
        return 0.0 if free is None else (needed - free) / (1 << 30)

    place: Place = "cpu" if wanted == "cpu" or isinstance(machine.gpu, str) else "cuda"
    note = machine.gpu if wanted == "auto" and isinstance(machine.gpu, str) else ""
    if wanted == "auto" and isinstance(machine.gpu, Gpu) and short("cuda") > 0 and short("cpu") <= 0:
        place, note = "cpu", f"the pair does not fit the free memory of the GPU ({machine.gpu.name})"
    if (missing := short(place)) > 0:
        where = "the GPU's memory" if place == "cuda" else "main memory"
        raise EngineError(
            "memory",
            f"{pair.name} takes {missing:.1f} GiB more of {where} than are free. Close other programs, set "
            'quant = "nf4" for the target in models.toml, or choose a smaller pair.',
        )
    return place, note


def _gpu() -> Gpu | str:
    """The GPU, or the reason why there is none; it needs neither Triton nor its support."""
    found = find_gpu(HERE._replace(triton=True, start=lambda: None, wanting=lambda: ""))
    if isinstance(found, Gpu):
        return found
    other = find_accelerator()
    # Unknown free memory is taken to be enough.
    return found if isinstance(other, str) else Gpu(other.name, UNKNOWN if other.free is None else other.free)


def _device(place: Place) -> str:
    if place == "cpu":
        return place
    return device_of(kind() or "cuda")


def _device_name(place: Place) -> str:
    if place == "cuda":
        return torch.cuda.get_device_name(CHOSEN.device) if kind() == "cuda" else _device(place)
    threads = torch.get_num_threads()
    return f"cpu, {threads} thread{'s' * (threads != 1)}"


def _ends(model: HfModel) -> frozenset[int]:
    generation = getattr(model.network, "generation_config", None)
    ends = getattr(generation, "eos_token_id", None)
    ends = getattr(model.network.config.get_text_config(), "eos_token_id", None) if ends is None else ends
    return frozenset([ends] if isinstance(ends, int) else ends or ())
