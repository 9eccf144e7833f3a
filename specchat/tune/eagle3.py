"""EAGLE-3 (Li et al. 2025), trained as it will draft: its training-time test.

The head is run from every slot of a text at once, several tokens far. At place 0 its features are the target's; at
place i > 0 they are what the head itself made at place i - 1. Of entries it sees there the target's up to its slot, and
then its own of places 1, ..., i from that slot. It learns the target's shares of the tokens that it may propose, where
the target's likeliest token is one of them.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from specchat.engine import families
from specchat.engine.heads.recipe import joined, layers, renamed
from specchat.engine.model.rope import tables
from specchat.engine.recipe import Attention, Layer, Matrix, Norm
from specchat.engine.reference.layer import layer
from specchat.engine.reference.ops import Context, norm
from specchat.engine.weights.config import ModelConfig
from specchat.tune.frequent_tokens import always, frequent
from specchat.tune.parts import Piece, add, mixed, settings
from specchat.tune.plan import TrainingSize
from specchat.tune.rows import LONGEST, Batch
from specchat.tune.size import REPLY_TOKENS, TEXT_TOKENS, layer_bytes, score_bytes, state_bytes
from specchat.tune.target import FrozenTarget
from specchat.tune.trainee import EVEN, Published, Trainee

PLACES = 5
"""Tokens that the head predicts in training: as many as `eagle3` drafts a step."""
PROPOSED = 32_000
"""Tokens that published heads may propose."""


def read_layers(layers: int) -> tuple[int, ...]:
    """The numbers of the layers whose states the head looks at, of a target of so many: the paper's."""
    return min(2, layers), layers // 2, max(1, layers - 3)


def size(c: ModelConfig) -> TrainingSize:
    """Size of the training for a target `c`: every place runs the layer over whole texts."""
    layer, scored, read = _layer(c)[1], min(PROPOSED, c.vocab), len(read_layers(c.layers))
    weights = read * c.hidden**2 + layer.parameters + scored * c.hidden
    step = state_bytes(read + 1, c.hidden) + score_bytes(c.vocab, 2, 0) + score_bytes(scored, 2, PLACES)
    step += PLACES * layer_bytes(layer, TEXT_TOKENS, LONGEST, scores=3)
    passed = read * c.hidden**2 + PLACES * layer.parameters
    scores = REPLY_TOKENS * c.hidden * (PLACES * scored + c.vocab)
    return TrainingSize(weights, step, passed * TEXT_TOKENS + scores)


