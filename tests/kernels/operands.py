"""What Triton's interpreter does anew for the operands of every sum and comparison, left out where it changes nothing.

It looks up how two types come together, casts each to what it is, makes an array of every number, and one of the shape
of both: numpy does the last by itself, and the others have the same outcome each time.
"""

from collections.abc import Callable
from typing import Any

from tests.kernels.accesses import access_at_once
from tests.kernels.operations import operate_at_once

Pair = tuple[Any, Any]
"""Two tensors of Triton's language."""


def quicken() -> None:
    """Let this process's interpreter bring operands together so."""
    from triton.language import core
    from triton.runtime import interpreter

    semantic, tensor = interpreter.interpreter_semantic, core.tensor
    together: Callable[..., Pair] = semantic.binary_op_type_checking_impl
    blocks = dict[tuple[int, int], tuple[Any, Any]]()
    numbers = dict[tuple[object, type, int], Any]()

    def lazily(operand: Any, block: Any) -> Any:
        """As one of the shape of `block`, with an array that numpy broadcasts to that."""
        return tensor(operand.handle, core.block_type(operand.dtype, block.shape))

    def shaped(lhs: Any, rhs: Any) -> Pair:
        """Of the same shape; raises ValueError if there is none for both."""
        left, right = lhs.type, rhs.type
        if not right.is_block():
            return (lhs, lazily(rhs, left) if left.is_block() else rhs)
        if not left.is_block():
            return lazily(lhs, right), rhs
        if left.shape is right.shape:
            return lhs, rhs
        key = id(left.shape), id(right.shape)
        if key not in blocks:
            shape = semantic.broadcast_impl_value(lhs, rhs)[0].type
            # With the shapes themselves, whose addresses stay their own so.
            blocks[key] = shape, (left.shape, right.shape)
        shape = blocks[key][0]
        return (
            lhs if left.shape is shape.shape else lazily(lhs, shape),
            rhs if right.shape is shape.shape else lazily(rhs, shape),
        )

    def constant(value: float, kind: Any) -> Any:
        """A number as a tensor of the type `kind`."""
        key = value, value.__class__, id(kind)
        if key not in numbers:
            made = numbers[key] = semantic.scalar_constant(value, kind)
            made.handle.data.flags.writeable = False
        return numbers[key]

    def type_of(value: Any, beside: Any) -> Any:
        """The type that a number becomes of beside a tensor of the type `beside`; None where Triton is to say."""
        if value.__class__ is int and -(2**31) <= value < 2**31:
            if beside is core.int32 or beside is core.int64 or beside is core.float32:
                return beside
            return core.int32 if beside.__class__ is core.pointer_type else None
        return beside if value.__class__ is float and beside is core.float32 else None

    def alike(left: Any, right: Any, either: bool, div_or_mod: bool) -> bool:
        """Whether tensors of two types come together as they are."""
        if right is core.int32 or right is core.int64 or right is core.float32:
            return left is right or (left.__class__ is core.pointer_type and right is not core.float32)
        return left is right and left.__class__ is core.dtype and not (either and div_or_mod)

    def quickly(
        lhs: Any,
        rhs: Any,
        allow_lhs_ptr: bool = False,
        allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True,
        div_or_mod: bool = False,
    ) -> Pair:
        if lhs.__class__ is tensor:
            left = lhs.dtype
            if allow_lhs_ptr or left.__class__ is not core.pointer_type:
                if rhs.__class__ is tensor:
                    if alike(left, rhs.dtype, arithmetic_check, div_or_mod):
                        return shaped(lhs, rhs)
                elif arithmetic_check and (kind := type_of(rhs, left)) is not None:
                    return shaped(lhs, constant(rhs, kind))
        elif arithmetic_check and rhs.__class__ is tensor and (kind := type_of(lhs, rhs.dtype)) is rhs.dtype:
            return shaped(constant(lhs, kind), rhs)
        return together(lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    semantic.binary_op_type_checking_impl = quickly
    operate_at_once(constant)
    access_at_once(constant)
