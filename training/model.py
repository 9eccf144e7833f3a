"""A plain trainable Llama whose parameter names and layout are Hugging Face's."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Cache = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Shape:
    """The size of a model."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int = 3072
    head_dim: int = 64
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0

    def as_dict(self) -> dict[str, Any]:
        """The fields under their names in config.json."""
        return asdict(self)


TARGET = Shape(
    hidden_size=256, intermediate_size=704, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2
)
DRAFT = Shape(hidden_size=128, intermediate_size=352, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2)


class Norm(nn.Module):
    """RMSNorm."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE in the rotate-half convention."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention [batch, heads, length, head_dim] in two blocks of rows; a CPU's fused kernel is slower."""
    length, outputs = q.shape[2], []
    for start, end in ((0, length // 2), (length // 2, length)):
        future = torch.ones(end - start, end, dtype=torch.bool, device=q.device).triu(start + 1)
        scores = (q[:, :, start:end] * q.shape[-1] ** -0.5) @ k[:, :, :end].mT
        outputs.append(scores.masked_fill(future, -torch.inf).softmax(-1) @ v[:, :, :end])
    return torch.cat(outputs, 2)


class Attention(nn.Module):
    """Grouped-query attention."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, shape.hidden_size, bias=False)

    def forward(
        self, x: Tensor, rope: tuple[Tensor, Tensor], mask: Tensor | None, past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        batch, length, _ = x.shape
        q = rotate(self.q_proj(x).view(batch, length, self.heads, self.head_dim).transpose(1, 2), *rope)
        k = rotate(self.k_proj(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2), *rope)
        v = self.v_proj(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        groups = self.heads // self.kv_heads
        wide_k, wide_v = (k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)) if groups > 1 else (k, v)
        if mask is None and length > 1 and not q.is_cuda:
            y = causal(q, wide_k, wide_v)
        else:
            y = F.scaled_dot_product_attention(q, wide_k, wide_v, attn_mask=mask, is_causal=mask is None and length > 1)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, -1)), (k, v)


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """One decoder layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = Mlp(shape)
        self.input_layernorm = Norm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = Norm(shape.hidden_size, shape.rms_norm_eps)

    def forward(
        self, x: Tensor, rope: tuple[Tensor, Tensor], mask: Tensor | None, past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y, kept = self.self_attn(self.input_layernorm(x), rope, mask, past)
        x = x + y
        return x + self.mlp(self.post_attention_layernorm(x)), kept


class Body(nn.Module):
    """Embedding, layers and the last norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = Norm(shape.hidden_size, shape.rms_norm_eps)


class Llama(nn.Module):
    """The model with its embedding tied to the output."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                scale = 0.02 if "embed" in name else shape.hidden_size**-0.5
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    scale *= (2 * shape.num_hidden_layers) ** -0.5
                nn.init.normal_(parameter, std=scale)

    def attention(self, index: int) -> Attention:
        """The attention of one layer."""
        layer = self.model.layers[index]
        assert isinstance(layer, Layer)
        return layer.self_attn

    def rope(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the positions, [batch, 1, length, head_dim / 2]."""
        half = self.shape.head_dim // 2
        steps = torch.arange(half, device=positions.device, dtype=torch.float32)
        angles = positions[:, None, :, None].float() * self.shape.rope_theta ** (-steps / half)
        return angles.cos(), angles.sin()

    def hidden(
        self, tokens: Tensor, past: Cache | None = None, positions: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Cache]:
        """Last hidden states, and the cache after the tokens."""
        start = past[0][0].shape[2] if past else 0
        if positions is None:
            positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)[None]
        if mask is None and past and tokens.shape[1] > 1:
            columns = torch.arange(start + tokens.shape[1], device=tokens.device)
            mask = columns[None, :] <= positions[0][:, None]
        x = self.model.embed_tokens(tokens)
        rope = self.rope(positions)
        kept: Cache = []
        for index, layer in enumerate(self.model.layers):
            x, pair = layer(x, rope, mask, past[index] if past else None)
            kept.append(pair)
        return self.model.norm(x), kept

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of the next token."""
        return F.linear(hidden, self.model.embed_tokens.weight)

    def forward(
        self, tokens: Tensor, past: Cache | None = None, positions: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Cache]:
        """Logits of the next token at every position, and the cache."""
        hidden, kept = self.hidden(tokens, past, positions, mask)
        return self.logits(hidden), kept
