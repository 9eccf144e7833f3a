"""Atomic operations on words that threads share, and calls of compiled functions by address."""

import platform
import sys
from typing import Any

from llvmlite import ir
from numba import types

from specchat.engine.cpu.primitives.simd import (
    I32,
    I64,
    Address,
    Count,
    at,
    constant,
    inner,
    instruction,
    load,
    primitive,
    typed_primitive,
)


@typed_primitive
def address(typing: Any, array: Any) -> Any:
    """Address of the first element of a contiguous array."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.ptrtoint(made.data, I64)

    return types.int64(array), code


@primitive
def word(builder: Any, address: Address, index: Count) -> Count:
    """Return the int64 at `address`, `index` words further."""
    return load(builder, address, index, I64, 8)


@primitive
def put_word(builder: Any, address: Address, index: Count, value: Count) -> None:
    """Put an int64 at `address`, `index` words further."""
    builder.store(value, at(builder, address, index, I64, 8), align=8)


@primitive
def call(
    builder: Any, function: Address, a: Count, b: Count, c: Count, d: Count, e: Count, f: Count, g: Count, h: Count
) -> None:
    """Call the compiled function at an address with eight int64."""
    kind = ir.FunctionType(ir.VoidType(), [I64] * 8)
    builder.call(builder.inttoptr(function, kind.as_pointer()), [a, b, c, d, e, f, g, h])


def code_address(function: Any) -> int:
    """Address of the code of a compiled function that has one signature."""
    (made,) = function.overloads.values()
    begins: int = made.library.get_pointer_to_function(made.fndesc.llvm_func_name)
    return begins


@primitive
def fetch_add(builder: Any, address: Address, index: Count) -> Count:
    """Add one to the int64 at `address`, `index` words further, atomically; return its former value."""
    return builder.atomic_rmw("add", at(builder, address, index, I64, 8), constant(1), "seq_cst")


@primitive
def exchange(builder: Any, address: Address, value: Count) -> Count:
    """Put `value` at `address` atomically; return the former int64."""
    return builder.atomic_rmw("xchg", builder.inttoptr(address, I64.as_pointer()), value, "seq_cst")


@primitive
def atomic_load(builder: Any, address: Address) -> Count:
    """Load the int64 at `address` atomically: the latest value of any thread."""
    return builder.load_atomic(builder.inttoptr(address, I64.as_pointer()), "seq_cst", 8)


PAUSES = {"x86_64": ("llvm.x86.sse2.pause", ()), "aarch64": ("llvm.aarch64.hint", (1,))}
"""Instruction for a spinning thread, by architecture."""
_KIND = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())


@primitive
def pause(builder: Any) -> None:
    """Pause briefly, which leaves the core to its other hardware thread."""
    if _KIND in PAUSES:
        name, given = PAUSES[_KIND]
        instruction(builder, name, ir.VoidType(), [ir.Constant(I32, one) for one in given])


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
