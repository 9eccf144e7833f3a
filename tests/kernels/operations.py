"""Operators of Triton's interpreter at once, where its language has nothing to convert: a third of its time.

Most operators have two tensors of one type, a tensor and a number, or a pointer and places. Triton's language asks a
dozen functions what those come to; here it is asked once for all of the same types and shapes.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

BITS = {"and": "and", "or": "or", "xor": "xor"}
WRAPPING = BITS | {"add": "add", "mul": "mul", "lshift": "shl"}
UNSIGNED = WRAPPING | {"rshift": "lshr"}
UNSIGNED |= {"lt": "icmpULT", "le": "icmpULE", "gt": "icmpUGT", "ge": "icmpUGE", "eq": "icmpEQ", "ne": "icmpNE"}
SIGNED = WRAPPING | {"sub": "sub", "rshift": "ashr"}
SIGNED |= {"lt": "icmpSLT", "le": "icmpSLE", "gt": "icmpSGT", "ge": "icmpSGE", "eq": "icmpEQ", "ne": "icmpNE"}
FLOATING = {"add": "fadd", "sub": "fsub", "mul": "fmul", "truediv": "fdiv"}
FLOATING |= {"lt": "fcmpOLT", "le": "fcmpOLE", "gt": "fcmpOGT", "ge": "fcmpOGE", "eq": "fcmpOEQ", "ne": "fcmpUNE"}
"""What the interpreter's builder calls the operators: of integers and of floats."""
REFLECTED = ("add", "sub", "mul", "truediv")
"""Operators that also come with a number on their left."""
FUNCTIONS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "fdiv": np.divide}
FUNCTIONS |= {"shl": np.left_shift, "lshr": np.right_shift}
FUNCTIONS |= {"fadd": np.add, "fsub": np.subtract, "fmul": np.multiply}
FUNCTIONS |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
FUNCTIONS |= {"icmpSLT": np.less, "icmpSLE": np.less_equal, "icmpSGT": np.greater, "icmpSGE": np.greater_equal}
FUNCTIONS |= {"icmpULT": np.less, "icmpULE": np.less_equal, "icmpUGT": np.greater, "icmpUGE": np.greater_equal}
FUNCTIONS |= {"fcmpOLT": np.less, "fcmpOLE": np.less_equal, "fcmpOGT": np.greater, "fcmpOGE": np.greater_equal}
FUNCTIONS |= {"icmpEQ": np.equal, "icmpNE": np.not_equal, "fcmpOEQ": np.equal, "fcmpUNE": np.not_equal}

Operator = Callable[..., Any]


def operate_at_once(constant: Callable[[float, Any], Any]) -> None:
    """Let the operators of this process's interpreter be so; `constant` makes a tensor of a number and a type."""
    from triton.language.core import tensor
    from triton.runtime.interpreter import InterpreterBuilder

    for name, function in FUNCTIONS.items():
        setattr(InterpreterBuilder, f"create_{name}", directly(function))
    for name in SIGNED | FLOATING:
        setattr(tensor, f"__{name}__", at_once(name, getattr(tensor, f"__{name}__"), constant))
    for name in REFLECTED:
        setattr(tensor, f"__r{name}__", at_once(name, getattr(tensor, f"__r{name}__"), constant, reflected=True))


def at_once(
    name: str, operator: Operator, constant: Callable[[float, Any], Any], *, reflected: bool = False
) -> Operator:
    """`operator` of Triton's tensors, done at once where that comes to the same.

    `name` is the operator's without underscores; where it is reflected, its first operand stands on the right.
    """
    from triton.language import core
    from triton.runtime import interpreter

    builder, tensor = interpreter.interpreter_builder, core.tensor
    asked = partial(operator.__wrapped__, _semantic=interpreter.interpreter_semantic)  # type: ignore[attr-defined]
    of_kinds = {core.int32: SIGNED, core.int64: SIGNED, core.int1: BITS, core.float32: FLOATING}
    of_kinds |= {core.uint32: UNSIGNED, core.uint64: UNSIGNED}
    creates = {id(kind): f"create_{names[name]}" for kind, names in of_kinds.items() if name in names}
    numbers = {id(core.int32): int, id(core.uint32): int, id(core.uint64): int, id(core.float32): float}
    # Triton refuses negative numbers beside unsigned ones.
    least = {id(core.uint32): 0, id(core.uint64): 0}
    places = {id(core.int32), id(core.int64)} if name == "add" else {}
    # What numpy and Triton alike make as wide as the type on the left.
    halves = {id(core.int64): core.int32, id(core.uint64): core.uint32}
    alike, new = dict[tuple[int, ...], tuple[Any, ...]](), object.__new__
    spread = dict[tuple[int, int], tuple[Any, ...]]()

    def operate(one: Any, other: Any) -> Any:
        kind = one.dtype
        create = creates.get(id(kind))
        if create is not None:
            if other.__class__ is not tensor:
                if other.__class__ is not numbers.get(id(kind)) or not least.get(id(kind), -(2**31)) <= other < 2**31:
                    return asked(one, other)
                other = constant(other, kind)
            if other.dtype is kind or (other.dtype is halves.get(id(kind)) and not reflected):
                key = id(one.shape), id(other.shape), id(kind), id(other.dtype)
                known = alike.get(key)
                if known is None:
                    made = asked(one, other)
                    # With the shapes themselves, whose addresses stay their own so.
                    alike[key] = made.type, made.dtype, made.shape, made.numel, one.shape, other.shape
                    return made
                left, right = (other.handle, one.handle) if reflected else (one.handle, other.handle)
                made = new(tensor)
                made.handle = getattr(builder, create)(left, right)
                made.type, made.dtype, made.shape, made.numel, _, _ = known
                return made
        elif kind.__class__ is core.pointer_type and other.__class__ is tensor and id(other.dtype) in places:
            if one.shape is other.shape or not other.shape:
                return tensor(builder.create_addptr(one.handle, other.handle), one.type)
            if not one.shape:
                made = builder.create_addptr(one.handle, other.handle)
                return tensor(made, core.block_type(kind, other.type.shape))
            known = spread.get((id(one.shape), id(other.shape)))
            if known is not None:
                return tensor(builder.create_addptr(one.handle, other.handle), core.block_type(kind, known[0]))
            made = asked(one, other)
            spread[id(one.shape), id(other.shape)] = made.type.shape, one.shape, other.shape
            return made
        return asked(one, other)

    operate.__wrapped__ = asked  # type: ignore[attr-defined]
    return operate


def directly(function: Callable[..., np.ndarray]) -> Operator:
    """The builder's operation of two handles, of the type of the first."""
    from triton.runtime import interpreter

    handle, new = interpreter.TensorHandle, object.__new__

    def create(_: object, left: Any, right: Any) -> Any:
        data, kind = function(left.data, right.data), left.dtype.scalar
        if data.itemsize > left.data.itemsize:
            data = data.astype(interpreter._get_np_dtype(kind))
        made = new(handle)
        made.data, made.dtype, made.attr = data, kind, {}
        return made

    return create
