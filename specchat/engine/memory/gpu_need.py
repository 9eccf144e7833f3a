"""Memory on a GPU beside weights and cache, and reasons why a model does not run there; without torch or Triton."""

from collections.abc import Callable, Iterator
from math import prod

from specchat.engine.kernels import gpu_shapes as shapes
from specchat.engine.memory import gpu_states
from specchat.engine.program.lower import lower
from specchat.engine.program.table import unsupported as lacking
from specchat.engine.recipe import Attention, Experts, Gated, Layer, Matrix, PerLayer, Recipe
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
    """Bytes of the KV entries of `capacity` positions, of which `context` hold text, and of recurrent states."""
    values = (mixer.entry * shapes.held(mixer.window, context, capacity) for mixer in config.recipe.cached)
    return 2 * sum(values) + gpu_states.held(config.recipe)


def workspace(
    config: ModelConfig,
    head: Matrix,
    bits: dict[Matrix, int],
    joined: dict[Matrix, Matrix],
    capacity: int,
    processors: int,
) -> int:
    """Bytes of the outputs of a pass, as in `device.buffers`, and of the tables by position.

    `head` has the rows of the draft vocabulary, if any; `bits` are those a value of each matrix, including the head;
    `joined` are matrices by those that they follow, as rows of one; the cache has `capacity` positions.
    """
    recipe = config.recipe
    mixers = recipe.attentions

    def partials(matrix: Matrix) -> int:
        outputs = sum(matrix.outputs)
        return outputs * shapes.tiling(outputs, matrix.inputs, bits[matrix], processors).splits

    def sums(layer: Layer) -> tuple[int, ...]:
        return tuple(map(partials, layer.mixer.products))

    # Layers share buffers as large as the largest of them needs.
    summed: list[int] = [max(alike) for alike in zip(*map(sums, recipe.layers), strict=True)]
    query = max((m.heads * m.head_dim for m in mixers), default=0)
    mixed = max(layer.mixer.out.inputs for layer in recipe.layers)
    active = shapes.PASS_ROWS * (4 * (recipe.hidden + sum(summed)) + 2 * (recipe.hidden + query + mixed))
    active += _feeds(recipe, bits, joined, processors)
    heads = max((m.heads for m in mixers), default=0)
    attention = 4 * prod((-(-capacity // shapes.SPLIT), shapes.PASS_ROWS, heads, recipe.deepest + 2))
    logits = 4 * shapes.VERIFY_ROWS * partials(head)
    whole = 4 * shapes.VERIFY_ROWS * recipe.vocab if head.outputs != recipe.head.outputs else 0
    turns = 8 * capacity * sum(width for _, width in {(m.rope, m.rotary_dim) for m in mixers})
    factors = 4 * capacity * len({m.temper for m in mixers if m.temper[0]})
    inputs = _inputs(recipe, recipe.per_layer, partials) if recipe.per_layer else 0
    states = sum(gpu_states.buffers(mixer, partials(mixer.gates)) for mixer in recipe.recurrent[:1])
    return active + states + attention + logits + whole + turns + factors + inputs


def _inputs(recipe: Recipe, of: PerLayer, partials: Callable[[Matrix], int]) -> int:
    """Bytes of the inputs of layers and of what adds them, as in `device.layer_inputs`."""
    given = [layer.input for layer in recipe.layers if layer.input]
    sums = partials(of.project) + max(partials(one.gate) for one in given)
    sums += max(partials(one.down) for one in given)
    return shapes.PASS_ROWS * (4 * (of.width + sums) + 2 * of.norm.size)


def _feeds(recipe: Recipe, bits: dict[Matrix, int], joined: dict[Matrix, Matrix], processors: int) -> int:
    """Bytes between the products of MLPs and mixtures, as in `device.feeds`; arguments as in `workspace`."""
    routers = {one.router for one in recipe.mixtures if one.router in joined}

    def more(feed: Experts) -> int:
        """One if the shared MLP is an expert more, of every row."""
        return feed.each.down in joined

    def partials(matrix: Matrix, alike: int = 1) -> int:
        outputs = shapes.joined_scores(sum(matrix.outputs)) if matrix in routers else sum(matrix.outputs)
        return outputs * shapes.tiling(outputs, matrix.inputs, bits[matrix], processors, alike).splits

    def gates(matrix: Matrix, alike: int = 1) -> int:
        within = shapes.activates(sum(matrix.outputs), matrix.inputs, bits[matrix], processors, alike)
        return 0 if within else partials(matrix, alike)

    def of_all(feed: Gated | Experts) -> tuple[int, ...]:
        """Bytes a row of an MLP that all rows go through, if there is one."""
        one = (None if more(feed) else feed.shared) if isinstance(feed, Experts) else feed
        return (4 * gates(one.gate_up), 2 * one.width, 4 * partials(one.down)) if one else (0,) * 3

    def of_some(feed: Gated | Experts) -> tuple[int, ...]:
        """Bytes a row of a mixture, if there is one."""
        if not isinstance(feed, Experts):
            return (0,) * 6
        top, each = feed.top + more(feed), feed.each
        gate = None if more(feed) else feed.shared_gate
        return (
            4 * partials(feed.router),
            4 * recipe.hidden if feed.apart else 0,
            4 * top * gates(each.gate_up, top),
            2 * top * each.width,
            4 * top * partials(each.down, top),
            4 * partials(gate) if gate else 0,
        )

    feeds = [layer.feed for layer in recipe.layers]
    shared: int = sum(max(alike) for of in (of_all, of_some) for alike in zip(*map(of, feeds), strict=True))
    forms = {(feed.count + more(feed), feed.top + more(feed)) for feed in feeds if isinstance(feed, Experts)}
    pairs = sum(12 * shapes.PASS_ROWS * top + 4 + 12 * shapes.most_tiles(count, top) for count, top in forms)
    return shapes.PASS_ROWS * shared + pairs


def verifying(config: ModelConfig) -> int:
    """Bytes for verification of drafts, for the target alone."""
    return config.vocab * (4 * SCORES * shapes.VERIFY_ROWS + TOKEN)
