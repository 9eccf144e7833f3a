"""Rows of several texts in one pass: each bit for bit as alone, whatever the copies of the cache for others hold."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor

from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.model.cache_copy import CacheCopy, move
from specchat.engine.protocol.pair import KvCache
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.test_decoder import tokens
from tests.engine.tiny import FAMILIES, checkpoint

STEPS = 3


def alone(decoder: CpuDecoder, text: list[int]) -> list[Tensor]:
    """Logits after the last tokens of a text, each from a pass over it alone."""
    decoder.forward(text[:-STEPS], 0)
    last = range(len(text) - STEPS, len(text))
    return [decoder.logits_after([text[at]], at)[0].clone() for at in last]


def copied(decoder: CpuDecoder, text: list[int]) -> CacheCopy:
    made, held = decoder.copied([]), list[int]()
    assert made is not None
    decoder.forward(text, 0)
    move(decoder.entries(), text, made.entries, held)
    assert held == text
    return made


@pytest.mark.parametrize(
    ("family", "cache"), [("llama-gqa-untied", None), ("llama-gqa-untied", "int8"), ("gemma4_e", None), ("lfm2", None)]
)
def test_rows_of_several_texts_are_those_of_each_alone(family: str, cache: KvCache | None, tmp_path: Path) -> None:
    random = Random(1)
    opened = Checkpoint.open(checkpoint(tmp_path / "m", **FAMILIES[family]))
    decoder = CpuDecoder(replace(opened, config=opened.config.with_cache(cache)))
    texts = [tokens(length, seed=length) for length in (5, 90, 33, 64)]
    expected = [alone(decoder, text) for text in texts]
    copies = [copied(decoder, text[:-STEPS]) for text in texts]
    held = [*decoder.entries().tensors, *(part for copy in copies for part in copy.entries.tensors)]
    for part in decoder.entries().tensors:
        part.fill_(97)
    for step in range(STEPS):
        there = [len(text) - STEPS + step for text in texts]
        for copy, at in zip(copies, there, strict=True):
            for part in copy.entries.tensors:
                part[:, at:] = random.randint(1, 99)  # what is after a text counts for nothing
        before = [part.clone() for part in held]
        order = random.sample(range(4), 4)
        rows = decoder.logits_apart(
            [texts[i][there[i]] for i in order], [there[i] for i in order], [copies[i] for i in order]
        )
        for i, row in zip(order, rows, strict=True):
            assert torch.equal(row, expected[i][step]), (step, i)
        for number, (part, old) in enumerate(zip(held, before, strict=True)):
            of_copy = number // len(decoder.entries().tensors) - 1
            changed = (part != old).flatten(2).any(-1).any(0).nonzero().flatten().tolist()
            assert set(changed) <= ({there[of_copy]} if of_copy >= 0 else set())


def test_recurrent_states_have_no_copies(tmp_path: Path) -> None:
    decoder = CpuDecoder(Checkpoint.open(checkpoint(tmp_path / "m", **FAMILIES["qwen3_5"])))
    assert decoder.copied([]) is None
