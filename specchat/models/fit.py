"""Fit of a pair to this machine: by the planner where its shapes are known, else by what it states."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from specchat.config.catalog import PROGRAM_GIB, Pair
from specchat.engine.backends import DEFAULT_BACKEND, GGUF_BACKEND, HF_BACKEND
from specchat.engine.errors import ModelError
from specchat.engine.formats.activations import rounding_of
from specchat.engine.memory.cut import ON_TWO_GPUS, cannot_cut
from specchat.engine.memory.expert_price import describe_experts
from specchat.engine.memory.gpu_need import unsupported
from specchat.engine.memory.need import Model, Place
from specchat.engine.memory.plan import (
    GIB,
    SPARE,
    Plan,
    context_of,
    cut_in_two,
    drafting,
    for_both,
    making_room,
    nearest,
    plan,
)
from specchat.engine.memory.plan import fits as plan_fits
from specchat.engine.protocol.pair import QUANT_BITS, Activations, ModelSource, PairSpec
from specchat.engine.strategy import Head
from specchat.models.about import About
from specchat.models.heads import PairHeads
from specchat.models.machine import FreeMemory, unable
from specchat.models.speed import SpeedEstimate, estimate

Verdict = Literal["GPU", "CPU", "server", "no", "?"]
RUNTIME = 1 << 30
"""Bytes beside the weights where others run a model: cache, buffers and the program itself. A guess."""
LEAST_READ = 100e6
"""Bytes of a step from which its speed is that of memory; caches hold less."""


@dataclass(frozen=True)
class Fit:
    """How a pair runs here.

    Attributes:
        words: the reason, or the setting with which it would fit.
        without: the pair's heads that it does without.
        spills: True where the GPU has no room for all experts.
        second: True where a part lies on a second GPU.
        speed: an estimate for this machine.
        backend: what runs the pair, which may be another one than it names where specchat's decoder does not.
        takes: bytes of memory; 0 where they are not known.
        activations, forms: form of the target's rows on a CPU, and all that its weights take.
    """

    verdict: Verdict
    words: str = ""
    without: frozenset[Head] = frozenset()
    spills: bool = False
    second: bool = False
    speed: SpeedEstimate | None = None
    backend: str = DEFAULT_BACKEND
    takes: int = 0
    activations: Activations = "float32"
    forms: tuple[Activations, ...] = ()


PLACES: Mapping[Verdict, Place] = {"GPU": "cuda", "CPU": "cpu"}
"""Devices by their verdicts."""
NO_HEADS = PairHeads()


def fit(pair: Pair, target: About | None, draft: About | None, machine: FreeMemory, heads: PairHeads = NO_HEADS) -> Fit:
    """Fit of `pair`; `target` and `draft` are facts about its models, None where they are not here yet."""
    backend = runner(pair, target, draft, machine)
    run = replace(pair, spec=replace(pair.spec, backend=backend))
    found = replace(_fit(run, target, draft, machine, heads), backend=backend)
    if pair.spec.long_context and found.takes:
        found = replace(found, words=f"{found.words}; as long a context as fits takes more")
    place = None if found.spills else PLACES.get(found.verdict)
    if place is None or place not in machine.rates:
        return found
    speed = estimate(pair, target, draft, place, machine.rates[place])
    fastest = machine.rates[place] / LEAST_READ
    return found if speed is None or speed.plain > fastest else replace(found, speed=speed)


def runner(pair: Pair, target: About | None, draft: About | None, machine: FreeMemory) -> str:
    """The backend that will run a pair: its own, or the one that stands in for it, as loading chooses."""
    backend = pair.spec.backend
    if backend == GGUF_BACKEND and pair.spec.target.is_gguf and "llama_cpp" in machine.missing:
        backend = DEFAULT_BACKEND
    if backend != DEFAULT_BACKEND or not any(about is not None and about.foreign for about in (target, draft)):
        return backend
    return GGUF_BACKEND if pair.spec.target.is_gguf else HF_BACKEND


def _fit(pair: Pair, target: About | None, draft: About | None, machine: FreeMemory, heads: PairHeads) -> Fit:
    if pair.spec.target.server is not None:
        return Fit("server", "runs elsewhere and takes nothing here")
    if reason := pair.unsupported or unable(pair.spec, machine.missing, foreign=True):
        return Fit("no", reason)
    for key, setting in pair.spec.own_settings.items() if pair.spec.backend != DEFAULT_BACKEND else ():
        return Fit("no", f'{key} = "{setting}" is of specchat\'s own decoder, which does not run this pair')
    if target is not None and pair.spec.backend == GGUF_BACKEND:
        return _by_size(target.size + (draft.size if draft else 0), pair, machine)
    known = [about for about in (target, draft) if about is not None]
    if reason := next((about.why_not for about in known if about.config is None), ""):
        return Fit("no", reason)
    if target is not None and pair.spec.backend == HF_BACKEND:
        return _by_transformers(pair, target, draft, machine)
    if target is not None and target.config is not None and (draft is not None or pair.spec.draft is None):
        return _planned(pair, target, draft, machine, heads)
    return _stated(pair, machine)


def _planned(pair: Pair, target: About, draft: About | None, machine: FreeMemory, heads: PairHeads) -> Fit:
    available: dict[Place, int | None] = {
        "cuda": machine.gpu or 0,
        "second-gpu": machine.second,
        "cpu": machine.memory,
    }
    big = _model(pair.spec, pair.spec.target, target, machine)
    small = _model(pair.spec, pair.spec.draft, draft, machine) if pair.spec.draft and draft else None
    made = plan(big, small, context_of(big.config, pair.spec.context))
    asked = pair.spec.draft.quant if pair.spec.draft else None
    free = asked is None and made.models[-1].quant is None and "bitsandbytes" not in machine.missing
    on_gpu = making_room(drafting(made.on("cuda"), available, free=free), available)
    device = pair.spec.draft.device if pair.spec.draft else "cpu"
    if device == "second-gpu" and not machine.second:
        return Fit("no", 'its draft asks for device = "second-gpu", and there is no second GPU')
    if device == "second-gpu" or (device == "auto" and not plan_fits(on_gpu, available)):
        on_gpu = making_room(drafting(made.apart(), available, free=free), available)
    wanted = pair.spec.target.device
    lack = cannot_cut(big.config.recipe) or "there is no second GPU" * (not machine.second)
    if wanted == "both-gpus" and lack:
        return Fit("no", f'it asks for device = "both-gpus": {lack}')
    if wanted == "both-gpus" or (wanted == "auto" and for_both(made.on("cuda"), available)):
        cut = cut_in_two(drafting(made.on("cuda"), available, cut=True, free=free), available)
        on_gpu = cut if wanted == "both-gpus" or plan_fits(cut, available) else on_gpu
    reason = next((words for m in made.models if (words := unsupported(m.config))), "")
    if wanted != "cpu" and machine.gpu is not None and not reason and plan_fits(on_gpu, available):
        found = _with_heads(on_gpu, heads, available)
        if not on_gpu.target.experts_in_main:
            return _rounded(pair.spec, on_gpu, found)
        price = describe_experts(on_gpu.target, machine.bus)
        return _rounded(pair.spec, on_gpu, replace(found, words=f"{found.words}. {price}", spills=True))
    if wanted not in ("cuda", "both-gpus") and plan_fits(made, available):
        found = _with_heads(made, heads, available, f"; no GPU: {reason}" if reason and machine.gpu else "")
        return _rounded(pair.spec, made, found)
    return Fit("no", nearest(made, available))


def _rounded(pair: PairSpec, made: Plan, fitting: Fit) -> Fit:
    """A fit with the form of the target's rows; of a pair that asks to round what cannot be rounded it is "no"."""
    try:
        target = rounding_of(pair, pair.target, made.target.held)
        if pair.draft is not None and made.draft is not None:
            rounding_of(pair, pair.draft, made.draft.held, drafts=True)
    except ModelError as error:
        return Fit("no", error.message.rstrip("."))
    return replace(fitting, activations=target.activations, forms=made.target.held.forms(target.head))


