"""Vector code for the processor, written in LLVM's language through numba.

What a compiler makes of a loop of sums depends on the loop; what is written here does not. Every sum is a fixed
sequence of fused multiply-adds on lanes of 16 float32, whatever else is computed beside it, so that a row of a product
comes out the same alone and among others, with any number of threads, and whatever vectors a processor has: one without
512-bit registers takes two or four instructions for a vector.

Arguments of what is made with this are addresses (int64) and counts, in elements unless said otherwise.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from specchat.engine.cpu.compiled import keeping, use_folder
from specchat.engine.model.vectors import LANES

use_folder()  # before anything is made that is kept there

F32, I32, I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
VECTOR = ir.VectorType(F32, LANES)
WORDS = ir.VectorType(I32, LANES)

Function = TypeVar("Function", bound=Callable[..., Any])
_njit: Any = njit
inner: Callable[[Function], Function] = _njit(
    nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
)
"""A function that only compiled ones call."""


def called(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """A function that Python calls as well, compiled for these types when it is imported."""
    made: Callable[[Callable[..., Any]], Any] = _njit(signature, nogil=True, error_model="numpy", cache=keeping())
    return made


def wide_vectors() -> bool:
    """Whether this processor has registers for vectors of 16, and 32 of them."""
    return "+avx512f" in _features()


def byte_tables() -> bool:
    """Whether it has no such registers, but looks up 32 bytes at a time."""
    return "+avx2" in _features() and not wide_vectors()


def _features() -> str:
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return str(features)


Primitive = Callable[[Callable[..., Any]], Callable[..., Any]]
primitive: Primitive = intrinsic
"""Makes what compiled functions call of one that writes LLVM's language; its first parameter is not theirs."""
constants_primitive: Primitive = intrinsic(prefer_literal=True)
"""The same where some arguments are constants."""

Emitter = Callable[[Any, Any, list[Any]], None]


def emitted(constants: list[Any], count: int, emit: Emitter) -> Any:
    """What a primitive of constants and `count` int64 returns; `emit(builder, context, arguments)` writes its body."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        emit(builder, context, list(arguments))
        return context.get_dummy_value()

    return types.void(*constants, *[types.int64] * count), code


def constant(value: int) -> Any:
    """An int64."""
    return ir.Constant(I64, value)


def splat(value: float, lanes: int = LANES) -> Any:
    """A vector of one number."""
    return ir.Constant(ir.VectorType(F32, lanes), [value] * lanes)


def at(builder: Any, address: Any, offset: Any, kind: Any, width: int) -> Any:
    """A pointer to `kind` at `address` + `offset` * `width` bytes."""
    return builder.inttoptr(builder.add(address, builder.mul(offset, constant(width))), kind.as_pointer())


def load(builder: Any, address: Any, offset: Any, kind: Any = VECTOR, width: int = 4) -> Any:
    """The `kind` whose elements have `width` bytes, at `address` + `offset` elements."""
    return builder.load(at(builder, address, offset, kind, width), align=width)


def instruction(builder: Any, name: str, kind: Any, arguments: list[Any]) -> Any:
    """Calls one of LLVM's intrinsic functions."""
    function = ir.FunctionType(kind, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, function, name), arguments)


def store(builder: Any, value: Any, address: Any, offset: Any) -> None:
    """Put a float32 or a vector of them at `address` + `offset` elements."""
    builder.store(value, at(builder, address, offset, value.type, 4), align=4)


def fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    return instruction(builder, f"llvm.fma.v{a.type.count}f32", a.type, [a, b, c])


def spread(builder: Any, scalar: Any, lanes: int = LANES) -> Any:
    """A vector with `scalar` in every lane."""
    unset = ir.Constant(ir.VectorType(F32, lanes), ir.Undefined)
    one = builder.insert_element(unset, scalar, ir.Constant(I32, 0))
    return builder.shuffle_vector(one, unset, ir.Constant(ir.VectorType(I32, lanes), [0] * lanes))


def folded(builder: Any, vector: Any, join: Callable[[Any, Any], Any]) -> Any:
    """All lanes in one, the upper half joined to the lower again and again."""
    for half in (8, 4, 2, 1):
        lanes = [i + half if i < half else i for i in range(LANES)]
        upper = builder.shuffle_vector(vector, ir.Constant(VECTOR, ir.Undefined), ir.Constant(WORDS, lanes))
        vector = join(vector, upper)
    return builder.extract_element(vector, ir.Constant(I32, 0))


def each_vector(builder: Any, size: Any, body: Callable[[Any], None]) -> None:
    """`body(at)` for every vector of `size` elements, a multiple of LANES."""
    with cgutils.for_range(builder, builder.sdiv(size, constant(LANES))) as loop:
        body(builder.mul(loop.index, constant(LANES)))
