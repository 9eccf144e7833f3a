"""Memory on a GPU beside weights and cache, and reasons why a model does not run there; without torch or Triton."""

from collections.abc import Iterator
from math import prod

from specchat.engine.kernels import gpu_shapes as shapes
from specchat.engine.memory import gpu_states
from specchat.engine.memory.gpu_buffers import Cuts, attention_sets, size_of
from specchat.engine.program.lower import lower
from specchat.engine.program.ops import Program
from specchat.engine.program.table import unsupported as lacking
from specchat.engine.recipe import Attention, Matrix, Recipe
from specchat.engine.weights.config import ModelConfig

SCORES = 4
"""Arrays of 4 bytes a row and token for verification: scores and candidates, of target and draft."""
TOKEN = 9
"""Bytes a token of the vocabulary for penalties and bias."""


def unsupported(config: ModelConfig) -> str:
    """Reason why the GPU kernels cannot run a model, in words; empty if they can."""
    return next(_reasons(config), "")


def _reasons(config: ModelConfig) -> Iterator[str]:
    recipe = config.recipe
    mixers = recipe.attentions
    sharing = max((mixer.heads // mixer.kv_heads for mixer in mixers), default=0)
    matrices = recipe.embed, recipe.head, *(matrix for matrix, _ in recipe.forms)
    sizes = (
        (recipe.hidden, shapes.WIDEST, "hidden states of {} values"),
        (recipe.deepest, shapes.WIDEST_HEAD, "attention heads of {} values"),
        (sharing, shapes.SHARING_HEADS, "{} query heads a key head"),
        (len(config.eos), shapes.END_TOKENS, "{} end-of-text tokens"),
        (max(sum(matrix.outputs) * matrix.inputs for matrix in matrices), shapes.MATRIX, "a matrix of {} values"),
    )
    for has, most, feature in sizes:
        if has > most:
            yield f"{feature.format(has)}: the GPU kernels take {most} at most"
    if not all(map(_normed, mixers)):
        yield "norms of heads of another size: not in the GPU kernels yet"
    if any(one.apart and one.shared_gate for one in recipe.mixtures):
        yield "a weighed MLP beside experts with norms of their own: not in the GPU kernels yet"
    if lack := lacking(lower(recipe), "the GPU kernels"):
        yield lack
    yield from (f"{feature}: not in the GPU kernels yet" for feature in gpu_states.unsupported(recipe))


def _normed(mixer: Attention) -> bool:
    """True if norms of queries and keys are over each head or all heads together, and those of values over each."""
    one = mixer.head_dim
    sizes = (
        (mixer.query_norm, (one, mixer.heads * one)),
        (mixer.key_norm, (one, mixer.kv_heads * one)),
        (mixer.value_norm, (one,)),
    )
    return all(norm is None or norm.size in known for norm, known in sizes)


def cache(config: ModelConfig, context: int, capacity: int) -> int:
    """Bytes of recurrent states and of KV entries: `capacity` positions, `context` of them with text."""
    cached = config.recipe.cached
    entries = (one.entry_bytes(2) * shapes.held(one.window, context, capacity, one.mutual) for one in cached)
    return sum(entries) + gpu_states.held(config.recipe)


def workspace(
    program: Program, head: Matrix, of_head: int, cuts: Cuts, recipe: Recipe, context: int, capacity: int
) -> int:
    """Bytes of the outputs of a pass, as `device.buffers` allocates them, and of the tables by position.

    `head` has the rows of the draft vocabulary, if any, and `of_head` bits a value. The cache has `capacity` positions,
    `context` of them with text.
    """
    mixers = recipe.attentions
    rows, heads, dim, splits = attention_sets(recipe, context, capacity)
    attention = 4 * prod((splits, rows, heads, dim + 2))
    outputs = sum(head.outputs)
    logits = 4 * shapes.VERIFY_ROWS * outputs * shapes.tiling(outputs, head.inputs, of_head, cuts.processors).splits
    whole = 4 * shapes.VERIFY_ROWS * recipe.vocab if head.outputs != recipe.head.outputs else 0
    turns = 8 * capacity * sum(rope.turning if rope else 1 for rope, _ in {(m.rope, m.rotary_dim) for m in mixers})
    factors = 4 * capacity * len({m.temper for m in mixers if m.temper[0]})
    states = sum(map(gpu_states.buffers, recipe.recurrent[:1]))
    forms = {(of.count + cuts.more(of), of.top + cuts.more(of)) for of in recipe.mixtures}
    pairs = sum(16 * shapes.PROMPT_ROWS * top + 4 + 12 * shapes.most_tiles(count, top) for count, top in forms)
    stream = 4 * cuts.width * (recipe.hidden + 1)  # and the numbers of rows
    return size_of(program, cuts) + stream + pairs + states + attention + logits + whole + turns + factors


def choosing(config: ModelConfig) -> int:
    """Bytes for choosing the tokens of one more text: a row of logits, its scores and candidates, and penalties."""
    return config.vocab * (4 * 3 + TOKEN)


def verifying(config: ModelConfig) -> int:
    """Bytes for verification of drafts, for the target alone."""
    return config.vocab * (4 * SCORES * shapes.VERIFY_ROWS + TOKEN)
