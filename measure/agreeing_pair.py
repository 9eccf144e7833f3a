"""A random target and a smaller random draft, as GGUF files, that agree on a share of the tokens.

Each token is followed by one other, in a circle of all that the demo's tokenizer has: a head's row is the embedding of
the token before. Layers are random and add zeros to embeddings, so they cost what layers cost and decide nothing.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from measure.random_qwen3 import Mixture, Shape, Tables, write
from specchat.config.paths import demo_model
from specchat.engine.llama_cpp.vocabulary import Vocabulary
from specchat.engine.weights.checkpoint import Checkpoint

TOKENS, SPECIAL = 3072, 16
"""Tokens of the demo's tokenizer, and the special ones at their start, which follow none."""
TARGET, DRAFT = Shape(2048, 6144, 28, 32000), Shape(1024, 3072, 14, 32000, heads=8, kv_heads=4)
"""Shapes of 1.7B and 0.2B but for the vocabulary, which is Llama 2's."""
LOGIT = 20.0
ROW = 20
"""Tokens of the circle of which the agreed share is exact, so that any reply has it: all begin at one token."""


def write_pair(folder: Path, agreement: float, mixture: Mixture = "Q4_0") -> None:
    """Write target.gguf and draft.gguf, whose likeliest tokens are alike after a share `agreement` of the tokens."""
    rng = np.random.default_rng(0)
    circle = rng.permutation(np.arange(SPECIAL, TOKENS))
    after = np.zeros(TOKENS, np.int64)
    after[circle] = np.roll(circle, -1)
    few = round(ROW * (1 - agreement))
    rows = [rng.permutation(ROW)[:few] + start for start in range(0, len(circle) - ROW + 1, ROW)]
    drafted, unlike = after.copy(), circle[np.concatenate(rows)]
    drafted[unlike] = after[np.roll(unlike, 1)]
    vocabulary = Vocabulary.of(Checkpoint.open(demo_model("target")))
    folder.mkdir(parents=True, exist_ok=True)
    for name, shape, follows in (("target", TARGET, after), ("draft", DRAFT, drafted)):
        write(folder / f"{name}.gguf", shape, mixture, Tables(*_tables(shape.hidden, follows, rng), vocabulary))


def _tables(
    hidden: int, follows: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Embeddings and the head's rows, float32 [TOKENS, hidden]; rows of tokens that follow several are sums."""
    embeddings = rng.standard_normal((TOKENS, hidden)).astype(np.float32)
    head = np.zeros_like(embeddings)
    np.add.at(head, follows[SPECIAL:], embeddings[SPECIAL:] * np.float32(LOGIT / hidden))
    return embeddings, head