def _with_heads(made: Plan, heads: PairHeads, available: Mapping[Place, int | None], otherwise: str = "") -> Fit:
    """A plan that fits with the heads that do so too, as loading makes it; `otherwise` are further words."""
    device = made.target.place
    without: set[Head] = set()
    for head, needed in heads.needs(made.target.config, made.context, device).items():
        more = replace(made, besides=made.besides + needed)
        if not made.target.first and plan_fits(more, available):
            made = more
        else:
            without.add(head)
    why = f"as {ON_TWO_GPUS}" if made.target.first else "which do not fit beside it"
    lacks = f"; without {' and '.join(sorted(without))} heads, {why}" if without else ""
    words = f"{_takes(made, device)}{lacks}{otherwise}"
    program = 0 if device == "cuda" else int(PROGRAM_GIB * GIB)
    takes = made.need(device).total + program
    second = "second-gpu" in made.places
    return Fit("GPU" if device == "cuda" else "CPU", words, frozenset(without), second=second, takes=takes)


def _model(pair: PairSpec, source: ModelSource, about: About, machine: FreeMemory) -> Model:
    assert about.config is not None
    wanted = None if source.quant == "none" else source.quant
    stored = about.stored
    quant = stored.quant if stored and stored.quant else wanted
    config = about.config.with_cache(pair.cache)
    model = Model(config, "cpu", quant, stored, half=about.half, threads=machine.threads, left=about.left)
    narrowed = (source.activations or pair.activations) == "bfloat16"
    return replace(model, int8_head=bool(source.head or pair.head) and model.held.dense_head, narrowed=narrowed)


