"""Argument types of the passes, known without compiling them."""

from typing import Any

from numba import types
from numba.core.sigutils import normalize_signature

LAYERS: tuple[Any, ...] = normalize_signature(
    "void(f4[:,::1], i8, i8, i8[:,::1], i8[::1], i8, i8[:,::1], f4[:,::1], i8[:,::1], f4[::1], b1[:,::1], f4[:,::1], "
    "f4[:,:,:,::1], f4[:,::1], i8, i8[::1], f4[:,:,::1], f4[:,:,::1], i8[::1], i8, i8)"
)[0]
"""Arguments of `passes.layers`."""
HEAD: tuple[Any, ...] = normalize_signature(
    "void(f4[:,::1], i8, i8[::1], i8[:,::1], f4[::1], f4[::1], f4, f4, f4[:,::1], f4[:,:,:,::1], i8[::1], i8, i8)"
)[0]
"""Arguments of `passes.head`."""
EXPERTS: tuple[Any, ...] = normalize_signature(
    "void(i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, f4, i8, f4, i8, i8, i8, i8, i8, i8, i8)"
)[0]
"""Arguments of `experts.experts`."""
MAKE_INPUTS: tuple[Any, ...] = normalize_signature("void(i8, i8, i8, i8, i8, i8, i8, i8, i8)")[0]
"""Arguments of `per_layer.make_inputs`."""
ADD_INPUT: tuple[Any, ...] = normalize_signature(
    "void(i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, f4, i8, i8, i8, i8, i8, i8, i8, i8, i8)"
)[0]
"""Arguments of `per_layer.add_input`."""
DELTA: tuple[Any, ...] = normalize_signature(
    "void(i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, f4, i8, i8, i8, i8, i8, i8)"
)[0]
"""Arguments of `delta.delta_layer`."""
SHORT_CONV: tuple[Any, ...] = normalize_signature(
    "void(i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8)"
)[0]
"""Arguments of `short_conv.convolve`."""
LAYER_ARGS = types.Tuple(LAYERS[5:-2])
"""Arguments of `passes.layers` after `ancestors`, without thread and threads."""
HEAD_ARGS = types.Tuple(HEAD[2:-2])
"""Arguments of `passes.head` after the rows, without thread and threads."""
