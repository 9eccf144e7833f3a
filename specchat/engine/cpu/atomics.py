"""What threads that work together share, and calls by address."""

import sys
from typing import Any

from llvmlite import ir
from numba import types

from specchat.engine.cpu.simd import I64, at, constant, inner, load, primitive


@primitive
def address(typing: Any, array: Any) -> Any:
    """Where the elements of a contiguous array begin."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.ptrtoint(made.data, I64)

    return types.int64(array), code


@primitive
def word(typing: Any, address: Any, index: Any) -> Any:
    """The int64 at `address`, `index` words further."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return load(builder, arguments[0], arguments[1], I64, 8)

    return types.int64(types.int64, types.int64), code


@primitive
def call(typing: Any, function: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any) -> Any:
    """Calls the compiled function at an address with seven int64."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [I64] * 7)
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 8), code


@primitive
def taken(typing: Any, address: Any, index: Any) -> Any:
    """The int64 at `address`, `index` words further, which is then one more; at once for all threads."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", at(builder, arguments[0], arguments[1], I64, 8), constant(1), "seq_cst")

    return types.int64(types.int64, types.int64), code


@primitive
def seen(typing: Any, address: Any) -> Any:
    """The int64 at `address` as other threads left it."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], I64.as_pointer())
        return builder.load_atomic(pointer, "seq_cst", 8)

    return types.int64(types.int64), code


if sys.platform == "win32":

    @inner
    def relax() -> None:
        """Let others run."""

else:
    _yield = types.ExternalFunction("sched_yield", types.int32())

    @inner
    def relax() -> None:
        """Let others run."""
        _yield()
