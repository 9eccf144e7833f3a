"""Finds and compiles the kernels of a tiny pair for a GPU that is not here; prints what came of it as JSON.

Runs in a process of its own, without the interpreter, for the cache of Triton is that of the process.
"""

import json
import pkgutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import JITFunction, driver

from specchat.engine import kernels
from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.length_policy import LengthPolicies
from specchat.engine.device.apart import LoopsApart
from specchat.engine.device.company import DeviceSeat, DeviceTexts
from specchat.engine.device.compile import Absent, Kernel, compile_all, rehearsed
from specchat.engine.device.cut import load_model
from specchat.engine.device.decoder import DeviceDecoder, RowOptions
from specchat.engine.device.inputs import PassInputs
from specchat.engine.device.model import DeviceModel
from specchat.engine.device.rehearsal import HOST, Rehearsed, blank
from specchat.engine.device.stepwise import DeviceRows
from specchat.engine.device.weights import load
from specchat.engine.kernels.processors import as_with
from specchat.engine.memory.need import Model
from specchat.engine.model.cache_copy import CacheCopy
from specchat.engine.protocol.picture_ids import FIRST
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.device import device_runner, rehearse, rehearse_passes
from specchat.engine.weights.checkpoint import Checkpoint

WIDE = 300
QUICK = ("_embed", "_gate_mul", "_combine", "_commit")
"""Kernels that take little time to compile."""


def decoder(folder: str) -> DeviceDecoder:
    opened = Checkpoint.open(Path(folder))
    return DeviceDecoder(opened.config, load(opened, None, HOST, torch.bfloat16), 512, HOST, torch.bfloat16)


def launched() -> set[str]:
    """Names of the kernels that the host launches; others are called by these."""
    modules = [import_module(f"{kernels.__name__}.{m.name}") for m in pkgutil.iter_modules(kernels.__path__)]
    source = "".join(Path(str(module.__file__)).read_text() for module in modules)
    names = {name for module in modules for name, one in vars(module).items() if isinstance(one, JITFunction)}
    return {name for name in names if f" {name}[(" in source}


def alone(target: DeviceDecoder) -> list[Kernel]:
    """The kernels of a target without a draft."""
    return rehearsed(lambda: rehearse(target, None, target.config.vocab))


class Blank:
    """A picture of more rows than a pass has, whose tokens see each other if they do so in a model."""

    deep = 2

    def __init__(self, mutual: bool) -> None:
        self._mutual = mutual

    def mutual(self, token: int) -> int:
        return WIDE if self._mutual and token == FIRST else 0

    def put(self, embedded: Tensor, tokens: object) -> Tensor:
        del tokens
        return embedded

    def add(self, x: Tensor, tokens: object, layer: int) -> Tensor:
        del tokens, layer
        return x


def finds_pictures(target: DeviceDecoder, found: list[Kernel]) -> bool:
    """True where kernels that read a picture are among those `found` at a load."""
    model = DeviceModel(blank(target), "target", target.config.vocab, Rehearsed(HOST, []), HOST)
    model.pictures = Blank(any(mixer.mutual for mixer in target.config.recipe.attentions))
    tokens = range(FIRST, FIRST + WIDE)

    def read() -> None:
        parts = [tokens] if model.pictures is not None and model.pictures.mutual(FIRST) else [tokens[:100], tokens[:9]]
        for part in parts:
            model.write(part, 0)

    wanted = {kernel.wanted for kernel in rehearsed(read)}
    return set() < wanted <= {kernel.wanted for kernel in found}


def finds_halves(folder: str) -> bool:
    """True where a target on two GPUs launches no kernel for its first layers but those of its rehearsal."""
    opened, gpus = Checkpoint.open(Path(folder)), {"cuda": HOST, "second-gpu": HOST}
    cut = load_model(opened, Model(opened.config, "cuda", first=2), 512, gpus, torch.bfloat16)
    front = blank(cut.halves[0])
    inputs = PassInputs(front)

    def passes() -> None:
        for rows in (1, 2, 8, 64, 256):
            front.forward(inputs.tokens, inputs.start, rows, options=RowOptions(inputs.last))

    wanted = {kernel.wanted for kernel in rehearsed(passes)}
    return set() < wanted <= {kernel.wanted for kernel in alone(cut)}


