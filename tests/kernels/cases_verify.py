"""Verification as a step launches it: a vocabulary of 151,936 tokens (Qwen3)."""

import torch

from specchat.engine.kernels import block, choose, commit, keep, scores
from specchat.engine.kernels.verify_state import BLOCK, Scored, VerifyState
from tests.kernels.compiled import launched

VOCAB, ROWS, DIM = 151_936, 16, 128
STATE = VerifyState.create(VOCAB, ROWS, "cpu")
SCORED = Scored.create(ROWS, VOCAB, "cpu")
CHOSEN = torch.zeros(ROWS + 1, dtype=torch.int32)
CACHE = torch.zeros(1, 1, 2 * ROWS + 1, DIM, dtype=torch.bfloat16)

# One pass of the loops in `choose` and `block` takes a block of tokens: here a weight is a token.
CASES = [
    launched(
        "process",
        scores._process,
        lambda: scores.process(torch.zeros(ROWS, VOCAB), STATE, 0, SCORED, ROWS, VOCAB),
    ),
    launched("choose and judge", choose._choose, lambda: choose.judge(SCORED, STATE, ROWS, CHOSEN, SCORED), BLOCK),
    launched("block", block._judge, lambda: block.judge_block(SCORED, STATE, ROWS, CHOSEN, SCORED), BLOCK),
    launched(
        "commit",
        commit._commit,
        lambda: commit.commit(CHOSEN, STATE, STATE.fed.new_zeros(2), STATE.fed.new_zeros(ROWS)),
    ),
    launched("keep by the step's numbers", keep._keep, lambda: keep.keep(CACHE, CACHE, STATE, None)),
    launched("keep by a draft's numbers", keep._keep, lambda: keep.keep(CACHE, CACHE, STATE, STATE.depth)),
]
