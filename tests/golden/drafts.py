"""What each strategy drafts and what heads score on the processor, step by step, with the demo and random models.

Drafts are as long as they may be, so that none ends by the clock. `auto`, which goes by it, is left out. Heads go
through torch, whose sums are brought into one order (`ordered.py`).
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from torch import Tensor

from specchat.config.catalog import load_catalog
from specchat.config.paths import demo_model
from specchat.engine.heads.files import FoundHeads, HeadFiles
from specchat.engine.protocol.options import Acceptance, Sampling
from specchat.engine.runners.host import host_model, host_runner
from specchat.engine.runners.runner import DraftingLayers, Runner
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import Head
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.published_blocks import dflash, dflash2, dspark, xpress
from tests.engine.published_heads import eagle, eagle3, medusa, mtp, peagle
from tests.engine.tiny import FAMILY, checkpoint
from tests.golden.models import Bits, near, refilled, token_ids
from tests.golden.ordered import InOneOrder

SAMPLINGS: dict[str, tuple[Sampling, Acceptance]] = {
    "greedy": (Sampling(), "coupled"),
    "drawn": (Sampling(seed=5, temperature=0.8), "coupled"),
    "penalties": (Sampling(seed=6, temperature=0.9, top_k=40, top_p=0.95, repetition_penalty=1.2), "coupled"),
    "ratio": (Sampling(seed=7, temperature=1.0), "ratio"),
}
FEW = ("greedy", "ratio")
"""Samplings of the demo."""
ALIKE = ("greedy",)
"""Those of heads that differ from another one in their layers or layout alone."""
STEPS, LENGTHS = 6, (3, 7)
TEXT = [*token_ids(40), *[7, 11, 13, 17] * 5]
"""Repeats something, for the strategies that copy."""


def bits(runner: Runner, strategies: list[str], samplings: Iterable[str] = SAMPLINGS) -> Bits:
    """Digests of the steps of each strategy and of what its head scored; some of its first drafts as they are."""
    runner.executor.policies.off = True
    found: dict[str, str] = {}
    shown: dict[str, Any] = {}
    scored = spied(runner)
    for name in strategies:
        drafter = runner.drafters[name]
        for options in samplings:
            sampling, acceptance = SAMPLINGS[options]
            steps: list[Any] = []
            scored.clear()
            for length in LENGTHS:
                runner.target.keep(0)
                for one in runner.drafters.values():
                    one.forget()
                    one.begin(TEXT)
                runner.target.begin(TEXT)
                reply = runner.reply(sampling, list(TEXT), ())
                for _ in range(STEPS):
                    step = reply.step(drafter, length, acceptance)
                    steps.append((step.tokens, step.drafts, step.parents, step.path, step.confidence))
                reply.close()
            found[f"{name}, {options}"] = sha256(repr(steps).encode() + b"".join(scored)).hexdigest()[:32]
            if options == "greedy":
                shown[name] = [list(steps[0][1]), list(steps[0][4])]
    return {"sha256": found, "shown": shown}


def spied(runner: Runner) -> list[bytes]:
    """What heads score from here on."""
    scored: list[bytes] = []
    for role, cached in runner.executor.loops._models.items():
        if role not in ("target", "draft"):
            cached.model.logits = partial(kept, cached.model.logits, scored)
    return scored


def kept(logits: Callable[[Tensor], Tensor], scored: list[bytes], hidden: Tensor) -> Tensor:
    made = logits(hidden)
    scored.append(made.contiguous().numpy().tobytes())
    return made


def runner_of(target: Path, draft: Path | None, heads: Mapping[Head, Path], exit_layer: int | None = None) -> Runner:
    big = host_model(Checkpoint.open(target), 256)
    small = None if draft is None else host_model(Checkpoint.open(draft), 256)
    found = FoundHeads({head: HeadFiles.open(path) for head, path in heads.items()})
    return host_runner(big, small, DraftingLayers(exit_layer), found)


def strategies_of(runner: Runner, head: Head | None = None) -> list[str]:
    """Those that it has but for `auto`; those of a `head` alone if one is named."""
    wanted = (name for name in runner.drafters if head is None or getattr(STRATEGIES[name].head, "name", None) == head)
    return [name for name in wanted if name != "auto"]


def demo(root: Path) -> Bits:
    del root
    spec = load_catalog(None).find("demo").spec
    heads = {head: demo_model(head) for head in spec.heads}
    with InOneOrder():
        runner = runner_of(demo_model("target"), demo_model("draft"), heads, spec.exit_layer)
        return bits(runner, strategies_of(runner), FEW)


def without_heads(changes: Mapping[str, Any], root: Path) -> Bits:
    target = refilled(checkpoint(root / "target", **changes), 8)
    draft = near(root / "draft", target, 9)
    with InOneOrder():
        runner = runner_of(target, draft, {})
        return bits(runner, strategies_of(runner))


def headed(head: Head, write: Callable[[Path], Path], samplings: Iterable[str], root: Path) -> Bits:
    target = refilled(checkpoint(root / "target", num_key_value_heads=2, tie_word_embeddings=False), 10)
    folder = refilled(write(root / "head"), 11)
    with InOneOrder():
        runner = runner_of(target, None, {head: folder})
        found = bits(runner, strategies_of(runner, head), samplings)
    assert found["sha256"], runner.statuses
    return found


HEADS: dict[str, tuple[Head, Callable[[Path], Path]]] = {
    "medusa": ("medusa", medusa),
    "medusa of two blocks": ("medusa", partial(medusa, heads=3, blocks=2)),
    "eagle": ("eagle", eagle),
    "eagle with embeddings": ("eagle", partial(eagle, bias=False, embeddings=True)),
    "eagle3": ("eagle3", eagle3),
    "eagle3 of all tokens": ("eagle3", partial(eagle3, few=None)),
    "eagle3 as qwen3": ("eagle3", partial(eagle3, few=None, model_type="qwen3")),
    "eagle3 normed": ("eagle3", partial(eagle3, states=[1, 2, 3], fc_norm=True, norm_before_fc=True)),
    "eagle3 of two layers": ("eagle3", partial(eagle3, layers=2)),
    "eagle3 of speculators": ("eagle3", partial(eagle3, layout="speculators", norm_output=True)),
    "eagle3 of modelopt": ("eagle3", partial(eagle3, layout="modelopt", few=None, states=[0, 2, 4])),
    "eagle3 normed before its residual": ("eagle3", partial(eagle3, few=None, norm_before_residual=True)),
    "peagle": ("peagle", peagle),
    "mtp": ("mtp", mtp),
    "dflash": ("dflash", dflash),
    "dflash of speculators": ("dflash", partial(dflash, layout="speculators", few=120)),
    "dflash with windows": (
        "dflash",
        partial(dflash, layer_types=["sliding_attention", "full_attention"], sliding_window=7),
    ),
    "dflash2": ("dflash2", partial(dflash2, best=240)),
    "dspark": ("dspark", dspark),
    "dspark gated": ("dspark", partial(dspark, kind="gated")),
    "dspark rnn": ("dspark", partial(dspark, layout="speculators", kind="rnn", few=120)),
    "xpress": ("xpress", xpress),
    "xpress convolved": ("xpress", partial(xpress, layout="speculators", convolved=True)),
}

Case = Callable[[Path], Bits]
CASES: dict[str, Case] = {
    "demo": demo,
    **{
        f"{name} without heads": partial(without_heads, changes)
        for name, changes in {"llama": {"num_key_value_heads": 2}, "qwen3": FAMILY["qwen3"]}.items()
    },
    **{
        f"{name} head": partial(headed, head, write, SAMPLINGS if name == head else ALIKE)
        for name, (head, write) in HEADS.items()
    },
}
"""What is computed by name; each writes its checkpoints to a folder of its own."""
