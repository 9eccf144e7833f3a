"""What only a GPU can show: captured graphs equal eager launches, long replies, memory that does not grow."""

from pathlib import Path

import pytest
import torch

from specchat.bench.published import PUBLISHED
from specchat.config.paths import demo_model
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.weights import load, random
from specchat.engine.gpu_checks.demo import write as reply
from specchat.engine.hardware.gpu_counters import Counters
from specchat.engine.heads.files import FoundHeads, HeadFiles
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.pair import Quant
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.runner import Runner
from specchat.engine.strategies import HEADED, STRATEGIES
from specchat.engine.strategy import Head
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.published_heads import eagle, medusa

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CONTEXT = 1024
PROMPT = list(range(20, 120))
TOKENS = 400
"""Short replies can agree where longer ones part; these also cross a boundary of attention's splits."""
LENGTHS = (1, 2, 3, 7, 15)
SAMPLINGS = (Sampling(), Sampling(seed=4, temperature=0.8, top_p=0.9), Sampling(seed=5, temperature=1.0, top_k=50))


def loaded(name: str, quant: Quant | None, dtype: torch.dtype) -> DeviceDecoder:
    checkpoint, device = Checkpoint.open(demo_model(name)), torch.device("cuda")
    weights = load(checkpoint, quant, device, dtype)
    return DeviceDecoder(checkpoint.config, weights, CONTEXT, device, dtype)


def runner(quant: Quant | None, captured: bool, dtype: torch.dtype = torch.bfloat16) -> Runner:
    """The demo pair in bfloat16, as published pairs are, unless told otherwise."""
    target, draft = loaded("target", quant, dtype), loaded("draft", None, dtype)
    return device_runner(target, draft, target.config.vocab, torch.device("cuda"), captured)


def write(pair: Runner, strategy: str, length: int, sampling: Sampling) -> list[int]:
    return reply(pair, strategy, length, sampling, PROMPT, TOKENS)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("quant", [None, "nf4", "fp4", "int8"])
def test_any_draft_any_length_graphs_or_not_the_text_is_plain(quant: Quant | None, dtype: torch.dtype) -> None:
    eager, captured = runner(quant, False, dtype), runner(quant, True, dtype)
    for sampling in SAMPLINGS:
        plain = write(eager, "plain", 0, sampling)
        assert write(captured, "plain", 0, sampling) == plain
        for strategy in captured.drafters.keys() - {"plain"}:
            for length in LENGTHS:
                assert write(captured, strategy, length, sampling) == plain, (sampling, strategy, length)
        assert write(eager, "draft", 5, sampling) == plain


@pytest.mark.parametrize("quant", [None, "nf4", "int8"])
def test_experts_change_no_text(quant: Quant | None) -> None:
    """Layers of Qwen3-30B-A3B with random weights draft for themselves: all is accepted; what copies is not."""
    config, device = PUBLISHED["qwen3-30b-a3b"].cut(5).target, torch.device("cuda")
    weights = random(config, quant, device, torch.bfloat16)
    target, twin = (DeviceDecoder(config, weights, CONTEXT, device, torch.bfloat16) for _ in range(2))
    eager, captured = (device_runner(target, twin, config.vocab, device, how) for how in (False, True))
    for sampling in SAMPLINGS:
        plain = write(eager, "plain", 0, sampling)
        assert write(captured, "plain", 0, sampling) == plain
        for strategy in ("draft", "draft-tree", "lookup", "swift", "early-exit"):
            for length in (1, 3, 15):
                assert write(captured, strategy, length, sampling) == plain, (sampling, strategy, length)
        assert write(eager, "draft", 5, sampling) == plain


def test_heads_change_no_text(tmp_path: Path) -> None:
    """Random ones: what they draft is mostly refused, along chains and in trees."""
    target = loaded("target", None, torch.bfloat16)
    c = target.config
    folders: dict[Head, Path] = {
        "medusa": medusa(tmp_path / "medusa", hidden=c.hidden, vocab=c.vocab),
        "eagle": eagle(tmp_path / "eagle", hidden_size=c.hidden, vocab_size=c.vocab),
    }
    found = FoundHeads({head: HeadFiles.open(folder) for head, folder in folders.items()})
    headed = device_runner(target, None, c.vocab, torch.device("cuda"), found=found)
    eager = runner(None, captured=False)
    for sampling in SAMPLINGS:
        plain = write(eager, "plain", 0, sampling)
        for strategy in ("eagle", "eagle2", "medusa"):
            for length in (1, 5, 15):
                assert write(headed, strategy, length, sampling) == plain, (sampling, strategy, length)


def test_replay_after_replay_gives_the_same() -> None:
    pair = runner("nf4", captured=True)
    texts = {tuple(write(pair, "draft", 5, SAMPLINGS[1])) for _ in range(20)}
    assert len(texts) == 1


def test_memory_does_not_grow_over_ten_thousand_tokens() -> None:
    pair = runner("nf4", captured=True)
    strategies = sorted(pair.drafters)
    assert strategies == sorted(STRATEGIES.keys() - HEADED)
    for strategy in strategies:
        write(pair, strategy, 5, SAMPLINGS[0])
    held = torch.cuda.memory_allocated()
    for turn in range(25):
        write(pair, strategies[turn % len(strategies)], 5, SAMPLINGS[turn % 3])
    assert torch.cuda.memory_allocated() == held


def test_the_counters_of_the_gpu_that_a_pair_runs_on_are_read() -> None:
    """By the name that torch has for it."""
    read = Counters(runner(None, captured=False).gpu).read()
    assert 0 < read.free < read.total
