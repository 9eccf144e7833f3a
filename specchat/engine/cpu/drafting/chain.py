"""Draft chains in one compiled call: passes, choices and the end of the draft, without Python in between.

It follows `decoding/host_loops.py`, which drafts the same tokens one call each where this cannot run.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core.sigutils import normalize_signature
from numpy.typing import NDArray

from specchat.engine.cpu.drafting.choice import draw, probability
from specchat.engine.cpu.drafting.nested_speculation import initial_acceptance, propose, update_acceptance
from specchat.engine.cpu.primitives.atomics import address, call
from specchat.engine.cpu.primitives.records import Structure, pass_at
from specchat.engine.cpu.primitives.rowwise import copy_vector, multiply_by, norm
from specchat.engine.cpu.primitives.simd import inner, python_callable
from specchat.engine.cpu.products.columns import row_reader
from specchat.engine.cpu.threads.dispatch import run_pass
from specchat.engine.kernels.streams import TOKEN
from specchat.engine.model.passes import ChainParameters

_draw: Any = draw
Floats = NDArray[np.float32]


@inner
def _choose(logits: Any, row: int, temperature: np.float32, seed: np.uint64, position: int, scores: Any) -> int:
    """Choose the token of a row of logits at a position, -1 for none; fill `scores`."""
    if temperature > 0:
        for i in range(len(scores)):
            scores[i] = logits[row, i] / temperature
        found: int = _draw(scores, seed, position, TOKEN)
        return found
    token, top = -1, np.float32(-np.inf)
    for i in range(len(scores)):
        scores[i] = logits[row, i]
        if scores[i] > top:
            top, token = scores[i], i
    return token


class ChainModel(NamedTuple):
    """A model that drafts, or a head.

    Attributes:
        run: address of the PASS of one thread, without steps and head, over one span.
        steps, head: addresses for it; the head's logits have 1 + `nested` rows.
        nested: most proposed tokens that go along in a pass; see `nested_speculation.py`. 0 for a head.
        embed: address of the PRODUCT of the embeddings, whose rows the compiled function at address `read_row` reads;
            they are multiplied by `embed_scale`.
        token_ids: int64 [capacity + 1], by position; filled with proposed and drafted tokens.
        acceptance: as in `nested_speculation.propose`.
        span: int64 [1, 4], the rows as one span.
        x: float32 [>= rows + `nested`, hidden]; for a head the features of the rows, which stand one position before
            their tokens.
        logits: float32 [1 + `nested`, >= vocab].
        inputs: float32 [>= rows, 2 hidden], the inputs of a head's attention; no rows for a model.
        norms: float32 [2, hidden], a head's norms of tokens and of features.
        made: float32 [capacity, hidden], filled with the features that a head made.
        onto_normed: True if a head adds to normed features; `eps` belongs to `norms`.
    """

    run: int
    steps: int
    head: int
    nested: int
    embed: int
    read_row: int
    embed_scale: float
    eps: float
    onto_normed: bool
    token_ids: NDArray[np.int64]
    acceptance: NDArray[np.float64]
    span: NDArray[np.int64]
    x: Floats
    logits: Floats
    inputs: Floats
    norms: Floats
    made: Floats


class ChainDraft(NamedTuple):
    """A draft of up to `limit` tokens after `rows` tokens from position `start` on; the cache holds all earlier ones.

    Attributes:
        prefix_acceptance: probability that every earlier draft token is accepted. The draft ends when this,
            times the next token's rate, falls below `min_acceptance`.
        temperature: 0 takes the largest score.
        calibration: float64 [3, bins]: upper bounds of probability (none for the last bin), acceptance rate of tokens
            in the bin, and acceptance rate of the tokens after them; see `decoding/length_policy.py`.
        ends: int64 [any], tokens after which the draft ends.
        scores: float32 [vocab], scratch.
        tokens, confidence: int64 and float64 [>= limit], filled with the draft.
    """

    rows: int
    start: int
    limit: int
    prefix_acceptance: float
    min_acceptance: float
    temperature: float
    seed: np.uint64
    calibration: NDArray[np.float64]
    ends: NDArray[np.int64]
    scores: Floats
    tokens: NDArray[np.int64]
    confidence: NDArray[np.float64]


def _types(kind: Any, fields: str) -> Any:
    """numba's type of a NamedTuple, by the signature of its fields."""
    return types.NamedTuple(normalize_signature(f"void({fields})")[0], kind)


_MODEL = _types(
    ChainModel,
    "i8, i8, i8, i8, i8, i8, f8, f8, b1, i8[::1], f8[::1], i8[:,::1], f4[:,::1], f4[:,::1], f4[:,::1], f4[:,::1],"
    " f4[:,::1]",
)
_DRAFT = _types(ChainDraft, "i8, i8, i8, f8, f8, f8, u8, f8[:,::1], i8[::1], f4[::1], i8[::1], f8[::1]")


