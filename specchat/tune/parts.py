"""What the layers of heads under training have in common, and what is told of them in config.json."""

from torch import Tensor, nn
from torch.nn.functional import silu

from specchat.engine.model.config import ModelConfig

Entries = tuple[Tensor, Tensor]
"""Two tensors of the same places: keys and values, or cosines and sines."""


class Mlp(nn.Module):
    """down(silu(gate x) * up x), of the shapes of `c`."""

    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden, c.intermediate, bias=False)
        self.up_proj = nn.Linear(c.hidden, c.intermediate, bias=False)
        self.down_proj = nn.Linear(c.intermediate, c.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))
        return made


def turned(x: Tensor, rope: Entries) -> Tensor:
    """Queries or keys float32 [..., head_dim] with the rotary embedding of their places."""
    cos, sin = rope
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin


def shapes(c: ModelConfig, layers: int) -> dict[str, object]:
    """The settings of a head of so many layers that are shaped as those of `c`."""
    rope = {} if c.rope.kind == "default" else {"rope_scaling": {**c.rope.options, "rope_type": c.rope.kind}}
    return {
        "hidden_size": c.hidden,
        "intermediate_size": c.intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_dim,
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "rms_norm_eps": c.norm_eps,
        "rope_theta": c.rope.theta,
        **rope,
        "hidden_act": "silu",
    }
