"""Reference tests of the kernels, one or two of each, in shapes that leave lanes, rows and splits unused."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from specchat.engine.gpu_checks.short_convs import RING, ShortConvLayer
from specchat.engine.gpu_checks.states import RecurrentLayer
from specchat.engine.kernels.gpu_shapes import STATE_SLOTS
from specchat.engine.kernels.verify_state import BLOCK
from specchat.engine.protocol.options import Acceptance, Sampling
from tests.kernels import (
    test_activation,
    test_attention,
    test_blocks,
    test_delta,
    test_experts,
    test_growth,
    test_latent,
    test_layer_inputs,
    test_rings,
    test_rope,
    test_rowwise,
    test_short_conv,
    test_sinks,
    test_trees,
    test_verify,
    test_windows,
)
from tests.kernels.interpreter import complete
from tests.kernels.test_rowwise import TOLERANCE
from tests.kernels.test_verify import EVERYTHING, SAMPLED, TOP_K, TOP_P

complete()

FLOAT, HALF = torch.float32, torch.bfloat16
THREE_BLOCKS = 2 * BLOCK + 90
"""Tokens of a vocabulary whose blocks are no power of two."""
NEARLY_A_LOG, NEARLY_A_RING, OVER = STATE_SLOTS - 9, RING - 9, 14
"""Tokens that a recurrent layer's log and a convolution's ring nearly end with, and those of the pass over the end."""


def filtered() -> None:
    for sampling in (TOP_P, replace(TOP_P, top_k=40)):
        test_verify.test_filters_keep_what_the_sampler_keeps(sampling, THREE_BLOCKS, 3.0, 0.0)
    test_verify.test_filters_keep_what_the_sampler_keeps(TOP_K, 300, 3.0, 1.0)


def judged(acceptance: Acceptance, sampling: Sampling, sampled: bool) -> None:
    for seed in (3, 8):
        ours, theirs = test_verify.judged(40, sampling, acceptance, sampled, seed)
        assert ours == theirs


def product(name: str, outputs: int, inputs: int) -> None:
    products = pytest.importorskip("tests.kernels.test_products")
    for dtype in (FLOAT, HALF):
        products.test_is_the_product_of_what_is_unpacked(name, dtype, outputs, inputs)


def wide(name: str) -> None:
    """In programs for few rows, as on a GPU of one multiprocessor."""
    with patch("specchat.engine.kernels.products.processors", lambda _: 1):
        product(name, 128, 256)
        activated(name, 64, 256)


def activated(name: str, inner: int, inputs: int) -> None:
    products = pytest.importorskip("tests.kernels.test_products")
    for dtype in (FLOAT, HALF):
        products.check_activation(name, "silu", inner, inputs, dtype)


def of_experts(name: str, outputs: int, inputs: int) -> None:
    """Gathered and not, with an activation and without, in tiles that are not full."""
    test_experts.test_is_the_product_with_the_weights_of_the_pairs_expert(name, HALF, outputs, inputs)


def routed() -> None:
    for name in ("shares of all", "sigmoids of groups", "beside a gated one"):
        test_experts.test_the_choice_is_the_references(name, 5)
    test_experts.test_the_choice_is_the_references("beside a whole one", 33)
    # In several programs, and a launch that sorts.
    with patch("specchat.engine.kernels.route.SCORES", 32):
        test_experts.test_the_choice_is_the_references("beside a gated one", 5)
    test_experts.test_of_equal_scores_the_lower_expert_comes_first_and_none_is_chosen_twice()


def mixed() -> None:
    for norms in (False, True):
        test_experts.test_what_is_added_is_the_references(70, norms, True)


def embedded() -> None:
    test_rowwise.TestEmbed().test_rows_of_the_table(HALF)
    test_rowwise.TestEmbed().test_rows_are_multiplied_by_a_scale(HALF)
    test_rowwise.TestEmbed().test_an_id_outside_the_table()
    for kind in ("Q4_0", "Q5_K"):
        test_blocks.test_rows_of_a_table_in_blocks(kind, HALF)


def normed() -> None:
    test_rowwise.TestNorm().test_is_llamas(1000, 5, FLOAT)
    for before in (False, True):
        test_rowwise.TestNorm().test_a_norm_and_a_factor_of_what_is_added(True, 0.22, before, FLOAT)
    test_rowwise.TestNorm().test_a_factor_at_the_end_of_a_layer(True, True, FLOAT)


def rotated() -> None:
    for dim, together, heads, kv in ((80, False, 4, 2), (8, True, 18, 6)):
        test_rope.TestRope().test_is_transformers(dim, True, together, heads, kv, FLOAT)
    test_rope.TestRope().test_norms_of_values_and_factors_on_queries(80, True, False, FLOAT)
    test_rope.TestRope().test_nothing_is_written_beyond_the_cache(HALF)


def given() -> None:
    for size in (24, 256):
        test_layer_inputs.test_inputs_are_a_norm_and_a_row_of_the_table(size, HALF)
    test_layer_inputs.test_a_gate_is_torchs(300, "gelu_tanh", FLOAT)


@cache
def recurrent_so_far() -> tuple[RecurrentLayer, Tensor]:
    """A layer that has read a text nearly as long as its log, and the outputs of that text and what comes after."""
    layer, tokens = RecurrentLayer(*test_delta.SHAPES[2], tokens=NEARLY_A_LOG + OVER), range(NEARLY_A_LOG + OVER)
    layer.read(list(tokens)[:NEARLY_A_LOG], (31,))
    return layer, layer.reference(list(tokens))


def recurrent() -> None:
    """A text that becomes longer than its log, in rows of which some are of no text, then a tree."""
    before, truth = recurrent_so_far()
    layer, tokens = deepcopy(before), list(range(NEARLY_A_LOG, NEARLY_A_LOG + OVER))
    made = layer.run([*tokens, 0, 1], NEARLY_A_LOG)[:OVER]
    torch.testing.assert_close(made.double(), truth[NEARLY_A_LOG:], rtol=1e-4, atol=1e-4)
    test_delta.test_a_row_of_a_tree_is_a_row_of_a_chain(5)


@cache
def convolved_so_far() -> ShortConvLayer:
    """A layer that has read a text nearly as long as its ring."""
    layer = ShortConvLayer(HALF)
    layer.read(test_short_conv.TEXT[:NEARLY_A_RING], (30,))
    return layer


def convolved() -> None:
    layer, text = deepcopy(convolved_so_far()), test_short_conv.TEXT[: NEARLY_A_RING + OVER]
    truth = layer.reference(text)
    for made, at in ((layer.run(text[NEARLY_A_RING:], NEARLY_A_RING), NEARLY_A_RING), (layer.run(text[:3], 0), 0)):
        expected = truth[at : at + len(made)]
        torch.testing.assert_close(made.double(), expected, atol=8 * TOLERANCE[HALF], rtol=TOLERANCE[HALF])
    assert not layer.keys.isnan().any()
    test_short_conv.test_a_row_of_a_tree_is_a_row_of_a_chain(5, FLOAT)
    test_short_conv.test_nothing_is_written_beyond_the_cache_or_of_a_skipped_layer()


def prepare() -> None:
    """Make what cases go on from: the sanitiser would look at each of its programs."""
    recurrent_so_far()
    convolved_so_far()


def ringed() -> None:
    test_rings.check_attention((197, 401), 4, 16, 9, 201, True, FLOAT)
    test_rings.test_entries_are_written_to_their_places(20, HALF)
    test_rings.test_the_entries_of_a_path_move_together_across_the_edge()


def of_latents() -> None:
    test_latent.test_a_latent_is_normed(HALF)
    test_latent.test_heads_are_put_together(2, 24, 8, 32, True)


CASES: dict[str, Callable[[], None]] = {
    "embed": embedded,
    "latents": of_latents,
    "norm": normed,
    "rope": rotated,
    "silu": lambda: test_activation.TestGate().test_is_torchs(172, "silu", HALF),
    "gelu": lambda: test_activation.TestGate().test_is_torchs(172, "gelu_tanh", HALF),
    "inputs of layers": given,
    "clamped gate": lambda: test_activation.TestGate().test_is_torchs(172, "clamped_swiglu", HALF),
    "chain": lambda: test_attention.test_a_chain_is_torchs(3, 80, 254, 7, FLOAT),
    "tree": lambda: test_attention.test_a_tree_is_torchs(7, 16, 250, 7, HALF),
    "chain in a window": lambda: test_windows.test_a_chain_is_torchs(3, 80, 254, 18, 7, FLOAT),
    "tree in a window": lambda: test_windows.test_a_tree_is_torchs(7, 16, 250, 7, 200, HALF),
    "sinks and gates": lambda: test_sinks.test_it_is_that_of_transformers(4, 80, 254, 7, False, 100, True, True, FLOAT),
    "rings": ringed,
    "many rows": lambda: test_attention.test_a_chain_is_torchs(3, 16, 120, 18, FLOAT),
    "many rows in a window": lambda: test_windows.test_a_chain_is_torchs(1, 8, 230, 17, 7, FLOAT),
    "heads of 512": lambda: test_attention.test_a_chain_is_torchs(2, 512, 250, 5, HALF),
    "heads of 256": lambda: test_attention.test_a_chain_is_torchs(2, 256, 250, 5, HALF),
    "nf4": lambda: product("nf4 32", 130, 160),
    "nf4 nested": lambda: product("nf4 nested 32", 130, 160),
    "nf4 in wide programs": lambda: wide("nf4 nested 64"),
    "int4 with zeros": lambda: product("int4 with zeros 32 in an order", 130, 160),
    "nf4 with silu": lambda: activated("nf4 64", 100, 192),
    "int8": lambda: product("int8", 96, 200),
    "dense": lambda: product("dense", 130, 200),
    "blocks": lambda: product("Q5_1", 130, 160),
    "blocks of a code": lambda: product("IQ4_NL", 130, 160),
    "super-blocks": lambda: product("Q4_K", 130, 256),
    "super-blocks without minimums": lambda: product("Q3_K", 130, 256),
    "codebooks": lambda: product("IQ3_S", 130, 256),
    "route": routed,
    "experts, nf4": lambda: of_experts("nf4, blocks of 32", 96, 160),
    "experts, int8": lambda: of_experts("int8", 96, 192),
    "experts, dense": lambda: of_experts("dense", 130, 200),
    "experts, blocks": lambda: of_experts("Q5_K", 130, 256),
    "experts of unlike parts": lambda: test_experts.test_experts_of_unlike_parts_have_a_launch_each(HALF),
    "mix": mixed,
    "scores": lambda: test_verify.test_scores_are_the_samplers(EVERYTHING, 300),
    "filters": filtered,
    "ratio": lambda: judged("ratio", TOP_P, sampled=True),
    "block": lambda: judged("block", TOP_P, sampled=True),
    "tree by turns": lambda: test_trees.test_the_ratio_test_of_a_tree_goes_by_turns(replace(SAMPLED, top_k=12), 1),
    "commit": test_verify.test_commit,
    "keep": lambda: test_trees.test_the_entries_of_the_path_move_together(None),
    "recurrent": recurrent,
    "short convolution": convolved,
    "growth": lambda: test_growth.check(test_growth.Model(THREE_BLOCKS, 7), SAMPLED, "coupled", 2),
}