@python_callable(types.int64(_MODEL, _DRAFT))
def draft_chain(model: Any, draft: Any) -> int:
    """Draft up to `limit` tokens and return their number; -1 if all scores of a token are -inf or NaN."""
    x, inputs, token_ids, acceptance, calibration = (
        model.x, model.inputs, model.token_ids, model.acceptance, draft.calibration
    )  # fmt: skip
    tokens, confidence, temperature = draft.tokens, draft.confidence, np.float32(draft.temperature)
    rows, start, limit, prefix_acceptance = draft.rows, draft.start, draft.limit, draft.prefix_acceptance
    embed_scale, eps = np.float32(model.embed_scale), np.float32(model.eps)
    steps, head, span = model.steps, model.head, model.span
    hidden, headed = x.shape[1], len(inputs) > 0
    to, width = (address(inputs), 8 * hidden) if headed else (address(x), 4 * hidden)
    run, n = pass_at(model.run), 0
    while n < limit:
        end = start + rows
        length, proposed = propose(token_ids, end, min(model.nested, limit - n - 1), acceptance)
        for r in range(rows + proposed):
            call(model.read_row, model.embed, token_ids[start + r], to + r * width, 0, 0, 0, 0, 0)
            if embed_scale != 1:
                multiply_by(to + r * width, hidden, embed_scale)
        if headed:
            for r in range(rows):
                token, feature, row = to + r * width, to + r * width + 4 * hidden, address(x) + 4 * r * hidden
                norm(token, address(model.norms), token, hidden, eps)
                norm(row, address(model.norms) + 4 * hidden, feature, hidden, eps)
                if model.onto_normed:
                    copy_vector(feature, row, hidden)
        span[0, 1] = rows + proposed
        run.x, run.rows, run.start, run.steps, run.head = address(x), rows + proposed, start - headed, steps, 0
        run_pass(run, 0, 1)
        run.x, run.rows, run.steps, run.head = address(x) + 4 * (rows - 1) * hidden, 1 + proposed, 0, head
        run_pass(run, 0, 1)
        if headed:
            copy_vector(address(x), address(model.made) + 4 * start * hidden, rows * hidden)
            copy_vector(address(x) + 4 * (rows - 1) * hidden, address(x), hidden)
        accepted = 0
        while True:
            token = _choose(model.logits, accepted, temperature, draft.seed, end + accepted, draft.scores)
            if token < 0:
                return -1
            tokens[n], confidence[n] = token, probability(draft.scores, token)
            bin_index = 0
            while bin_index < calibration.shape[1] - 1 and calibration[0, bin_index] < confidence[n]:
                bin_index += 1
            n += 1
            prefix_acceptance *= calibration[1, bin_index]
            ended = prefix_acceptance * calibration[2, bin_index] < draft.min_acceptance
            for last in draft.ends:
                ended = ended or token == last
            if ended:
                update_acceptance(acceptance, length, proposed, accepted)
                return n
            if accepted == proposed or token != token_ids[end + accepted]:
                break
            accepted += 1
        update_acceptance(acceptance, length, proposed, accepted)
        start, rows = end + accepted, 1
        token_ids[start] = token
    return n


_draft_chain: Any = draft_chain
NO_FEATURES = np.zeros((0, 0), np.float32)


class Chains:
    """Drafter of chains on the arrays of one decoder, in one thread."""

    def __init__(self, run: Structure, head: Structure, embed: NDArray[Any], vocab: int, **fields: Any) -> None:
        """Keep what all chains share.

        `run` is a whole pass over the rows of `ChainModel.x`, `embed` the product of the embeddings, PRODUCT [1], and
        `fields` are others of `ChainModel`.
        """
        span = np.zeros((1, 4), np.int64)
        steps = int(run["steps"])
        run.set(spans=span, span_count=1, ancestors=None, steps=0)
        self._held = run, head, embed
        self._last = vocab - 1
        self.acceptance = initial_acceptance()
        usual: dict[str, Any] = {
            "inputs": NO_FEATURES,
            "norms": NO_FEATURES,
            "made": NO_FEATURES,
            "eps": 0.0,
            "onto_normed": False,
        }
        self._model = ChainModel(
            run=run.address,
            steps=steps,
            head=head.address,
            embed=embed.ctypes.data,
            read_row=row_reader(int(embed["form"][0])).address,
            acceptance=self.acceptance,
            span=span,
            **(usual | fields),
        )
        self._scores: dict[int, Floats] = {}

    def draft_chain(self, tokens: Sequence[int], start: int, chain: ChainParameters) -> list[tuple[int, float]]:
        """Draft a chain; see `CachedDecoder.draft_chain`."""
        # A target may choose a padding token that a draft model has no row for.
        self._model.token_ids[start : start + len(tokens)] = np.minimum(np.array(tokens, np.int64), self._last)
        draft = ChainDraft(
            rows=len(tokens),
            start=start,
            limit=chain.limit,
            prefix_acceptance=chain.prefix_acceptance,
            min_acceptance=chain.min_acceptance,
            temperature=float(chain.temperature),
            seed=np.uint64(chain.seed),
            calibration=chain.calibration,
            ends=chain.ends,
            scores=self._scores.setdefault(chain.vocab, np.empty(chain.vocab, np.float32)),
            tokens=np.empty(chain.limit, np.int64),
            confidence=np.empty(chain.limit, np.float64),
        )
        count = _draft_chain(self._model, draft)
        pairs = zip(draft.tokens[:count].tolist(), draft.confidence[:count].tolist(), strict=True)
        return list(pairs) if count >= 0 else []
