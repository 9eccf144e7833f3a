"""A long conversation costs no more memory than its own text."""

import gc
import tracemalloc
from pathlib import Path

import pytest
import torch

from specchat.engine.loading import load
from specchat.engine.prefixes.bounds import MEMORY
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from specchat.engine.strategies import STRATEGIES
from tests.engine.tiny import checkpoint, on_cpu, perturbed

REPLY = 230
WITHOUT_HEADS = [name for name, info in STRATEGIES.items() if not info.needs_head]
SETTLED = len(WITHOUT_HEADS)
"""Turns after which buffers that are made once are there; the last turn is by the strategy of the last of these."""
TURNS = 2 * SETTLED
WINDOW = 5
"""Messages that are sent: a random model's bytes take three times their tokens when read back as text."""
BYTES_A_TOKEN = 650
"""Room for a token's id, text, place in the lookup index and record of its step, and for times of the last steps."""


def tensor_bytes() -> int:
    gc.collect()
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors()}
    return sum(storages.values())


def tensors() -> list[torch.Tensor]:
    return [o for o in gc.get_objects() if type(o) is torch.Tensor and o.layout is torch.strided]


def turn(session: Session, chat: list[Message], index: int) -> int:
    chat.append(Message("user", f"turn {index}"))
    number = index % len(WITHOUT_HEADS)
    request = Generate(
        index,
        tuple(chat[-WINDOW:]),
        Sampling(seed=index, temperature=0.7 * (number % 2)),
        Limits(REPLY),
        Speculation.of(WITHOUT_HEADS[number]),
    )
    *_, finished = session.generate(request)
    assert isinstance(finished, Finished)
    chat.append(Message("assistant", finished.text))
    return len(finished.token_ids)


def test_thousands_of_tokens_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEMORY, "0")  # entries of read texts have bounds of their own
    target = checkpoint(tmp_path / "t", max_position_embeddings=8192, num_key_value_heads=2, eos_token_id=None)
    draft = perturbed(tmp_path / "d", target, 0.05)
    pair = PairSpec("t", "T", on_cpu(target), on_cpu(draft))
    session = load(pair, lambda _: None)
    session.eos = frozenset()
    chat: list[Message] = []
    tokens = sum(turn(session, chat, i) for i in range(SETTLED))
    held, known = tensor_bytes(), session.runner.memory()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        later = sum(turn(session, chat, i) for i in range(SETTLED, TURNS))
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert tokens + later >= 5_000
    assert tensor_bytes() <= held
    assert session.runner.memory() == known
    assert grown <= BYTES_A_TOKEN * later, f"{grown / later:.0f} bytes a token"
