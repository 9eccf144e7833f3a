"""Every kernel of a step against its reference, at small shapes."""

from typing import get_args

import torch
from torch import Tensor

from specchat.engine.decoding.acceptance import judge as host_judge
from specchat.engine.decoding.draft import Draft
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.formats.layout import EightBit, Joined, Weight
from specchat.engine.formats.quantise import dequantised
from specchat.engine.gpu_checks import attention, drafts, layers, place
from specchat.engine.gpu_checks.drafts import PROMPT
from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.gpu_checks.references import (
    reference_add_rms_norm,
    reference_embed,
    reference_gate_input,
    reference_gate_mul,
    reference_make_inputs,
    reference_rope,
)
from specchat.engine.hardware.page_locked import page_locked
from specchat.engine.kernels.activation import Activation, Curve, gate_mul
from specchat.engine.kernels.choose import choose, judge
from specchat.engine.kernels.commit import commit
from specchat.engine.kernels.embed import embed
from specchat.engine.kernels.keep import keep
from specchat.engine.kernels.kv_entries import KvEntries
from specchat.engine.kernels.layer_inputs import gate_input, make_inputs
from specchat.engine.kernels.norm import NormOf, OtherNorm, ResidualUpdate, add_rms_norm
from specchat.engine.kernels.products import multiply, splits
from specchat.engine.kernels.rope import RopeNorms, RopeRows, Turns, rope_and_write
from specchat.engine.kernels.scores import process
from specchat.engine.kernels.verify_state import Scored, VerifyState
from specchat.engine.model.rope import tables
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.pair import QUANTS, Quant
from specchat.engine.recipe import Rope

EPS = 1e-5
PRODUCT = 4e-6
"""Allowed difference of a product, relative to the sum of magnitudes."""
ROWS = (1, 16, 17, 64)
SAMPLINGS = {
    "greedy": Sampling(),
    "temperature": Sampling(seed=11, temperature=0.9),
    "filters": Sampling(seed=2, temperature=1.2, top_k=12, top_p=0.9, min_p=0.02),
    "penalties": Sampling(seed=5, temperature=0.8, repetition_penalty=1.3, frequency_penalty=0.2, logit_bias={4: 2.0}),
}
VOCAB = 5000
"""Larger than the part of one program of `process`."""


def all_kernels(notes: Notes) -> None:
    """Each kernel of a step against its reference."""
    rowwise(notes)
    for quant in (None, *QUANTS, "int4"):
        product(notes, quant)
    for dim, window in ((64, 0), (256, attention.WINDOW), (512, 0)):
        attention.attend(notes, dim=dim, window=window)
    attention.ringed(notes)
    attention.gated(notes)
    verdicts(notes)
    drafts.sampled(notes)
    drafts.grown(notes)
    moved(notes)
    for what in layers.LAYERS:
        layers.outputs(notes, what)


