"""Vector code for the processor, written as LLVM IR through numba.

A compiler may reorder a loop of sums; it does not reorder the operations written here. Every sum is a fixed sequence
of fused multiply-adds on 16 float32 lanes, whatever is computed beside it. So a row of a product is the same alone and
among others, for any number of threads and any vector registers: without 512-bit registers a vector takes two or four
instructions.

Arguments of primitives are addresses (int64) and counts, in elements unless stated otherwise.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Annotated, Any, TypeVar

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from specchat.engine.cpu.compiled import caches_code, use_folder
from specchat.engine.memory.vectors import LANES

use_folder()  # before anything is compiled

F32, I32, I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
VECTOR = ir.VectorType(F32, LANES)
WORDS = ir.VectorType(I32, LANES)


class _Part(JITCodeLibrary):
    """Code of a function that only compiled functions call: optimised and emitted within theirs, never alone."""

    def _optimize_functions(self, module: object) -> None:
        pass

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        return 0

    @property
    def codegen(self) -> "_Part":
        return self

    def set_env(self, name: str, env: object) -> None:
        """Leave out the environment: there is no address to put it, and nothing here reads it."""


_part: Any = _Part


class _PartCompiler(Compiler):
    def define_pipelines(self) -> Any:
        self.state.library = _part(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        usual: Any = super()
        return usual.define_pipelines()


Function = TypeVar("Function", bound=Callable[..., Any])
_njit: Any = njit


def inner(function: Function) -> Function:
    """Decorate a function that only compiled functions call."""
    compiled: Any = _njit(
        nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, pipeline_class=_PartCompiler
    )(function)
    template: Any = compiled.get_call_template

    def of_plain_types(args: Sequence[Any], kws: dict[str, Any]) -> Any:
        # numba would first compile it for a counter's first value as a type of its own, which nothing calls in the end.
        return template(tuple(map(types.unliteral, args)), {key: types.unliteral(one) for key, one in kws.items()})

    compiled.get_call_template = of_plain_types
    return compiled  # type: ignore[no-any-return]


def python_callable(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function that Python calls as well; compile it for these types at import."""
    return _compile(signature, no_cfunc_wrapper=True)