class Eagle3Trainee(Trainee):
    """A head of the target's own shapes; its parameters have the names of SafeAILab's and SpecForge's files."""

    places = PLACES
    scoring = ("lm_head.weight",)

    def __init__(self, target: FrozenTarget, replies: Sequence[Sequence[int]], proposed: int = PROPOSED) -> None:
        """For `target`; of its tokens the `proposed` ones that come most often in `replies` are scored."""
        super().__init__()
        c = target.config
        self._target, self._config = target, c
        self.width, self.layers = c.hidden, read_layers(c.layers)
        self.register_buffer("tokens", _chosen(target, replies, proposed))
        self._settings, self._layer = _layer(c)
        self._fc = Matrix(("fc",), (c.hidden,), len(self.layers) * c.hidden)
        self._head = Matrix(("lm_head",), (len(self.tokens),), c.hidden)
        names = "midlayer.input_layernorm", "midlayer.hidden_norm", "norm"
        self._token_norm, self._feature_norm, self._norm = (Norm(name, c.hidden, c.recipe.norm.eps) for name in names)
        add(self, self._fc, self._layer, self._token_norm, self._feature_norm, self._norm, self._head)
        with torch.no_grad():
            self.get_parameter("lm_head.weight").copy_(target.head()[self.tokens])
            self.get_parameter("norm.weight").copy_(EVEN * target.last_norm())

    def hidden(self, batch: Batch, anchors: Tensor) -> Iterator[Tensor]:
        length, tensors = batch.tokens.shape[1], self.tensors
        features = tensors.product(torch.cat([batch.states[layer] for layer in self.layers], -1), self._fc)
        embedded = norm(self._token_norm, self._target.embed(batch.tokens[:, 1:]), tensors)
        turns = tables(self._layer.attention.rope, self._layer.attention.head_dim, max(length, LONGEST))
        cos, sin = (table.to(self.device) for table in turns)
        cached: list[tuple[Tensor, Tensor]] = []
        """Keys and values of each place."""

        def entries(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            cached.append((key, value))
            return key, value

        def attend(of: Attention, query: Tensor, *_: object) -> Tensor:
            grouped, slots = query.unflatten(1, (of.kv_heads, -1)), query.shape[-2]
            (text, values), *drafted = [(k[:, :, None, :slots], v[:, :, None, :slots]) for k, v in cached]
            later = torch.ones(slots, slots, dtype=torch.bool, device=self.device).triu(1)
            scores = (grouped @ text.mT).masked_fill(later, -torch.inf)
            pieces: list[Piece] = [(of.scale * scores, lambda shares: shares @ values)]
            for k, v in drafted:
                pieces.append((of.scale * (grouped * k).sum(-1, keepdim=True), partial(torch.mul, v)))
            return mixed(pieces).flatten(1, 2)

        for depth in range(min(self.places, length - 2)):
            slots = length - 2 - depth
            at, features = slice(depth, depth + slots), features[:, :slots]
            context = Context((cos[at], sin[at]), entries, attend=attend)
            inputs = torch.cat([embedded[:, at], norm(self._feature_norm, features, tensors)], -1)
            features = layer(self._layer, features, tensors, context, inputs=inputs)
            yield features

    def scores(self, depth: int, hidden: Tensor) -> Tensor:
        return self.tensors.product(norm(self._norm, hidden, self.tensors), self._head)

    def wanted(self, batch: Batch) -> Tensor:
        row, at = batch.replied()
        logits = self._target.logits(batch.states[self._config.layers][row, at - 1])
        proposes = torch.zeros(logits.shape[1], dtype=torch.bool, device=self.device).index_fill_(0, self.tokens, True)
        return logits[:, self.tokens].softmax(-1) * proposes[logits.argmax(-1)].unsqueeze(1)

    def published(self) -> Published:
        keys = {
            "architectures": ["LlamaForCausalLMEagle3"],
            **self._settings,
            "draft_vocab_size": len(self.tokens),
            "tie_word_embeddings": False,
            "eagle_aux_hidden_state_layer_ids": list(self.layers),
            "norm_before_residual": False,
        }
        tensors = {name: tensor for name, tensor in self.state_dict().items() if name != "tokens"}
        if len(tokens := self.tokens.cpu()) < (vocab := self._config.vocab):
            tensors["d2t"] = tokens - torch.arange(len(tokens))
            tensors["t2d"] = torch.zeros(vocab, dtype=torch.bool).index_fill_(0, tokens, True)
        return Published(keys, tensors)


def _layer(c: ModelConfig) -> tuple[dict[str, object], Layer]:
    family = families.plain()
    keys = settings(c, family, 1)
    (layer,) = layers(family.recipe(family.settings.model_validate(keys)), "midlayer")
    return keys, renamed(joined(layer, 2 * c.hidden), "midlayer.0.", "midlayer.")


def _chosen(target: FrozenTarget, replies: Sequence[Sequence[int]], proposed: int) -> Tensor:
    """The tokens int64 [scored] that may be proposed, ascending."""
    c = target.config
    if proposed >= c.vocab:
        return torch.arange(c.vocab)
    tokenizer = target.checkpoint.tokenizer()
    required = always(tokenizer, c.eos | tokenizer.eos)
    return torch.tensor(sorted(frequent(replies, required, max(proposed, len(required)), c.vocab)))
