"""DFlash (Chen et al. 2026, arXiv:2602.06036), trained on blocks that it will have to guess: its random anchors.

At an anchor, a slot of a reply, the pending token begins a block whose other tokens are masked. All are guessed in one
pass, from the target's states up to the anchor and from the block itself. The paper learns the tokens of replies; here
it is the target's shares of them, of which a token is one draw. Embeddings and the last product are the target's.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.rope import tables
from specchat.tune.parts import Entries, Mlp, shapes, turned
from specchat.tune.rows import LONGEST, Batch
from specchat.tune.target import FrozenTarget
from specchat.tune.trainee import EVEN, Published, Trainee

BLOCK = 8
"""Tokens of a block, the pending one among them."""
ANCHORS = 64
"""Blocks that are learnt from in a text at each step: longer texts have a share of theirs, another each time."""
MOST_LAYERS = 5
"""The paper's number, for targets of 36 layers."""


def depth(layers: int) -> int:
    """Layers of the head of a target with so many."""
    return min(MOST_LAYERS, max(2, layers // 4))


def read_layers(layers: int) -> tuple[int, ...]:
    """The numbers of the layers whose states the head looks at, of a target of so many, spread as in the paper."""
    last = depth(layers) - 1
    even = {round(2 + i * (layers - 4) / last) for i in range(last + 1)}
    return tuple(sorted({min(max(0, number), layers - 1) for number in even}))


def mask_token(target: Checkpoint) -> int:
    """A token that no text has: the last without a name, or that was added and ends nothing; the last if none is so."""
    c, tokenizer = target.config, target.tokenizer()
    named = set(tokenizer.vocabulary.values()) - set(tokenizer.added)
    return max(set(range(c.vocab)) - named - c.eos - tokenizer.eos, default=c.vocab - 1)


class DFlashAttention(nn.Module):
    """Of the rows of a block over the text up to its anchor, and over the block."""

    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self._heads, self._dim = c.heads, c.head_dim
        self.q_proj = nn.Linear(c.hidden, c.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.hidden, bias=False)
        self.q_norm = nn.RMSNorm(c.head_dim, c.norm_eps)
        self.k_norm = nn.RMSNorm(c.head_dim, c.norm_eps)

    def forward(self, x: Tensor, text: Tensor, ropes: tuple[Entries, Entries], later: Tensor) -> Tensor:
        """Blocks x float32 [rows, blocks, B, hidden] and text float32 [rows, slots, hidden], turned by `ropes`.

        `later` bool [rows, blocks, slots] are the slots that a block does not see.
        """
        query = turned(self.q_norm(self._split(self.q_proj(x))), ropes[0])
        (key, value), (before, values) = self._entries(x, ropes[0]), self._entries(text, ropes[1])
        seen = torch.einsum("rnbhd,rshd->rhnbs", query, before).masked_fill(later[:, None, :, None], -torch.inf)
        own = torch.einsum("rnbhd,rnchd->rhnbc", query, key)
        shares = (torch.cat([seen, own], -1) * self._dim**-0.5).softmax(-1)
        of_text, of_block = shares.split([text.shape[1], x.shape[2]], -1)
        mixed = torch.einsum("rhnbs,rshd->rnbhd", of_text, values)
        mixed = mixed + torch.einsum("rhnbc,rnchd->rnbhd", of_block, value)
        made: Tensor = self.o_proj(mixed.flatten(-2))
        return made

    def _entries(self, x: Tensor, rope: Entries) -> Entries:
        return turned(self.k_norm(self._split(self.k_proj(x))), rope), self._split(self.v_proj(x))

    def _split(self, x: Tensor) -> Tensor:
        apart = x.view(*x.shape[:-1], -1, self._dim)
        return apart.repeat_interleave(self._heads // apart.shape[-2], -2)


class DFlashLayer(nn.Module):
    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(c.hidden, c.norm_eps)
        self.self_attn = DFlashAttention(c)
        self.post_attention_layernorm = nn.RMSNorm(c.hidden, c.norm_eps)
        self.mlp = Mlp(c)

    def forward(self, x: Tensor, text: Tensor, ropes: tuple[Entries, Entries], later: Tensor) -> Tensor:
        hidden = x + self.self_attn(self.input_layernorm(x), text, ropes, later)
        made: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return made


class DFlashTrainee(Trainee):
    """Layers of the target's own shapes; its parameters have the names of z-lab's files."""

    places = BLOCK - 1
    anchors = ANCHORS

    def __init__(self, target: FrozenTarget, replies: Sequence[Sequence[int]]) -> None:
        """For `target`; all tokens are scored, whatever stands in the replies."""
        super().__init__()
        del replies
        c = target.config
        self._target, self._shapes = target, c
        self.width, self.layers, self._mask = c.hidden, read_layers(c.layers), mask_token(target.checkpoint)
        self.register_buffer("tokens", torch.arange(c.vocab), persistent=False)
        self._head = target.head()
        self.fc = nn.Linear(len(self.layers) * c.hidden, c.hidden, bias=False)
        self.hidden_norm = nn.RMSNorm(c.hidden, c.norm_eps)
        self.norm = nn.RMSNorm(c.hidden, c.norm_eps)
        # Not `layers`, which are the target's.
        self.stack = nn.ModuleList(DFlashLayer(c) for _ in range(depth(c.layers)))
        with torch.no_grad():
            self.norm.weight.copy_(EVEN * target.last_norm())

    def hidden(self, batch: Batch, anchors: Tensor) -> Iterator[Tensor]:
        rows, slots = anchors.shape
        # As many blocks in each row; where there are fewer anchors, slots that are none stand behind them.
        at = anchors.byte().argsort(dim=1, descending=True, stable=True)[:, : int(anchors.sum(1).max())]
        text = self.hidden_norm(self.fc(torch.cat([batch.states[layer][:, :slots] for layer in self.layers], -1)))
        x = self._target.embedded(torch.tensor([self._mask])).repeat(rows, at.shape[1], BLOCK, 1)
        x[:, :, 0] = self._target.embedded(batch.tokens.gather(1, at + 1))
        c, length = self._shapes, max(slots, LONGEST) + BLOCK
        cos, sin = (table.unsqueeze(-2) for table in tables(c.rope, c.head_dim, length))
        places = at.unsqueeze(-1) + torch.arange(1, BLOCK + 1)
        ropes = (cos[places], sin[places]), (cos[:slots], sin[:slots])
        later = torch.arange(slots) > at.unsqueeze(-1)
        for layer in self.stack:
            x = layer(x, text, ropes, later)
        for place in range(min(self.places, slots)):
            made = torch.zeros(rows, slots, self.width)
            yield made.scatter(1, at.unsqueeze(-1).expand(-1, -1, self.width), x[:, :, place + 1])[:, : slots - place]

    def scores(self, place: int, hidden: Tensor) -> Tensor:
        return linear(self.norm(hidden), self._head)

    def wanted(self, batch: Batch) -> Tensor:
        row, at = batch.replied()
        return self._target.logits(batch.states[self._shapes.layers][row, at - 1]).softmax(-1)

    def published(self) -> Published:
        c = self._shapes
        settings = {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            **shapes(c, len(self.stack)),
            "attention_bias": False,
            "tie_word_embeddings": c.tied,
            "num_target_layers": c.layers,
            "block_size": BLOCK,
            "dflash_config": {"mask_token_id": self._mask, "target_layer_ids": [number - 1 for number in self.layers]},
        }
        tensors = {name.replace("stack.", "layers."): part for name, part in self.state_dict().items()}
        return Published(settings, tensors)