def finds_passes(draft: DeviceDecoder) -> bool:
    """True where a draft on a second GPU launches no kernel but those of its rehearsal."""
    vocab = draft.config.vocab
    found = rehearsed(lambda: rehearse_passes(draft, vocab))
    graphs = Rehearsed(HOST, [])
    cached = CachedModel(DeviceModel(blank(draft), "draft", vocab, graphs, HOST))
    model, loops = DeviceRows(cached.model, vocab), LoopsApart(cached, vocab, LengthPolicies(StepCosts()), graphs)

    def drafts() -> None:
        for length in (200, 40):
            model.write([0] * length, 0)
        for length in (1, 2, 3, 9, 70):
            loops.choose_there(model.forward([0] * length, 8)[-1:], 8 + length)

    wanted = {kernel.wanted for kernel in rehearsed(drafts)}
    return set() < wanted <= {kernel.wanted for kernel in found}


def finds_company(target: DeviceDecoder, found: list[Kernel]) -> bool:
    """True where replies in company launch no kernel but those `found` at a load."""
    vocab = target.config.vocab
    runner = device_runner(blank(target), None, vocab, HOST, graphs=Rehearsed, room=1 << 30)
    assert runner.passes is not None
    texts, seats = cast(DeviceTexts, runner.passes.model), list[CacheCopy]()
    while (seat := texts.copied(seats)) is not None:
        seats.append(seat)

    def passes() -> None:
        for some in (seats[:2], seats[1:], seats[::-1]):
            rows = texts.logits_apart([0] * len(some), [8] * len(some), some).split(1)
            for one, row in zip(some, rows, strict=True):
                cast(DeviceSeat, one).choose(row)

    wanted = {kernel.wanted for kernel in rehearsed(passes)}
    return len(seats) == 4 and set() < wanted <= {kernel.wanted for kernel in found}


def main() -> None:
    target, draft = decoder(sys.argv[1]), decoder(sys.argv[2])
    driver.set_active(Absent(GPUTarget("cuda", 80, 32)))

    def replies() -> None:
        rehearse(target, draft, target.config.vocab)

    found = rehearsed(replies)
    targets = [decoder(folder) for folder in sys.argv[3:]]
    of_targets = [(one, alone(one)) for one in targets]
    with as_with(8):
        smaller = rehearsed(replies)
    on_host = rehearsed(
        lambda: rehearse(target, ReferenceDecoder(Checkpoint.open(Path(sys.argv[2]))), target.config.vocab)
    )
    model = DeviceModel(blank(target), "target", target.config.vocab, Rehearsed(HOST, []), HOST)
    of_heads = rehearsed(lambda: [model.project(torch.zeros(rows, model.config.hidden)) for rows in (1, 3, 15)])
    pictures = [finds_pictures(one, kernels) for one, kernels in of_targets if one.config.sees]
    apart, halves = finds_passes(draft), finds_halves(sys.argv[1])
    company = [finds_company(one, kernels) for one, kernels in of_targets if one.recurrent is None]
    quick, told, hits = [kernel for kernel in found if kernel.name in QUICK], list[str](), list[bool]()

    def compiled(*, cache_hit: bool, **_: object) -> None:
        hits.append(cache_hit)

    compile_all(quick, told.append, 2)
    knobs.compilation.listener = compiled
    run = JITFunction.run

    def really(self: Any, *args: Any, grid: Any, **options: Any) -> Any:
        """Compile as a launch does, and do not launch."""
        options["warmup"] = True
        return run(self, *args, grid=grid, **options) if self.fn.__name__ in QUICK else None

    JITFunction.run = really
    replies()
    print(
        json.dumps(
            {
                "found": sorted(
                    kernel.name for kernels in (found, *(one for _, one in of_targets)) for kernel in kernels
                ),
                "launched": sorted(launched()),
                "no more": set() < {kernel.wanted for kernel in on_host} <= {kernel.wanted for kernel in found},
                "heads": set() < {kernel.wanted for kernel in of_heads} <= {kernel.wanted for kernel in found},
                "apart": apart,
                "company": company,
                "halves": halves,
                "pictures": pictures,
                "differ": {kernel.wanted for kernel in found} != {kernel.wanted for kernel in smaller},
                "compiled": len(quick),
                "told": told,
                "hits": hits,
            }
        )
    )


if __name__ == "__main__":
    main()
