"""EAGLE-3 (Li et al. 2025), trained as it will draft: its training-time test.

The head is run from every slot of a text at once, several tokens far. At place 0 its features are the target's; at
place i > 0 they are what the head itself made at place i - 1. Of entries it sees there the target's up to its slot, and
then its own of places 1, ..., i from that slot. It learns the target's shares of the tokens that it may propose, where
the target's likeliest token is one of them.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from specchat.engine.frequent_tokens import always, frequent
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.rope import tables
from specchat.tune.parts import Entries, Mlp, shapes, turned
from specchat.tune.rows import LONGEST, Batch
from specchat.tune.target import FrozenTarget
from specchat.tune.trainee import EVEN, Published, Trainee

PLACES = 5
"""How far the head is run, which is what `eagle3` drafts a step."""
PROPOSED = 32_000
"""Tokens that published heads may propose."""


def read_layers(layers: int) -> tuple[int, ...]:
    """The numbers of the layers whose states the head looks at, of a target of so many: the paper's."""
    return min(2, layers), layers // 2, max(1, layers - 3)


class Eagle3Attention(nn.Module):
    """Over the target's entries up to a row's slot, and the head's own of the same slot."""

    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self._heads, self._dim = c.heads, c.head_dim
        self.q_proj = nn.Linear(2 * c.hidden, c.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(2 * c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(2 * c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.hidden, bias=False)

    def forward(self, x: Tensor, rope: Entries, before: list[Entries]) -> Tensor:
        """x float32 [rows, slots, 2 hidden], turned by `rope`; its own entries are added to those of places before."""
        rows, slots, _ = x.shape

        def split(product: nn.Linear) -> Tensor:
            made: Tensor = product(x).view(rows, slots, -1, self._dim).transpose(1, 2)
            return made.repeat_interleave(self._heads // made.shape[1], 1)

        query, key, value = turned(split(self.q_proj), rope), turned(split(self.k_proj), rope), split(self.v_proj)
        before.append((key, value))
        (first, values), *own = [(k[:, :, :slots], v[:, :, :slots]) for k, v in before]
        later = torch.ones(slots, slots, dtype=torch.bool).triu(1)
        scores = [(query @ first.mT).masked_fill(later, -torch.inf)]
        scores += [(query * k).sum(-1, keepdim=True) for k, _ in own]
        shares = (torch.cat(scores, -1) * self._dim**-0.5).softmax(-1)
        mixed = shares[..., :slots] @ values
        for place, (_, v) in enumerate(own):
            mixed = mixed + shares[..., slots + place, None] * v
        made: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return made


class Eagle3Layer(nn.Module):
    """The head's one layer, over embeddings and features, onto the features."""

    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(c.hidden, c.norm_eps)
        self.hidden_norm = nn.RMSNorm(c.hidden, c.norm_eps)
        self.self_attn = Eagle3Attention(c)
        self.post_attention_layernorm = nn.RMSNorm(c.hidden, c.norm_eps)
        self.mlp = Mlp(c)

    def forward(self, embedded: Tensor, features: Tensor, rope: Entries, before: list[Entries]) -> Tensor:
        x = torch.cat([self.input_layernorm(embedded), self.hidden_norm(features)], -1)
        hidden = features + self.self_attn(x, rope, before)
        made: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return made


class Eagle3Trainee(Trainee):
    """A head of the target's own shapes; its parameters have the names of SafeAILab's and SpecForge's files."""

    places = PLACES
    scoring = ("lm_head.weight",)

    def __init__(self, target: FrozenTarget, replies: Sequence[Sequence[int]], proposed: int = PROPOSED) -> None:
        """For `target`; of its tokens the `proposed` ones that come most often in `replies` are scored."""
        super().__init__()
        c = target.config
        self._target, self._shapes = target, c
        self.width, self.layers = c.hidden, read_layers(c.layers)
        self.register_buffer("tokens", _chosen(target, replies, proposed))
        self.fc = nn.Linear(len(self.layers) * c.hidden, c.hidden, bias=False)
        self.midlayer = Eagle3Layer(c)
        self.norm = nn.RMSNorm(c.hidden, c.norm_eps)
        self.lm_head = nn.Linear(c.hidden, len(self.tokens), bias=False)
        with torch.no_grad():
            self.lm_head.weight.copy_(target.head()[self.tokens])
            self.norm.weight.copy_(EVEN * target.last_norm())

    def hidden(self, batch: Batch, anchors: Tensor) -> Iterator[Tensor]:
        length = batch.tokens.shape[1]
        features = self.fc(torch.cat([batch.states[layer] for layer in self.layers], -1))
        embedded = self._target.embedded(batch.tokens[:, 1:])
        cos, sin = tables(self._shapes.rope, self._shapes.head_dim, max(length, LONGEST))
        before: list[Entries] = []
        for place in range(min(self.places, length - 2)):
            slots = length - 2 - place
            positions = slice(place, place + slots)
            rope = cos[positions], sin[positions]
            features = self.midlayer(embedded[:, positions], features[:, :slots], rope, before)
            yield features

    def scores(self, place: int, hidden: Tensor) -> Tensor:
        scores: Tensor = self.lm_head(self.norm(hidden))
        return scores

    def wanted(self, batch: Batch) -> Tensor:
        row, at = batch.replied()
        logits = self._target.logits(batch.states[self._shapes.layers][row, at - 1])
        proposes = torch.zeros(logits.shape[1], dtype=torch.bool).index_fill_(0, self.tokens, True)
        return logits[:, self.tokens].softmax(-1) * proposes[logits.argmax(-1)].unsqueeze(1)

    def published(self) -> Published:
        c = self._shapes
        settings = {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            **shapes(c, 1),
            "draft_vocab_size": len(self.tokens),
            "tie_word_embeddings": False,
            "eagle_aux_hidden_state_layer_ids": list(self.layers),
            "norm_before_residual": False,
        }
        tensors = {name: tensor for name, tensor in self.state_dict().items() if name != "tokens"}
        if len(self.tokens) < c.vocab:
            tensors["d2t"] = self.tokens - torch.arange(len(self.tokens))
            tensors["t2d"] = torch.zeros(c.vocab, dtype=torch.bool).index_fill_(0, self.tokens, True)
        return Published(settings, tensors)


def _chosen(target: FrozenTarget, replies: Sequence[Sequence[int]], proposed: int) -> Tensor:
    """The tokens int64 [scored] that may be proposed, ascending."""
    c = target.config
    if proposed >= c.vocab:
        return torch.arange(c.vocab)
    tokenizer = target.checkpoint.tokenizer()
    kept = always(tokenizer, c.eos | tokenizer.eos)
    return torch.tensor(sorted(frequent(replies, kept, max(proposed, len(kept)), c.vocab)))
