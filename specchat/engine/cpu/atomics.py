"""Atomic operations on words that threads share, and calls of compiled functions by address."""

import platform
import sys
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from specchat.engine.cpu.simd import I32, I64, at, constant, inner, instruction, load, primitive


@primitive
def address(typing: Any, array: Any) -> Any:
    """Address of the first element of a contiguous array."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.ptrtoint(made.data, I64)

    return types.int64(array), code


@primitive
def word(typing: Any, address: Any, index: Any) -> Any:
    """Return the int64 at `address`, `index` words further."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return load(builder, arguments[0], arguments[1], I64, 8)

    return types.int64(types.int64, types.int64), code


@primitive
def put_word(typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Put an int64 at `address`, `index` words further."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], at(builder, arguments[0], arguments[1], I64, 8), align=8)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), code


@primitive
def call(typing: Any, function: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    """Call the compiled function at an address with eight int64."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [I64] * 8)
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 9), code


def code_address(function: Any) -> int:
    """Address of the code of a compiled function that has one signature, for `caller_of`."""
    (made,) = function.overloads.values()
    begins: int = made.library.get_pointer_to_function(made.fndesc.llvm_func_name)
    return begins


def caller_of(wanted: tuple[Any, ...]) -> Any:
    """Make a call by `code_address` of a compiled function that takes a tuple of types `wanted` and returns nothing.

    A call by name would compile the function and all it calls once more, which takes as long as the first time.
    """

    @primitive
    def python_callable(typing: Any, begins: Any, arguments: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            given = cgutils.unpack_tuple(builder, values[1])
            exact = [context.cast(builder, *one) for one in zip(given, arguments, wanted, strict=True)]
            kind = context.call_conv.get_function_type(types.none, wanted)
            pointer = builder.inttoptr(values[0], kind.as_pointer())
            context.call_conv.call_function(builder, pointer, types.none, wanted, exact)
            return context.get_dummy_value()

        return types.void(types.int64, arguments), code

    return python_callable


@primitive
def fetch_add(typing: Any, address: Any, index: Any) -> Any:
    """Add one to the int64 at `address`, `index` words further, atomically; return its former value."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", at(builder, arguments[0], arguments[1], I64, 8), constant(1), "seq_cst")

    return types.int64(types.int64, types.int64), code


@primitive
def exchange(typing: Any, address: Any, value: Any) -> Any:
    """Put `value` at `address` atomically; return the former int64."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("xchg", builder.inttoptr(arguments[0], I64.as_pointer()), arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), code


@primitive
def atomic_load(typing: Any, address: Any) -> Any:
    """Load the int64 at `address` atomically: the latest value of any thread."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], I64.as_pointer())
        return builder.load_atomic(pointer, "seq_cst", 8)

    return types.int64(types.int64), code


PAUSES = {"x86_64": ("llvm.x86.sse2.pause", ()), "aarch64": ("llvm.aarch64.hint", (1,))}
"""Instruction for a spinning thread, by architecture."""
_KIND = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())


@primitive
def pause(typing: Any) -> Any:
    """Pause briefly, which leaves the core to its other hardware thread."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if _KIND in PAUSES:
            name, given = PAUSES[_KIND]
            instruction(builder, name, ir.VoidType(), [ir.Constant(I32, one) for one in given])
        return context.get_dummy_value()

    return types.void(), code


if sys.platform == "win32":

    @inner
    def relax() -> None:
        """Yield the processor to other threads."""

else:
    _yield = types.ExternalFunction("sched_yield", types.int32())

    @inner
    def relax() -> None:
        """Yield the processor to other threads."""
        _yield()
