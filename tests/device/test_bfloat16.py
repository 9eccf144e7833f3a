"""Replies in bfloat16 with nested 4-bit weights and a draft of int8, as the large pairs are run."""

import torch

from specchat.engine.runners.device import device_runner
from tests.device.conftest import DEVICE, Folders, decoder
from tests.device.test_decoding import SAMPLINGS, write
from tests.engine.tiny import VOCAB


def test_any_draft_writes_the_plain_text(shallow: Folders) -> None:
    target = decoder(shallow.target, torch.bfloat16, "nf4")
    runner = device_runner(target, decoder(shallow.draft, torch.bfloat16, "int8", "int8"), VOCAB, DEVICE)
    for sampling, strategies in (("greedy", ("draft",)), ("filtered", ("draft-tree",))):
        plain = write(runner, "plain", 0, SAMPLINGS[sampling])
        for strategy in strategies:
            assert write(runner, strategy, 3, SAMPLINGS[sampling]) == plain
    assert target.entries[0][0].dtype == torch.bfloat16