def _takes(made: Plan, device: Place) -> str:
    need = made.need(device).total / GIB
    if device == "cuda":
        second = made.need("second-gpu").total / GIB
        return f"takes {need:.1f} GiB of GPU memory" + f", and {second:.1f} of a second GPU's" * (second > 0)
    return f"takes {need:.1f} GiB of memory, and the program itself {PROGRAM_GIB:g}"


def _stated(pair: Pair, machine: FreeMemory) -> Fit:
    needs, gpu = pair.requires, machine.llama_gpu if pair.spec.backend == GGUF_BACKEND else machine.gpu
    if needs.vram_gib is not None and gpu is not None and _holds(gpu, needs.vram_gib * GIB):
        return Fit("GPU", f"needs {needs.vram_gib:g} GiB of GPU memory, by its shape", takes=int(needs.vram_gib * GIB))
    if spilt := _spilt(pair, machine):
        words = f"needs {needs.vram_gib:g} GiB of GPU memory, by its shape; {spilt:.1f} of experts lie in main memory"
        return Fit("GPU", words, spills=True, takes=int(needs.vram_gib * GIB) if needs.vram_gib else 0)
    if needs.ram_gib is not None and _holds(machine.memory, needs.ram_gib * GIB):
        return Fit("CPU", f"needs {needs.ram_gib:g} GiB of memory, by its shape", takes=int(needs.ram_gib * GIB))
    if needs.ram_gib is None and needs.vram_gib is None:
        if needs.disk_gib is None:
            return Fit("?", "its needs are known once it is here")
        return _by_size(int(needs.disk_gib * GIB), pair, machine)
    return Fit("no", f"needs {needs.ram_gib or needs.vram_gib:g} GiB, and {_usable(machine)}")


def _spilt(pair: Pair, machine: FreeMemory) -> float:
    """GiB of experts in main memory with which the rest fits the GPU; 0 where that is in vain."""
    needs = pair.requires
    if needs.vram_gib is None or machine.gpu is None:
        return 0.0
    spilt = needs.vram_gib - (1 - SPARE) * machine.gpu / GIB
    return spilt if 0 < spilt <= (needs.experts_gib or 0) and _holds(machine.memory, spilt * GIB) else 0.0


def _by_size(files: int, pair: Pair, machine: FreeMemory) -> Fit:
    """Needs of llama.cpp, or of what is not here, are not worked out: the files must fit, with some room."""
    size = files + RUNTIME
    words = f"takes about {size / GIB:.1f} GiB, by the size of its file"
    gpu = machine.llama_gpu if pair.spec.backend == GGUF_BACKEND else machine.gpu
    if gpu is not None and _holds(gpu, size):
        return Fit("GPU", words, takes=size)
    return _in_memory(machine, size, words)


def _by_transformers(pair: Pair, target: About, draft: About | None, machine: FreeMemory) -> Fit:
    """Its needs are not worked out here either; on the CPU it makes float32 of 16 bits that are not quantised."""
    on_gpu = on_cpu = float(RUNTIME)
    for source, about in ((pair.spec.target, target), (pair.spec.draft, draft)):
        if source is not None and about is not None:
            bits = QUANT_BITS[source.quant] / 16 if about.half and source.quant in QUANT_BITS else 1.0
            on_gpu += about.size * bits
            on_cpu += about.size * (2 if about.half and bits == 1.0 else bits)
    if machine.gpu is not None and _holds(machine.gpu, on_gpu):
        words = f"run by transformers; takes about {on_gpu / GIB:.1f} GiB of GPU memory"
        return Fit("GPU", words, takes=int(on_gpu))
    words = f"run by transformers; takes about {on_cpu / GIB:.1f} GiB"
    return _in_memory(machine, on_cpu, words)


def _in_memory(machine: FreeMemory, size: float, words: str) -> Fit:
    """The fit of `size` bytes, of which `words` tell."""
    if _holds(machine.memory, size):
        return Fit("CPU", words, takes=int(size))
    return Fit("no", f"{words}, and {_usable(machine)}")


def _usable(machine: FreeMemory) -> str:
    free = (machine.memory or 0) / GIB
    return f"{(1 - SPARE) * free:.1f} of the {free:.1f} GiB that are free can be used"


def _holds(free: int | None, size: float) -> bool:
    return free is None or size <= (1 - SPARE) * free
