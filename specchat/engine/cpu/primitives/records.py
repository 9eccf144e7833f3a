"""Records that Python writes and compiled functions read by address: products, the steps of a pass, and a pass.

An address of 0 stands for an absent tensor or part. Numbers are int64, but for the float32 fields at the end.
"""

from functools import cache
from typing import Any

import numpy as np
from numba import from_dtype, types
from numba.core import cgutils
from numpy.typing import NDArray

from specchat.engine.cpu.primitives.simd import I64, constant, typed_primitive


def _kind(integers: str, floats: str = "") -> np.dtype[Any]:
    """Type of a record with these fields."""
    fields = [(name, np.int64) for name in integers.split()] + [(name, np.float32) for name in floats.split()]
    return np.dtype(fields, align=True)


PRODUCT = _kind(
    "address form panels inputs scales bias code block high signs shifts supers shift_supers order functions stored"
    " next"
)
"""A product: `address` of its packed weights in format `form`, `panels` vectors of outputs, `inputs`.

`scales` and `bias` are float32 vectors of outputs. Weights in blocks (`products/blocks.py`) have scales of a `block`,
and may have a plane of `high` bits and one of `signs`, a table `code`, zeros or minimums as `shifts`, and the float16
that scales and minimums are multiplied by. `order` is the permutation of its inputs. `functions` has the compiled
products of its format (`products.kernels`). The first `stored` panels are here, those after them in the PRODUCT `next`,
if any.
"""
STEP = _kind("part code own")
"""A step of a pass: it runs where `part` is not 0 among the `parts` of the pass. `code` is the address of an OPERATION,
`own` that of its record, or a number."""
NORMALISE = _kind("weight count bias", "eps")
"""The norm of the rows, and a bias, if any; of their first `count` values less their mean, if it is not 0."""
MULTIPLY = _kind("matrix source out meets")
"""A product of `source` in rows of `wide`, or of the rows' inputs where it is -1; threads meet after it if `meets`.

`source` and `out` are elements of a row.
"""
GATED = _kind("matrix activation curve")
"""The first product of an MLP; `activation` is a code of `activations.CODES`, `curve` as in `activations.xielu`."""
ADD = _kind("matrix source post", "factor eps")
"""An update of the rows: values from element `source` on of a row of `wide`, by a `matrix` or a norm `post`, if any."""
ATTENTION = _kind(
    "heads kv_heads size capacity entry block keys values tree_scratch values_offset cos sin turned query_norm key_norm"
    " value_norm whole_query_norm whole_key_norm late_query_norm late_key_norm window mutual temper sinks shared gated"
    " value_dim",
    "eps scale score_cap",
)
"""Attention: `keys` and `values` are the addresses of position 0, `values_offset` leads from a tree's key to its value.

A key or value takes `entry` bytes. With a `block` it is a row of an int8 cache, otherwise float32.
The first `turned` values of a head are rotated. The whole norms are over all heads, the late ones come after the
rotation. With `gated` gates follow queries; with `shared` the KV entries are those of an earlier layer. A `score_cap`
of 0 is none. With `mutual` rows see up to `until` of a pass, if it has one. Values end with zeros after `value_dim`,
which leave the results, if it is not 0.
"""
LATENT = _kind(
    "heads plain turned value_dim rank query_rank norm query_norm query_latent latent queries keys values interleaved",
    "eps query_eps",
)
"""Latent attention: elements of a row of `wide` at which latents, of `rank` and `query_rank`, and products begin.

Heads have `plain` values and `turned` ones to rotate: queries end with theirs, those of all keys follow the latent.
"""
DELTA = _kind(
    "pieces parts sharing key_dim value_dim taps query key value z writes decays convolved gates states entries entry"
    " held positions weights bias rates shifts query_length key_length skip norm tree_scratch",
    "length_eps eps",
)
"""Recurrent states: the value heads of a key head are so many `parts`, each of `pieces` has `sharing` value heads.

Elements of a row of `wide` at which those of the first piece begin: `query`, `key`, `value` and `z`, outputs of the
first product; `writes` and `decays` of all value heads; `convolved`, a query and a key of each piece. `gates` is the
product of writes and decays. `states`, `entries` and `positions` are of `StateLog`, with `held` entries of `entry`
values for each piece. `weights` are the convolution's, float32 [pieces, taps, inputs of a piece], `bias` is [pieces,
inputs of a piece]; `rates` and `shifts` float32 [value_heads] in whole vectors; `query_length` and `key_length` weights
of norms that make lengths; `norm` that of value heads. With `skip`, float32 [value_heads], states are those of Mamba 2:
without a product of gates and without lengths, and the norm is over the value heads of a key head.
"""
SHORT_CONV = _kind("taps half weights keys values tree_scratch values_offset")
"""A short convolution: `weights` float32 [taps, channels]; `half` of the channels are a key."""
MIXTURE = _kind(
    "products activation post count top renormalised sigmoid groups kept_groups by_best shared_row shared_gate between"
    " beside gates shares chosen order order_row sums shared_sums inputs shared_inputs correction factors router_norm"
    " pre_experts post_experts pre_shared post_shared",
    "eps factor post_eps",
)
"""A mixture of experts: the router is the first of `products`, `shared_row` is 0 without a shared MLP.

The products of gate and up and those of down follow, by expert, then gate and up, down and score of the shared MLP.
The norms exist if `router_norm` does. The update is normed by `post`, if any.
"""
INPUTS = _kind("product norm size width embedded rows made made_row", "eps")
"""Inputs of all layers by token."""
INPUT = _kind("inputs gate activation first")
"""A layer's input: values from `first` on of a row of the inputs."""
HEAD = _kind("matrix norm count bias logits logits_row", "eps cap")
"""The last norm as in NORMALISE, the product of the logits, and where they go; a `cap` of 0 is none."""
PASS = _kind(
    "rows start until spans span_count ancestors copies scratch_row x hidden parts wide wide_row own own_row own_size"
    " scores scores_row kept states states_rows tree_states tree_rows counters steps step_count head head_code thread"
    " threads passed turns normed scratch room input input_row",
)
"""A pass over `rows` rows of `x`, float32 [rows, hidden], from position `start` on.

Args:
    until: position before which the rows of a picture see all; 0 for text.
    spans: int64 [span_count, 4]: positions after `start`, rows, first and last index into `ancestors`; see
        `model/tree_layout.py`.
    ancestors: int64, rows of the tree scratch whose KV entries are put right before a span.
    copies: int64 [span_count]: bytes from the entries of the cache to those of the copy that a span goes by; an address
        of 0 if all go by the cache itself.
    scratch_row: first row of the tree scratch to fill; -1 without trees.
    parts: int64 [layers + 1, 3]: 1 for enabled mixers, MLPs, and layers where one of them is; 1 in the last row.
    wide: float32 [rows, wide_row], shared: outputs of the widest product, plus hidden with post-norms.
    own: float32 [threads, own_size], for each thread two buffers [rows, own_row].
    scores: float32 [threads, scores_row].
    kept: int64 [layers + 1]: index into `states` and `tree_states` of the hidden states after so many layers; -1 for
        none. An address of 0 keeps none.
    states, tree_states: float32 [kept layers, states_rows or tree_rows, hidden], as in `model/hidden_states.py`.
    counters: int64, LINE words for the barrier and for each product that threads share; zeros.
    steps, head: addresses of STEP [step_count] and HEAD; 0 to leave them out. `head_code` is `passes.HEAD_CODE`.

Each thread has a copy, in which `thread` is its number, `passed` the barriers so far, `turns` the products so far;
`normed` and `scratch` are its buffers, `room` its scores, `input` float32 [rows, input_row], inputs of products. A pass
without a norm before its first product begins with its `input`.
"""
PRODUCT_BYTES, STEP_BYTES = PRODUCT.itemsize, STEP.itemsize