def rowwise(notes: Notes) -> None:
    """Embedding, norm, rotation and activation."""
    dtype, device = place.dtype(), place.device()
    allowed, rows, hidden = place.ROUNDING[dtype], 3, 1100
    table, tokens = place.random(50, hidden, seed=0, dtype=dtype), torch.tensor([0, 49, 50], dtype=torch.int32)
    tokens, residual = tokens.to(device), torch.zeros(rows, hidden, device=device)
    embed(tokens, table, residual, rows)
    notes.within("embed", place.largest(residual - reference_embed(tokens, table)), 0.0)
    partials, weight = place.random(3, rows, hidden, seed=1), place.random(hidden, seed=2)
    out, state, scalar = torch.empty(rows, hidden, device=device, dtype=dtype), residual.clone(), weight[:1]
    truth, _ = reference_add_rms_norm(residual.double(), partials.double(), None, EPS, scalar=scalar)
    add_rms_norm(ResidualUpdate(state, scalar=scalar), partials, OtherNorm(None, EPS, out), rows)
    notes.within("factor at the end of a layer", _relative(state, truth), place.ROUNDING[torch.float32])
    truth = reference_add_rms_norm(residual.double(), partials.double(), weight.double(), EPS)[1]
    add_rms_norm(ResidualUpdate(residual), partials, OtherNorm(weight, EPS, out), rows)
    notes.within("norm", _relative(out, truth), allowed)
    act = torch.empty(rows, hidden // 2, device=device, dtype=dtype)
    for activation in get_args(Activation):
        curve = Curve(*place.random(4, seed=3)) if activation == "xielu" else None
        gate_mul(partials, act, rows, None, activation, curve)
        truth = reference_gate_mul(partials.double(), activation, curve)
        notes.within(f"activation {activation}", _relative(act, truth), allowed)
    _layer_inputs(notes, tokens)
    _rotation(notes, dtype, device)


def _layer_inputs(notes: Notes, tokens: Tensor, layers: int = 3, size: int = 48) -> None:
    """Inputs of layers, whose table lies in main memory, and the gate on them."""
    rows, device, dtype = len(tokens), place.device(), place.dtype()
    table = page_locked(place.random(50, layers * size, seed=16), dtype, device)
    partials, weight = place.random(2, rows, layers * size, seed=17), place.random(size, seed=18)
    inputs, act = torch.empty(rows, layers, size, device=device), torch.empty(rows, size, device=device, dtype=dtype)
    make_inputs(tokens, table, partials, weight, EPS, 0.7, inputs, rows)
    truth = reference_make_inputs(tokens, table.to(device), partials, NormOf(weight, EPS), 0.7)
    notes.within("inputs of layers", _relative(inputs, truth), place.ROUNDING[torch.float32])
    gate = partials[..., :size].contiguous()
    gate_input(gate, inputs[:, 1], act, rows, None, "gelu_tanh")
    truth = reference_gate_input(gate.double(), inputs[:, 1], "gelu_tanh")
    notes.within("gate on inputs of layers", _relative(act, truth), place.ROUNDING[dtype])


def _rotation(notes: Notes, dtype: torch.dtype, device: torch.device) -> None:
    heads, kv, dim, rows, start = 4, 2, 64, 3, 5
    partials = place.random(2, rows, (heads + 2 * kv) * dim, seed=3)
    norms = (place.random(dim, seed=4, dtype=dtype), EPS), (place.random(dim, seed=5, dtype=dtype), EPS)
    query = torch.empty(rows, heads, dim, device=device, dtype=dtype)
    keys, values = torch.zeros(2, kv, 16, dim, device=device, dtype=dtype)
    first = torch.tensor([start], dtype=torch.int32, device=device)
    offsets = torch.arange(rows, dtype=torch.int32, device=device)
    plain, further = ("rotated queries", "rotated keys", "values"), ("queries that grow", "their keys", "normed values")
    partly = "queries rotated in part", "keys rotated in part", "values beside them"
    of_values, temper = (place.random(dim, seed=6), EPS), 1 + torch.arange(16, device=device) / 7
    for names, width, more in (
        (plain, dim, (None, None)),
        (further, dim, (of_values, temper)),
        (partly, dim // 4, (None, None)),
    ):
        rope = Rope(1e4, "default", width, {})
        cos, sin = (table.to(device) for table in tables(rope, width, 16))
        of_heads, at = RopeNorms(*norms, more[0]), RopeRows(rows, first, offsets, temper=more[1])
        turns = Turns.of(cos, sin, rope.turning)
        rope_and_write(partials, of_heads, turns, at, query, KvEntries(keys, values))
        truth = reference_rope(partials, of_heads, (cos, sin), start + offsets, heads, kv, more[1])
        made = (query, *(entries[:, start : start + rows].transpose(0, 1) for entries in (keys, values)))
        for name, ours, theirs in zip(names, made, truth, strict=True):
            notes.within(name, _relative(ours, theirs), place.ROUNDING[dtype])


def product(notes: Notes, quant: Quant | str | None, outputs: int = 96, inputs: int = 256) -> None:
    """x @ weight^T in one format or type of GGUF, and as the product of gates, against float64."""
    multiplied(notes, f"product {quant or 'dense'}", place.weight_of(quant, outputs, inputs))


def multiplied(notes: Notes, what: str, weight: Weight) -> None:
    """x @ weight^T, and as the product of gates where that is one launch, against float64."""
    dtype, (outputs, inputs) = place.dtype(), weight.shape
    # A 4-bit weight is rounded before the product, an 8-bit one gets its scale after it.
    exact_in = torch.float32 if isinstance(weight, EightBit) else dtype
    x, truth = place.random(64, inputs, seed=7, dtype=dtype), dequantised(weight, exact_in).double()
    for rows in ROWS:
        out = torch.empty(splits(weight), rows, outputs, device=x.device)
        multiply(x, weight, None, out, rows)
        exact, magnitudes = x[:rows].double() @ truth.T, x[:rows].double().abs() @ truth.abs().T
        notes.within(what, place.largest((out.double().sum(0) - exact) / magnitudes), PRODUCT, rows=rows)
        if isinstance(weight, Joined):
            continue
        act = torch.empty(rows, outputs // 2, device=x.device, dtype=dtype)
        multiply(x, weight, None, act, rows, activation="silu")
        of_gates = reference_gate_mul(exact[None])
        notes.within(f"{what} with silu", _relative(act, of_gates), place.ROUNDING[dtype], rows=rows)


def verdicts(notes: Notes) -> None:
    """Verification of drafts from logits to accepted tokens, against the host."""
    rows, device = 4, place.device()
    logits = 3 * torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(12))
    for name, sampling in SAMPLINGS.items():
        sampler = Sampler(sampling)
        drafts = _likely(sampler, logits)
        state, scored = VerifyState.create(VOCAB, 16, device), Scored.create(16, VOCAB, device)
        state.set_sampling(sampling)
        state.begin(PROMPT, ())
        state.fed[1:rows] = torch.tensor(drafts, dtype=torch.int32)
        state.drafted.fill_(rows - 1)
        chosen = torch.zeros(17, dtype=torch.int32, device=device)
        process(logits.to(device), state, 0, scored, rows, VOCAB)
        choose(scored, state, 0, rows, chosen)
        judge(scored, state, rows, chosen, None)
        commit(chosen, state, torch.zeros_like(chosen[:2]), torch.zeros_like(chosen[:16]))
        truth = host_judge(logits, Draft(drafts), len(PROMPT), sampler, History(PROMPT), "coupled")
        accepted, _, emitted, *tokens = state.result[: 3 + rows].tolist()
        made = [accepted, emitted, *tokens[:emitted]]
        wanted = [len(truth.path), len(truth.path) + 1, *drafts[: len(truth.path)], truth.token]
        notes.row(what=f"verdict {name}", accepted=accepted, as_on_the_host=made == wanted)
        notes.expect(made == wanted, f"verdict {name}: {made} and not {wanted}")


def _likely(sampler: Sampler, logits: Tensor) -> list[int]:
    """A draft of two tokens that the target chooses and a third that it does not."""
    history, drafts = History(PROMPT), list[int]()
    for row in range(2):
        drafts.append(sampler.choose(logits[row], len(PROMPT) + row, history))
        history.push(drafts[-1])
    other = sampler.choose(logits[2], len(PROMPT) + 2, history)
    return [*drafts, (other + 1) % VOCAB]


def moved(notes: Notes) -> None:
    """Copy of the KV entries of an accepted path of a tree to consecutive positions."""
    device, start = place.device(), 5
    state = VerifyState.create(VOCAB, 16, device)
    keys, values = place.random(2, 2, 2, 64, 16, seed=13, dtype=place.dtype())
    before = keys.clone(), values.clone()
    path = [0, 2, 5]
    state.result[:3] = torch.tensor([len(path) - 1, 0, len(path)])
    state.kept[: len(path)] = torch.tensor(path)
    state.length.fill_(start + len(path))
    keep(keys, values, state, None)
    places = [start + node for node in path]
    right = all(
        torch.equal(after[:, :, start : start + len(path)], old[:, :, places])
        for after, old in zip((keys, values), before, strict=True)
    )
    notes.row(what="entries of a path", right=right)
    notes.expect(right, "entries of a path: they are not those of its nodes, in order")


def _relative(ours: Tensor, truth: Tensor) -> float:
    return place.largest((ours.double() - truth) / (1 + truth.abs()))
