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

STEPS = 5


def alone(decoder: CpuDecoder, text: list[int]) -> list[Tensor]:
    """Logits after the last tokens of a text, each from a pass over it alone."""
    decoder.forward(text[:-STEPS], 0)
    last = range(len(text) - STEPS, len(text))
    return [decoder.logits_after([text[at]], at)[0].clone() for at in last]


def copied(decoder: CpuDecoder, text: list[int]) -> CacheCopy:
    made, held = decoder.copied(), list[int]()
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
    texts = [tokens(length, seed=length) for length in (9, 90, 33, 64)]
    expected = [alone(decoder, text) for text in texts]
    copies = [copied(decoder, text[:-STEPS]) for text in texts]
    held = [*decoder.entries().tensors, *(part for copy in copies for part in copy.entries.tensors)]
    for part in decoder.entries().tensors:
        part.fill_(97)
    read = [0] * len(texts)
    while any(done < STEPS for done in read):
        there = [len(text) - STEPS + done for text, done in zip(texts, read, strict=True)]
        for copy, at in zip(copies, there, strict=True):
            for part in copy.entries.tensors:
                part[:, at:] = random.randint(1, 99)  # what is after a text counts for nothing
        before = [part.clone() for part in held]
        left = [i for i, done in enumerate(read) if done < STEPS]
        going = random.sample(left, random.randint(1, len(left)))
        fed = [texts[i][there[i] : there[i] + random.randint(1, STEPS - read[i])] for i in going]
        rows = decoder.logits_apart(fed, [there[i] for i in going], [copies[i] for i in going])
        for i, own in zip(going, rows.split([len(of_text) for of_text in fed]), strict=True):
            assert torch.equal(own, torch.stack(expected[i][read[i] : read[i] + len(own)])), (read, i)
            read[i] += len(own)
        for number, (part, old) in enumerate(zip(held, before, strict=True)):
            i = number // len(decoder.entries().tensors) - 1
            changed = (part != old).flatten(2).any(-1).any(0).nonzero().flatten().tolist()
            assert set(changed) <= set(range(there[i], len(texts[i]) - STEPS + read[i]) if i >= 0 else ())


def test_recurrent_states_have_no_copies(tmp_path: Path) -> None:
    decoder = CpuDecoder(Checkpoint.open(checkpoint(tmp_path / "m", **FAMILIES["qwen3_5"])))
    assert decoder.copied() is None
