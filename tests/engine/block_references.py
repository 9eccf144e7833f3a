"""Heads that draft a block at once, from their formulas in float64: the whole text each time, no cache."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.heads.dflash import DFlashHead
from specchat.engine.model.decoder import CachedDecoder
from tests.engine.published_blocks import BEST, BLOCK, MASK
from tests.engine.test_decoder import tokens
from tests.engine.test_eagle import near
from tests.engine.tiny import VOCAB

TEXT = tokens(40)
DIM, EPS, THETA = 16, 1e-5, 5000.0


@cache
def theirs(target: Path) -> Any:
    """A target as transformers reads it."""
    return AutoModelForCausalLM.from_pretrained(target, dtype=torch.float64)


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight


def turned(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary embedding of float64 [rows, DIM]."""
    angle = torch.outer(positions.double(), THETA ** -(torch.arange(0, DIM, 2).double() / DIM))
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


class Reference:
    """A head from the formulas in float64: the whole text each time, no cache."""

    def __init__(self, folder: Path, target: Path, states: list[int]) -> None:
        self.w = {name: tensor.double() for name, tensor in load_file(folder / "model.safetensors").items()}
        self.theirs = {name: tensor.double() for name, tensor in load_file(target / "model.safetensors").items()}
        self.model = theirs(target)
        self.states = states
        self.blocks: dict[tuple[int, ...], Tensor] = {}
        self.first, self.window, self.causal, self.slides = 1, 10**6, False, [False, False]

    def layers(self) -> int:
        return sum(name.endswith(".input_layernorm.weight") for name in self.w)

    def block(self, text: list[int]) -> Tensor:
        """All rows after the last norm, the last token of `text` being the pending one."""
        if tuple(text) not in self.blocks:
            self.blocks[tuple(text)] = self.passed(text)
        return self.blocks[tuple(text)]

    def passed(self, text: list[int]) -> Tensor:
        with torch.no_grad():
            states = self.model(torch.tensor([text[:-1]]), output_hidden_states=True).hidden_states
        joined = torch.cat([states[i][0] for i in self.states], -1)
        context = rms(joined @ self.w["fc.weight"].T, self.w["hidden_norm.weight"])
        embeddings = self.w.get("embed_tokens.weight", self.theirs["model.embed_tokens.weight"])
        x = embeddings[[text[-1], *[MASK] * (BLOCK - 1)]]
        for layer in range(self.layers()):
            x = self.layer(x, context, layer)
        return rms(x, self.w["norm.weight"])

    def layer(self, x: Tensor, context: Tensor, layer: int) -> Tensor:
        def w(name: str) -> Tensor:
            return self.w[f"layers.{layer}.{name}.weight"]

        y = rms(x, w("input_layernorm"))
        x = x + self.around("attention", layer, y, lambda y: self.attended(y, context, layer))

        def mlp(y: Tensor) -> Tensor:
            gate, up = y @ w("mlp.gate_proj").T, y @ w("mlp.up_proj").T
            return (gate * torch.sigmoid(gate) * up) @ w("mlp.down_proj").T

        return x + self.around("mlp", layer, rms(x, w("post_attention_layernorm")), mlp)

    def around(self, half: str, layer: int, y: Tensor, made: Callable[[Tensor], Tensor]) -> Tensor:
        """DFlash2's convolutions before and after a half of a layer, where it has them."""
        prefix = f"layers.{layer}.{half}_conv."
        if f"{prefix}base_kernel" not in self.w:
            return made(y)
        base, dynamic = self.w[f"{prefix}base_kernel"], y @ self.w[f"{prefix}kernel_projection.weight"].T
        taps, hidden = base.shape[1:]
        groups = dynamic.shape[1] // (2 * taps)
        group = torch.arange(hidden) // (hidden // groups)

        def over(x: Tensor, side: int) -> Tensor:
            out = torch.zeros_like(x)
            for i in range(len(x)):
                for t in range(min(taps, i + 1)):
                    delta = dynamic[i, (side * taps + t) * groups + group]
                    out[i] += (base[side, t] + delta) * x[i - t]
            return out

        return over(made(over(y, 0)), 1)

    def attended(self, x: Tensor, context: Tensor, layer: int) -> Tensor:
        def made(name: str, of: Tensor, normed: bool) -> Tensor:
            prefix = f"layers.{layer}.self_attn.{name}"
            heads = (of @ self.w[f"{prefix}_proj.weight"].T).view(len(of), -1, DIM)
            return rms(heads, self.w[f"{prefix}_norm.weight"]) if normed else heads

        everything, known = torch.cat([context, x]), len(context)
        slots = torch.arange(len(everything))
        q, k, v = made("q", x, True), made("k", everything, True), made("v", everything, False)
        mixed = torch.zeros(len(x), 4, DIM, dtype=torch.float64)
        for head in range(4):
            keys = turned(k[:, head // 2], slots)
            for row in range(len(x)):
                place = known + row
                query = turned(q[row : row + 1, head], torch.tensor([place]))[0]
                seen = torch.ones(len(slots), dtype=torch.bool)
                if self.slides[layer]:
                    seen &= slots > place - self.window
                    if self.causal:
                        seen &= slots <= place
                shares = (keys[seen] @ query / DIM**0.5).softmax(0)
                mixed[row, head] = shares @ v[seen, head // 2]
        return mixed.view(len(x), -1) @ self.w[f"layers.{layer}.self_attn.o_proj.weight"].T

    def base(self, rows: Tensor) -> Tensor:
        """What rows of the block score by themselves."""
        if "d2t" not in self.w:
            return rows @ self.w.get("lm_head.weight", self.theirs["lm_head.weight"]).T
        few = rows @ self.w["lm_head.weight"].T
        whole = torch.full((len(rows), VOCAB), float("-inf"), dtype=torch.float64)
        whole[:, torch.arange(few.shape[1]) + self.w["d2t"].long()] = few
        return whole

    def scores(self, text: list[int], drafted: list[int]) -> Tensor:
        """After a text and some drafted tokens: float64 [vocab]."""
        return self.base(self.block(text)[self.first :])[len(drafted)]


class DFlash2Reference(Reference):
    """The selector's edges for the tokens that score best."""

    best = BEST

    def scores(self, text: list[int], drafted: list[int]) -> Tensor:
        rows = self.block(text)[self.first :]
        place, before = len(drafted), [text[-1], *drafted][-1]
        unary = self.base(rows)[place]
        w = {name.removeprefix("candidate_selector."): tensor for name, tensor in self.w.items()}
        whole = torch.full((VOCAB,), float("-inf"), dtype=torch.float64)
        edge = w["predecessor_codebook"][before] * (w["hidden_projection.weight"] @ rows[place])
        best = unary.argsort(descending=True)[: self.best]
        whole[best] = unary[best] + w["successor_codebook"][best] @ edge
        return whole


class DSparkReference(Reference):
    """The bias of each kind, and the chances."""

    def latents(self, text: list[int], drafted: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        """The rows of all places up to the one after `drafted`, W1 of the tokens before them, and z."""
        before = [text[-1], *drafted]
        rows, w = self.block(text)[self.first :][: len(before)], self.w
        token = w["markov_head.markov_w1.weight"][before]
        if "markov_head.gate_proj.weight" in w:
            of = torch.cat([rows, token], -1)
            gate = of @ w["markov_head.gate_proj.weight"].T + w["markov_head.gate_proj.bias"]
            return rows, token, gate.sigmoid() * token
        if "markov_head.joint_proj.weight" not in w:
            return rows, token, token
        state, z = torch.zeros(token.shape[1], dtype=torch.float64), torch.zeros_like(token)
        for i in range(len(before)):
            of = torch.cat([state, token[i], rows[i]])
            g, n, o = (w["markov_head.joint_proj.weight"] @ of + w["markov_head.joint_proj.bias"]).chunk(3)
            state = g.sigmoid() * state + (1 - g.sigmoid()) * n.tanh()
            z[i] = o.tanh()
        return rows, token, z

    def scores(self, text: list[int], drafted: list[int]) -> Tensor:
        rows, _, z = self.latents(text, drafted)
        bias = self.spread(z[-1] @ self.w["markov_head.markov_w2.weight"].T)
        return self.base(rows)[-1] + bias

    def spread(self, few: Tensor) -> Tensor:
        if "d2t" not in self.w:
            return few
        return torch.zeros(VOCAB, dtype=torch.float64).index_copy_(
            0, torch.arange(len(few)) + self.w["d2t"].long(), few
        )

    def chance(self, text: list[int], drafted: list[int]) -> float:
        rows, token, _ = self.latents(text, drafted)
        c = self.w["confidence_head.proj.weight"][0]
        of = torch.cat([rows, token], -1)[-1, : len(c)]
        return float((of @ c + self.w["confidence_head.proj.bias"][0]).sigmoid())


class XPressReference(Reference):
    """A pass over the whole block, whatever tokens stand in it."""

    NAMES = ("w1.weight", "mix.L", "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight", "w2.weight")
    OTHERS = ("token_embed.weight", "mix_l", "mlp_gate.weight", "mlp_up.weight", "mlp_down.weight", "readout.weight")

    def refined(self, text: list[int], drafted: list[int]) -> Tensor:
        """Scores of all places, those after `drafted` being for no matter what tokens."""
        rows = self.block(text)
        published = "xpress_head.w1.weight" in self.w
        prefix, names = ("xpress_head.", self.NAMES) if published else ("refiner_head.", self.OTHERS)
        w1, mixer, gate, up, down, w2 = (self.w[prefix + name] for name in names)
        before = [*text[-2:], *drafted] if self.first else [text[-1], *drafted]
        before = (before + [MASK] * BLOCK)[:BLOCK]
        d, e, fused = (self.w[f"{prefix}{name}.weight"] for name in ("down_h", "down_g", "in_proj"))
        mean = (rows.sum(0) / BLOCK).expand_as(rows)
        x = torch.cat([rows @ d.T, mean @ e.T, w1[before]], -1) @ fused.T
        y = x.clone()
        for i in range(BLOCK):
            for j in range(i + 1):
                y[i] += mixer[:, i, j] * x[j]
        inner = y @ gate.T
        z = y + (inner * inner.sigmoid() * (y @ up.T)) @ down.T
        return (self.base(rows) + z @ w2.T)[self.first :]

    def scores(self, text: list[int], drafted: list[int]) -> Tensor:
        return self.refined(text, drafted)[len(drafted)]

    def jacobi(self, text: list[int], passes: int) -> list[int]:
        """The paper's way to the likeliest tokens: all places at once, from what they score by themselves."""
        drafted: list[int] = self.base(self.block(text)[self.first :]).argmax(-1).tolist()
        for _ in range(passes):
            drafted = self.refined(text, drafted).argmax(-1).tolist()
        return drafted


def agree(head: DFlashHead, target: CachedModel[CachedDecoder], reference: Reference) -> None:
    """Read a text in blocks, draft a chain, go on with other tokens, and draft again."""
    own = CachedModel(head)
    for text in (TEXT[:25], [*TEXT[:25], 7], TEXT[:33], [*TEXT[:12], *tokens(9, seed=4)]):
        target.begin(text)
        own.begin(text[:-1])
        drafted = tokens(head.places, seed=2)
        fed = text[len(own.tokens) :]
        for at in range(head.places):
            rows = head.forward(fed, len(text) + at - len(fed))
            near(head.logits(rows)[0].double(), reference.scores(text, drafted[:at]))
            fed = [drafted[at]]
        own.hold(text, len(text) - 1)
