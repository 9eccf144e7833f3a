"""What Triton's interpreter finds out anew at each operation, found out once: half of its time.

Each value of its language wraps every number of its shape, checks it, and compares shapes wrapped as well.
"""

from typing import Any

import numpy as np


def remember() -> None:
    """Let the language of this process's interpreter remember shapes and types of numbers."""
    from triton.language import core
    from triton.runtime import interpreter

    made_block, made_tensor, equal = core.block_type.__init__, core.tensor.__init__, core.dtype.__eq__
    compatible, found = interpreter.interpreter_semantic.broadcast_impl_value, interpreter._get_np_dtype
    blocks = dict[tuple[int, ...], tuple[Any, int, str]]()
    tensors = dict[int, tuple[Any, Any, Any]]()
    numbers = dict[str, np.dtype]()

    def make_block(self: Any, element_ty: Any, shape: Any) -> None:
        key = tuple([size.value if isinstance(size, core.constexpr) else size for size in shape])
        known = blocks.get(key)
        if known is None:
            made_block(self, element_ty, shape)
            blocks[key] = self.shape, self.numel, str(self.shape)
        else:
            self.element_ty = element_ty
            self.shape, self.numel, text = known
            self.name = f"<{text}, {element_ty}>"

    def make_tensor(self: Any, handle: Any, type: Any) -> None:
        shape = type.shape if type.is_block() else None
        known = tensors.get(id(shape))
        if known is None:
            made_tensor(self, handle, type)
            # With the shape itself, whose address stays its own so.
            tensors[id(shape)] = self.shape, self.numel, shape
        else:
            self.handle, self.type, self.dtype = handle, type, type.scalar
            self.shape, self.numel, _ = known

    def same(self: Any, other: Any) -> bool:
        return self is other or equal(self, other)

    def same_block(self: Any, other: Any) -> bool:
        return isinstance(other, core.block_type) and self.shape is other.shape and self.element_ty == other.element_ty

    def broadcast(left: Any, right: Any) -> tuple[Any, Any]:
        return (left, right) if left.shape is right.shape else compatible(left, right)

    def number(kind: Any) -> np.dtype:
        name = kind.scalar.name
        if name not in numbers:
            numbers[name] = found(kind)
        return numbers[name]

    def exchange(obj: Any, name: str, member: Any, builder: object, scope: Any) -> None:
        del builder
        inner, meaning = getattr(member, "__wrapped__", member), interpreter.interpreter_semantic

        def exchanged(*arguments: object, **options: object) -> object:
            options["_semantic"] = meaning
            return inner(*arguments, **options)

        scope.set_attr(obj, name, exchanged)

    core.block_type.__init__, core.block_type.__eq__ = make_block, same_block
    # A builder's type would be another of the same.
    core.block_type.to_ir = lambda self, _: self
    core.tensor.__init__ = make_tensor
    core.dtype.__eq__ = same
    interpreter.interpreter_semantic.broadcast_impl_value = broadcast
    interpreter._get_np_dtype = number
    interpreter._patch_attr = exchange
