"""A draft of fewer tokens on the device: logits, what it drafts, the memory it takes, and the kernels it asks for."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.rehearsal import HOST, blank
from specchat.engine.device.weights import load
from specchat.engine.kernels.gpu_shapes import VERIFY_ROWS
from specchat.engine.kernels.processors import processors
from specchat.engine.memory.need import Model, quantised
from specchat.engine.memory.plan import GPU_RUNTIME, plan
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.pair import Quant
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.host import host_runner
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import CONTEXT, DEVICE, ON_GPU, SHAPE, Folders, decoder
from tests.device.test_decoding import PROMPT, SAMPLINGS, write
from tests.engine.tiny import VOCAB, checkpoint

EVEN = tuple(range(0, VOCAB, 2))


def few(folder: Path) -> Checkpoint:
    return replace(Checkpoint.open(folder), drafts=EVEN)


def few_on_device(
    folder: Path, dtype: torch.dtype = torch.float32, quant: Quant | None = None, head: Quant | None = None
) -> DeviceDecoder:
    opened = few(folder)
    return DeviceDecoder(opened.config, load(opened, quant, DEVICE, dtype, head), CONTEXT, DEVICE, dtype)


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_has_the_rows_of_its_tokens(tied: bool, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", **SHAPE | {"tie_word_embeddings": tied})
    tokens = torch.tensor([5, 201, 7], device=DEVICE, dtype=torch.int32)
    start = torch.zeros(1, device=DEVICE, dtype=torch.int32)
    logits = []
    for model in (decoder(folder), few_on_device(folder)):
        model.forward(tokens, start, 3)
        logits.append(model.logits(1, 2)[:2].cpu())
    whole, some = logits
    torch.testing.assert_close(some[:, ::2], whole[:, ::2])
    assert bool((some[:, 1::2] == float("-inf")).all())


@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    ("strategy", "name"), [("draft", "filtered"), ("draft", "penalised"), ("draft-tree", "sampled")]
)
def test_it_drafts_what_the_host_drafts(strategy: str, name: str, shallow: Folders) -> None:
    """And the text is plain's."""
    target = decoder(shallow.target)
    ours = device_runner(target, few_on_device(shallow.draft), VOCAB, DEVICE)
    theirs = host_runner(ReferenceDecoder(Checkpoint.open(shallow.target)), ReferenceDecoder(few(shallow.draft)))
    drafts = []
    for pair in (ours, theirs):
        pair.target.begin(PROMPT)
        drafter = pair.drafters[strategy]
        drafter.begin(PROMPT)
        reply = pair.reply(SAMPLINGS[name], list(PROMPT), ())
        drafts.append(reply.step(drafter, 3, "coupled").drafts)
        reply.close()
    assert drafts[0] == drafts[1]
    assert set(drafts[0]) <= set(EVEN)
    plain = write(ours, "plain", 0, SAMPLINGS[name], tokens=6)
    assert write(ours, strategy, 3, SAMPLINGS[name], tokens=6) == plain


@pytest.mark.parametrize("acceptance", ["ratio", "block"])
def test_what_it_drew_is_judged_as_on_the_host(acceptance: str, shallow: Folders) -> None:
    made = []
    for pair in (
        device_runner(decoder(shallow.target), few_on_device(shallow.draft), VOCAB, DEVICE),
        host_runner(ReferenceDecoder(Checkpoint.open(shallow.target)), ReferenceDecoder(few(shallow.draft))),
    ):
        pair.target.begin(PROMPT)
        drafter = pair.drafters["draft"]
        drafter.begin(PROMPT)
        reply = pair.reply(Sampling(seed=4, temperature=1.6), list(PROMPT), ())
        steps = [reply.step(drafter, 3, acceptance) for _ in range(3)]  # type: ignore[arg-type]
        made.append([(step.tokens, step.path, step.drafts) for step in steps])
        reply.close()
    assert made[0] == made[1]


@pytest.mark.parametrize("quant", [None, "int8"])
def test_what_it_takes_is_planned(quant: Quant | None, tmp_path: Path) -> None:
    if quant:
        pytest.importorskip("bitsandbytes")
    vocab = 40_000
    shape = {"hidden_size": 128, "vocab_size": vocab, "tie_word_embeddings": True}
    folder = checkpoint(tmp_path / "m", **SHAPE | shape)
    big, small = decoder(folder, torch.float16), few_on_device(folder, torch.float16, quant, quant)
    draft = Model(big.config, "cuda", head_rows=len(EVEN))
    if quant is not None:
        draft = quantised(draft, quant)
    planned = plan(Model(big.config, "cuda"), draft, CONTEXT, processors(DEVICE)).need("cuda")
    runner = device_runner(big, small, vocab, DEVICE)
    assert planned.total - GPU_RUNTIME == pytest.approx(runner.memory(), rel=0.01)


@pytest.mark.skipif(ON_GPU, reason="kernels that run on a GPU cannot read main memory")
def test_its_kernels_can_be_found_before_it_runs(shallow: Folders) -> None:
    stand_in = blank(few_on_device(shallow.draft))
    assert isinstance(stand_in.weights.head, torch.Tensor)
    stand_in.weights.head.zero_()
    logits = stand_in.logits(0, 1)
    assert (logits.shape, logits.device) == ((VERIFY_ROWS, VOCAB), HOST)
    assert stand_in.weights.head.shape[0] == len(EVEN)