def by_address(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function that compiled functions call by its address; Python must not call it."""
    return _compile(signature, no_cfunc_wrapper=True, no_cpython_wrapper=True)


def _compile(signature: Any, **wrappers: bool) -> Callable[[Callable[..., Any]], Any]:
    made: Callable[[Callable[..., Any]], Any] = _njit(
        signature, nogil=True, error_model="numpy", cache=caches_code(), **wrappers
    )
    return made


def wide_vectors() -> bool:
    """Return True if this processor has 32 registers of 16 float32."""
    return "+avx512f" in features()


def byte_tables() -> bool:
    """Return True if it has no such registers but looks up 32 bytes at a time."""
    return "+avx2" in features() and not wide_vectors()


def features() -> str:
    """LLVM's names of what this processor has, each after + or -."""
    _, _, found = cpu_target.target_context.codegen().magic_tuple()
    return str(found)


def processor() -> str:
    """LLVM's name of this processor."""
    _, name, _ = cpu_target.target_context.codegen().magic_tuple()
    return str(name)


Address = Annotated[Any, types.int64]
Count = Annotated[Any, types.int64]
Number = Annotated[Any, types.float32]
"""Types of a primitive's values."""
typed_primitive: Callable[[Callable[..., Any]], Callable[..., Any]] = intrinsic
"""Decorator of a primitive of other types: a function that maps types to a signature and the code for them."""


def primitive(emit: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function that writes LLVM IR; compiled functions call it without its first parameter, the builder.

    Annotations give the types: `Address`, `Count`, `Number`, or `int` for a constant, which arrives as its value. It
    returns None or a value of one of these.
    """
    annotations = [one.annotation for one in signature(emit).parameters.values()][1:]
    returned = signature(emit).return_annotation
    result = types.void if returned is None else returned.__metadata__[0]

    @wraps(emit)
    def typed(_: object, *given: Any) -> Any:
        kinds = [one if of is int else of.__metadata__[0] for one, of in zip(given, annotations, strict=True)]

        def code(context: Any, builder: Any, _: object, arguments: Any) -> Any:
            pairs = zip(kinds, arguments, strict=True)
            made = emit(builder, *(getattr(kind, "literal_value", value) for kind, value in pairs))
            return context.get_dummy_value() if returned is None else made

        return result(*kinds), code

    made: Callable[..., Any] = intrinsic(prefer_literal=int in annotations)(typed)
    return made


def constant(value: int) -> Any:
    """Constant int64."""
    return ir.Constant(I64, value)


def splat(value: float, lanes: int = LANES) -> Any:
    """Constant vector of one number."""
    return ir.Constant(ir.VectorType(F32, lanes), [value] * lanes)


def at(builder: Any, address: Any, offset: Any, kind: Any, width: int) -> Any:
    """Pointer to `kind` at `address` + `offset` * `width` bytes."""
    return builder.inttoptr(builder.add(address, builder.mul(offset, constant(width))), kind.as_pointer())


def load(builder: Any, address: Any, offset: Any, kind: Any = VECTOR, width: int = 4) -> Any:
    """Load a `kind`, whose elements have `width` bytes, from `address` + `offset` elements."""
    return builder.load(at(builder, address, offset, kind, width), align=width)


def instruction(builder: Any, name: str, kind: Any, arguments: list[Any]) -> Any:
    """Call one of LLVM's intrinsic functions."""
    function = ir.FunctionType(kind, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, function, name), arguments)


def store(builder: Any, value: Any, address: Any, offset: Any) -> None:
    """Store a float32 or a vector of them at `address` + `offset` elements."""
    builder.store(value, at(builder, address, offset, value.type, 4), align=4)


def fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    return instruction(builder, f"llvm.fma.v{a.type.count}f32", a.type, [a, b, c])


def broadcast(builder: Any, scalar: Any, lanes: int = LANES) -> Any:
    """Vector with `scalar`, a float32 or int32, in every lane."""
    unset = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined)
    one = builder.insert_element(unset, scalar, ir.Constant(I32, 0))
    return builder.shuffle_vector(one, unset, ir.Constant(ir.VectorType(I32, lanes), [0] * lanes))


def words(value: int) -> Any:
    """Constant int32 [LANES] of one number."""
    return ir.Constant(WORDS, [value] * LANES)


def masked(builder: Any, numbers: Any, mask: int) -> Any:
    """Bits of int32 [LANES]."""
    return builder.and_(numbers, words(mask))


def shifted(builder: Any, numbers: Any, right: int) -> Any:
    """Numbers int32 [LANES] shifted to the right, or to the left by a negative number."""
    if not right:
        return numbers
    return builder.lshr(numbers, words(right)) if right > 0 else builder.shl(numbers, words(-right))


def reduce_lanes(builder: Any, vector: Any, join: Callable[[Any, Any], Any]) -> Any:
    """Reduce all lanes to one: join the upper half to the lower, four times."""
    for half in (8, 4, 2, 1):
        lanes = [i + half if i < half else i for i in range(LANES)]
        upper = builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), ir.Constant(WORDS, lanes))
        vector = join(vector, upper)
    return builder.extract_element(vector, ir.Constant(I32, 0))


def each_vector(builder: Any, size: Any, body: Callable[[Any], None]) -> None:
    """Emit a loop of `body(at)` over the vectors of `size` elements, a multiple of LANES."""
    with cgutils.for_range(builder, builder.sdiv(size, constant(LANES))) as loop:
        body(builder.mul(loop.index, constant(LANES)))


def map_vectors(builder: Any, size: Any, of: Callable[..., Any], out: Any, *inputs: Any) -> None:
    """Emit out = of(inputs[0], inputs[1], ...) vector by vector; `size` elements each, a multiple of LANES."""
    each_vector(builder, size, lambda at: store(builder, of(*(load(builder, x, at) for x in inputs)), out, at))
