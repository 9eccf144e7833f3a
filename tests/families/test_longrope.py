"""LongRoPE: factors by the length that a cache is made for, as transformers has them for texts of that length."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specchat.engine.loading import load
from specchat.engine.memory.plan import context_of
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.host import host_model
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.conftest import unmeasured as unmeasured
from tests.engine.test_bad_models import edit, pair, refusal
from tests.engine.test_decoder import reference, tokens
from tests.engine.tiny import FAMILIES, checkpoint

LONG = FAMILIES["phi3"] | {
    "original_max_position_embeddings": 64,
    "sliding_window": None,
    "rope_scaling": {
        "type": "longrope",
        "short_factor": [1 + 0.1 * i for i in range(8)],
        "long_factor": [2.0 + i for i in range(8)],
    },
}


def logits(model: CachedDecoder, ids: list[int]) -> torch.Tensor:
    return torch.cat([model.logits(model.forward(ids[i : i + 50], i)).clone() for i in range(0, len(ids), 50)])


@pytest.mark.parametrize("kind", [ReferenceDecoder, host_model])
@pytest.mark.parametrize(("asked", "held", "length"), [(None, 64, 60), (200, 200, 150)], ids=["short", "long"])
def test_its_logits_are_those_of_transformers(
    asked: int | None, held: int, length: int, kind: type[ReferenceDecoder], tmp_path: Path
) -> None:
    folder, ids = checkpoint(tmp_path / "m", seed=3, **LONG), tokens(length)
    opened = Checkpoint.open(folder)
    context = context_of(opened.config, asked)
    assert context == held
    theirs = reference(folder, ids)
    assert (logits(kind(opened, context), ids) - theirs).abs().max() < 1e-5 * theirs.abs().max()


@pytest.mark.usefixtures("unmeasured")
def test_entries_of_short_and_long_contexts_are_told_apart(tmp_path: Path) -> None:
    """Read texts on disk are those of models with the same entries."""
    spec = pair(checkpoint(tmp_path / "m", **LONG))

    def entries(context: int) -> str:
        return load(replace(spec, context=context), lambda _: None).runner.long_factors

    assert entries(32) == entries(64) != entries(65) == entries(200)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"short_factor": [1.0] * 7}, "short_factor has 7 values, and 8 pairs of values are rotated"),
        ({"long_factor": None}, "key 'long_factor' is missing"),
        ({"long_factor": [0.0] * 8}, "0.0], not a list of positive numbers"),
    ],
)
def test_other_factors_are_refused_in_a_sentence(change: dict[str, object], words: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", **LONG)
    edit(folder, rope_scaling=LONG["rope_scaling"] | change)
    assert words in refusal(pair(folder))
