"""DFlash (Chen et al. 2026, arXiv:2602.06036), trained on blocks that it will have to guess: its random anchors.

At an anchor, a slot of a reply, the pending token begins a block whose other tokens are masked. All are guessed in one
pass, from the target's states up to the anchor and from the block itself. The paper learns the tokens of replies; here
it is the target's shares of them, of which a token is one draw. Embeddings and the last product are the target's.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import linear

from specchat.engine import families
from specchat.engine.heads.recipe import layers
from specchat.engine.model.rope import tables
from specchat.engine.recipe import Attention, Layer, Matrix, Norm
from specchat.engine.reference import layer as reference
from specchat.engine.reference.ops import Context, keys_and_values, norm
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import ModelConfig
from specchat.tune.parts import add, mixed, settings
from specchat.tune.plan import TrainingSize
from specchat.tune.rows import LONGEST, Batch
from specchat.tune.size import REPLY_TOKENS, layer_bytes, score_bytes, state_bytes
from specchat.tune.target import FrozenTarget
from specchat.tune.trainee import EVEN, Published, Trainee
from specchat.tune.training import ROWS

BLOCK = 8
"""Tokens of a block, the pending one among them."""
ANCHORS = 64
"""Blocks that are learnt from in a text at each step: longer texts have a share of theirs, another each time."""
STACK = "stack"
"""Name of the head's layers here; `layers` are the target's."""
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


def size(c: ModelConfig) -> TrainingSize:
    """Size of the training for a target `c`, whose head is held beside it: all layers run over the blocks."""
    stack, read, rows = _stack(c)[1], len(read_layers(c.layers)), ROWS * ANCHORS * BLOCK
    weights = read * c.hidden**2 + sum(layer.parameters for layer in stack)
    step = state_bytes(read + 1, c.hidden) + score_bytes(c.vocab, 2, BLOCK - 1, ROWS * ANCHORS) + 4 * c.vocab * c.hidden
    step += sum(layer_bytes(layer, rows, LONGEST) for layer in stack) + state_bytes(3 * len(stack), c.hidden)
    return TrainingSize(weights, step, weights * rows + REPLY_TOKENS * c.hidden * c.vocab * BLOCK)


class DFlashTrainee(Trainee):
    """Layers of the target's own shapes; its parameters have the names of z-lab's files."""

    places = BLOCK - 1
    anchors = ANCHORS

    def __init__(self, target: FrozenTarget, replies: Sequence[Sequence[int]]) -> None:
        """For `target`; all tokens are scored, whatever stands in the replies."""
        super().__init__()
        del replies
        c = target.config
        self._target, self._config = target, c
        self.width, self.layers, self._mask = c.hidden, read_layers(c.layers), mask_token(target.checkpoint)
        self.register_buffer("tokens", torch.arange(c.vocab), persistent=False)
        self._head = target.head().to(target.device)
        self._settings, self._stack = _stack(c)
        self._fc = Matrix(("fc",), (c.hidden,), len(self.layers) * c.hidden)
        self._text_norm, self._norm = (Norm(name, c.hidden, c.recipe.norm.eps) for name in ("hidden_norm", "norm"))
        add(self, self._fc, self._text_norm, self._norm, *self._stack)
        with torch.no_grad():
            self.get_parameter("norm.weight").copy_(EVEN * target.last_norm())

    def hidden(self, batch: Batch, anchors: Tensor) -> Iterator[Tensor]:
        rows, slots = anchors.shape
        # As many blocks in each row; where there are fewer anchors, slots that are none stand behind them.
        at = anchors.byte().argsort(dim=1, descending=True, stable=True)[:, : int(anchors.sum(1).max())]
        tensors, mixer = self.tensors, self._stack[0].attention
        states = torch.cat([batch.states[layer][:, :slots] for layer in self.layers], -1)
        text = norm(self._text_norm, tensors.product(states, self._fc), tensors)
        x = self._target.embed(torch.tensor([self._mask], device=self.device)).repeat(rows, at.shape[1], BLOCK, 1)
        x[:, :, 0] = self._target.embed(batch.tokens.gather(1, at + 1))
        turns = tables(mixer.rope, mixer.head_dim, max(slots, LONGEST) + BLOCK)
        cos, sin = (table.to(self.device) for table in turns)
        places = (at.unsqueeze(-1) + torch.arange(1, BLOCK + 1, device=self.device)).unsqueeze(2)
        later = (torch.arange(slots, device=self.device) > at.unsqueeze(-1))[:, :, None, None, None]
        for layer in self._stack:
            before = keys_and_values(layer.attention, text, tensors, (cos[:slots], sin[:slots]))
            attend = partial(_attended, before=before, later=later)
            x = reference.layer(layer, x, tensors, Context((cos[places], sin[places]), lambda *new: new, attend=attend))
        for depth in range(min(self.places, slots)):
            base = torch.zeros(rows, slots, self.width, device=self.device)
            yield base.scatter(1, at.unsqueeze(-1).expand(-1, -1, self.width), x[:, :, depth + 1])[:, : slots - depth]

    def scores(self, depth: int, hidden: Tensor) -> Tensor:
        return linear(norm(self._norm, hidden, self.tensors), self._head)

    def wanted(self, batch: Batch) -> Tensor:
        row, at = batch.replied()
        return self._target.logits(batch.states[self._config.layers][row, at - 1]).softmax(-1)

    def published(self) -> Published:
        keys = {
            "architectures": ["DFlashDraftModel"],
            **self._settings,
            "attention_bias": False,
            "tie_word_embeddings": self._config.tied,
            "num_target_layers": self._config.layers,
            "block_size": BLOCK,
            "dflash_config": {"mask_token_id": self._mask, "target_layer_ids": [number - 1 for number in self.layers]},
        }
        return Published(keys, {name.replace(f"{STACK}.", "layers."): part for name, part in self.state_dict().items()})


def _stack(c: ModelConfig) -> tuple[dict[str, object], tuple[Layer, ...]]:
    family = families.head_normed()
    keys = settings(c, family, depth(c.layers))
    return keys, layers(family.recipe(family.settings.model_validate(keys)), STACK)


def _attended(
    of: Attention, query: Tensor, key: Tensor, value: Tensor, *_: object, before: tuple[Tensor, Tensor], later: Tensor
) -> Tensor:
    """The values that queries of blocks float32 [rows, blocks, heads, B, head_dim] mix of text and block.

    `before` are the text's entries float32 [rows, kv_heads, slots, head_dim]; `later`, bool [rows, blocks, 1, 1, 1,
    slots], tells which of them a block does not see.
    """
    grouped, (keys, values) = of.scale * query.unflatten(2, (of.kv_heads, -1)), before
    seen = torch.einsum("rnkgbd,rksd->rnkgbs", grouped, keys).masked_fill(later, -torch.inf)
    blocks = torch.einsum("rnkgbd,rnkcd->rnkgbc", grouped, key)
    of_text = partial(torch.einsum, "rnkgbs,rksd->rnkgbd")
    of_block = partial(torch.einsum, "rnkgbc,rnkcd->rnkgbd")
    return mixed(
        [(seen, lambda shares: of_text(shares, values)), (blocks, lambda shares: of_block(shares, value))]
    ).flatten(2, 3)
