"""The launches of a step beside the products: attention, the row-wise kernels, verification of a vocabulary."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from specchat.bench.kernel_case import REPEATS, Case, copies_of, rows_alike
from specchat.engine.device.buffers import VERIFY_ROWS
from specchat.engine.kernels.activation import silu_mul
from specchat.engine.kernels.attention import attend
from specchat.engine.kernels.choose import choose, judge
from specchat.engine.kernels.commit import commit
from specchat.engine.kernels.embed import embed
from specchat.engine.kernels.norm import add_rms_norm
from specchat.engine.kernels.products import processors
from specchat.engine.kernels.rope import rope_and_write
from specchat.engine.kernels.scores import process
from specchat.engine.kernels.tiles import MOST_ROWS, SPLIT, SPLITS, tiling
from specchat.engine.kernels.verify_state import Scored, VerifyState
from specchat.engine.kernels.workspace import workspace
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.rope import tables
from specchat.engine.options import Sampling

CONTEXTS = (256, 1024, 4096, 8192)
QUICK_CONTEXTS = (4096,)
SAMPLINGS = {"greedy": Sampling(), "T=0.7 top-p 0.9": Sampling(temperature=0.7, top_p=0.9)}


def attention_cases(
    c: ModelConfig, device: torch.device, dtype: torch.dtype, contexts: tuple[int, ...], cycled: int, quick: bool
) -> Iterator[Case]:
    """Attention of a chain of rows after `contexts` tokens, with its combination, in splits to choose from."""
    query = torch.randn(MOST_ROWS, c.heads, c.head_dim, device=device).to(dtype)
    out = torch.empty(MOST_ROWS, c.heads * c.head_dim, device=device, dtype=dtype)
    for context in contexts:
        capacity = context + MOST_ROWS
        shape = (c.kv_heads, capacity, c.head_dim)
        read = 2 * c.kv_heads * context * c.head_dim * query.element_size()
        caches = [
            (torch.randn(shape, device=device).to(dtype), torch.randn(shape, device=device).to(dtype))
            for _ in range(copies_of(read, cycled))
        ]
        for split in (SPLIT,) if quick else SPLITS:
            yield _attention(c, context, split, query, caches, out, read)


def _attention(
    c: ModelConfig, context: int, split: int, query: Tensor, caches: list[tuple[Tensor, Tensor]], out: Tensor, read: int
) -> Case:
    partial = workspace(MOST_ROWS, c.heads, c.head_dim, context + MOST_ROWS, query.device, split)
    lengths = torch.arange(context, context + MOST_ROWS, device=query.device, dtype=torch.int32)[:, None]
    lengths = lengths.expand(-1, 4).contiguous()  # each at 16 bytes, as a step has them

    def body(rows: int) -> Callable[[int], None]:
        return lambda copy: attend(query, *caches[copy], lengths[0, :1], None, partial, out, rows, None)

    def call(first: int, rows: int) -> Tensor:
        attend(query[first:], *caches[0], lengths[first, :1], None, partial, out, rows, None)
        return out[:rows].clone()

    what = f"attention, {context} tokens in {split}s, {c.heads} heads, {c.kv_heads} kv, {c.head_dim} wide"
    return Case("attention", what, "specchat", read, len(caches), body, rows_alike(call))


def rowwise_cases(c: ModelConfig, device: torch.device, dtype: torch.dtype) -> Iterator[Case]:
    """Embedding, norm, rotation and activation, each after the product that comes before it."""

    def partials(outputs: int, inputs: int) -> Tensor:
        cut = tiling(outputs, inputs, 4, processors(device))
        return torch.randn(cut.splits, MOST_ROWS, outputs, device=device)

    def case(what: str, launch: Callable[[int], None], call: Callable[[int, int], Tensor]) -> Case:
        def body(rows: int) -> Callable[[int], None]:
            return lambda _: launch(rows)

        return Case("row-wise", what, "specchat", 0, REPEATS, body, rows_alike(call))

    residual = torch.randn(MOST_ROWS, c.hidden, device=device)
    tokens = torch.arange(MOST_ROWS, device=device, dtype=torch.int32) * (c.vocab // MOST_ROWS)
    table = torch.randn(c.vocab, c.hidden, device=device).to(dtype)

    def embedded(first: int, rows: int) -> Tensor:
        embed(tokens[first:], table, residual, rows)
        return residual[:rows].clone()

    yield case(f"embed {c.hidden}", lambda rows: embed(tokens, table, residual, rows), embedded)

    down = partials(c.hidden, c.intermediate)
    weight = torch.ones(c.hidden, device=device)
    x = torch.empty(MOST_ROWS, c.hidden, device=device, dtype=dtype)

    # The norm adds to the stream it reads: the comparison has one of its own.
    before = torch.randn_like(residual)

    def normed(first: int, rows: int) -> Tensor:
        add_rms_norm(before[first:].clone(), down[:, first:], weight, c.norm_eps, x, rows, None)
        return x[:rows].clone()

    yield case(
        f"norm {c.hidden}, {len(down)} splits",
        lambda rows: add_rms_norm(residual, down, weight, c.norm_eps, x, rows, None),
        normed,
    )

    yield _rope(c, partials((c.heads + 2 * c.kv_heads) * c.head_dim, c.hidden), device, dtype, case)

    gate_up = partials(2 * c.intermediate, c.hidden)
    act = torch.empty(MOST_ROWS, c.intermediate, device=device, dtype=dtype)

    def activated(first: int, rows: int) -> Tensor:
        silu_mul(gate_up[:, first:], act, rows, None)
        return act[:rows].clone()

    yield case(
        f"silu x up {c.intermediate}, {len(gate_up)} splits",
        lambda rows: silu_mul(gate_up, act, rows, None),
        activated,
    )


def _rope(
    c: ModelConfig,
    qkv: Tensor,
    device: torch.device,
    dtype: torch.dtype,
    case: Callable[[str, Callable[[int], None], Callable[[int, int], Tensor]], Case],
) -> Case:
    capacity = 2 * MOST_ROWS
    cos, sin = (table.to(device) for table in tables(c.rope, c.head_dim, capacity))
    norm = torch.ones(c.head_dim, device=device) if c.mixer.query_norm else None
    offsets = torch.arange(MOST_ROWS, device=device, dtype=torch.int32)
    lengths = offsets[:, None].expand(-1, 4).contiguous()
    query = torch.empty(MOST_ROWS, c.heads, c.head_dim, device=device, dtype=dtype)
    keys, values = torch.zeros(2, c.kv_heads, capacity, c.head_dim, device=device, dtype=dtype).unbind(0)

    def launch(first: int, rows: int) -> None:
        rope_and_write(
            qkv[:, first:], norm, norm, c.norm_eps, cos, sin, lengths[first, :1], offsets, query, keys, values,
            rows, None,
        )  # fmt: skip

    def rotated(first: int, rows: int) -> Tensor:
        launch(first, rows)
        return query[:rows].clone()

    what = f"rope {c.heads} + {c.kv_heads} heads of {c.head_dim}" + (", normed" if c.mixer.query_norm else "")
    return case(what, lambda rows: launch(0, rows), rotated)


def verify_cases(vocab: int, device: torch.device, samplings: dict[str, Sampling]) -> Iterator[Case]:
    """Scores, choice and bookkeeping of up to VERIFY_ROWS rows of logits, a draft of all rows but one being judged."""
    logits = 3 * torch.randn(VERIFY_ROWS, vocab, device=device)
    for name, sampling in samplings.items():
        state = VerifyState.create(vocab, VERIFY_ROWS, device)
        state.set_sampling(sampling)
        state.begin([1, 2, 3], ())
        yield _verify(name, logits, state, Scored.create(VERIFY_ROWS, vocab, device))


def _verify(name: str, logits: Tensor, state: VerifyState, scored: Scored) -> Case:
    vocab = logits.shape[1]
    chosen = torch.zeros(VERIFY_ROWS + 1, device=logits.device, dtype=torch.int32)

    def body(rows: int) -> Callable[[int], None]:
        state.drafted.fill_(rows - 1)

        def launch(_: int) -> None:
            process(logits, state, 0, scored, rows, vocab)
            judge(scored, state, rows, chosen, None)
            commit(chosen, state)

        return launch

    def call(first: int, rows: int) -> Tensor:
        # The same place in the text every time: noise belongs to a position.
        state.place([1, 2, 3], 3)
        process(logits[first:], state, first, scored.row(first) if rows == 1 else scored, rows, vocab)
        choose(scored.row(first) if rows == 1 else scored, state, first, rows, chosen)
        return torch.cat((scored.scores[first : first + rows, :vocab], chosen[:rows, None].float()), 1)

    what = f"verify {vocab} tokens, {name}"
    return Case("verification", what, "specchat", 0, REPEATS, body, rows_alike(call), VERIFY_ROWS)