def _reader(kind: np.dtype[Any]) -> Any:
    """Make the function that returns the record at an address."""
    record = from_dtype(kind)

    @typed_primitive
    def read(typing: Any, address: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.inttoptr(values[0], context.get_value_type(record))

        return record(types.int64), code

    return read


product_at, step_at, normalise_at, multiply_at = map(_reader, (PRODUCT, STEP, NORMALISE, MULTIPLY))
gated_at, add_at, attention_at, latent_at, delta_at = map(_reader, (GATED, ADD, ATTENTION, LATENT, DELTA))
short_conv_at, mixture_at, inputs_at, input_at = map(_reader, (SHORT_CONV, MIXTURE, INPUTS, INPUT))
head_at, pass_at = map(_reader, (HEAD, PASS))

_RUN = from_dtype(PASS)
OPERATION = types.void(_RUN, types.int64)
"""Signature of a step's function: a thread's record of the pass, and the address of the step's own record."""


@typed_primitive
def copy_pass(typing: Any, shared: Any) -> Any:
    """Copy the record of a pass to the caller's stack."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = context.get_value_type(_RUN)
        copied = builder.bitcast(cgutils.alloca_once(builder, I64, PASS.itemsize // 8), kind)
        cgutils.raw_memcpy(builder, copied, values[0], constant(1), PASS.itemsize)
        return copied

    return _RUN(_RUN), code


@typed_primitive
def run_operation(typing: Any, begins: Any, run: Any, own: Any) -> Any:
    """Call the compiled OPERATION at an address.

    A call by name would compile the function and all it calls once more, which takes as long as the first time.
    """

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = context.call_conv.get_function_type(types.none, OPERATION.args)
        pointer = builder.inttoptr(values[0], kind.as_pointer())
        context.call_conv.call_function(builder, pointer, types.none, OPERATION.args, values[1:])
        return context.get_dummy_value()

    return types.void(types.int64, _RUN, types.int64), code


@cache
def places(kind: np.dtype[Any]) -> dict[str, int]:
    """Index of the word of each int64 field."""
    fields: Any = kind.fields
    return {name: offset // 8 for name, (of, offset) in fields.items() if of == np.int64}


class Structure:
    """A record in memory, which keeps alive the arrays and records that it points to."""

    def __init__(self, kind: np.dtype[Any], **fields: Any) -> None:
        self._values: NDArray[Any] = np.zeros(1, kind)
        self._words = memoryview(self._values.view(np.uint8).data).cast("q")  # sooner than fields of the array
        self._places = places(kind)
        self._held: dict[str, Any] = {}
        self.address = self._values.ctypes.data
        self.set(**fields)

    def set(self, **fields: Any) -> None:
        """Set fields: numbers, or contiguous arrays and records for their addresses, None for address 0."""
        held = self._held
        for name, value in fields.items():
            if value is not None and held.get(name) is value:
                continue
            held.pop(name, None)
            number = 0 if value is None else value
            if isinstance(value, np.ndarray):
                held[name], number = value, value.ctypes.data
            elif isinstance(value, Structure):
                held[name], number = value, value.address
            if name in self._places:
                self._words[self._places[name]] = number
            else:
                self._values[name] = number

    def copy(self) -> "Structure":
        """Return a record that can be changed by itself."""
        made = Structure(self._values.dtype)
        made._values[:], made._held = self._values, dict(self._held)
        return made

    def __getitem__(self, name: str) -> Any:
        return self._values[name][0]

    def __contains__(self, name: str) -> bool:
        return name in (self._values.dtype.names or ())
