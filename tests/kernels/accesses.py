"""Loads, stores, new axes, choices and launches of Triton's interpreter, without what stays the same each time.

Its language looks at every option and brings every operand into one shape; a launch looks at its kernel's signature.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.language import core
from triton.runtime import interpreter

from tests.kernels.traces import Programs

Function = Callable[..., Any]
Constant = Callable[[float, Any], Any]
"""Makes a tensor of a number and a type."""

NUMBERS = {id(tl.float32): float, id(tl.int32): int}
"""Of types, the numbers that Triton takes for them."""
PLAIN = {id(kind): kind for kind in (tl.float32, tl.int32, tl.int64, tl.bfloat16, tl.float16, tl.int8, tl.uint8)}
WHOLE = slice(None)


def fits(number: object, kind: Any) -> bool:
    """Whether a number becomes one of the type `kind` beside a tensor of that."""
    return number.__class__ is NUMBERS.get(id(kind)) and (number.__class__ is float or -(2**31) <= number < 2**31)  # type: ignore[operator]


def access_at_once(constant: Constant) -> None:
    """Let this process's interpreter do all of it at once where the operands have one shape and type."""
    load, store, where = loading(), storing(), choosing(constant)
    for language in (tl, core):
        language.load, language.store, language.where = load, store, where  # type: ignore[attr-defined]
    interpreter.InterpreterBuilder.create_axes = with_axes
    core.tensor.__getitem__ = indexing()  # type: ignore[method-assign]
    interpreter.GridExecutor.__init__ = prepare
    interpreter.GridExecutor.__call__ = launch
    interpreter._implicit_cvt = converting()


def asked(function: Any) -> Function:
    """What Triton's language itself does."""
    return functools.partial(function.__wrapped__, _semantic=interpreter.interpreter_semantic)


def typing() -> Callable[[Any, Any], Any]:
    """Of a plain type and a block, the type of a block of its shape."""
    types = dict[tuple[int, int], Any]()

    def typed(kind: Any, like: Any) -> Any:
        key = id(kind), id(like.shape)
        if key not in types:
            # With the shape itself, whose address stays its own so.
            types[key] = core.block_type(kind, like.type.shape), like.shape
        return types[key][0]

    return typed


def loading() -> Function:
    builder, semantic, tensor = interpreter.interpreter_builder, interpreter.interpreter_semantic, core.tensor
    ask, typed, fillers = asked(core.load), typing(), dict[tuple[object, type, int, int], Any]()

    def filler(value: float, kind: Any, pointer: Any) -> Any:
        key = value, value.__class__, id(kind), id(pointer.shape)
        if key not in fillers:
            one = semantic.cast(semantic.to_tensor(value), kind).handle
            data = np.full(pointer.type.shape, one.data, one.data.dtype)
            data.flags.writeable = False
            fillers[key] = interpreter.TensorHandle(data, one.dtype), pointer.shape
        return fillers[key][0]

    def load(pointer: Any, mask: Any = None, other: Any = None, *rest: Any, **options: Any) -> Any:
        kind = getattr(pointer.dtype, "element_ty", None)
        if id(kind) in PLAIN and not rest:
            if mask is None and other is None:
                made = builder.create_load(pointer.handle, None, None, False)
                return tensor(made, typed(kind, pointer) if pointer.shape else kind)
            if pointer.shape and mask.__class__ is tensor and mask.shape is pointer.shape:
                if other is None:
                    made = builder.create_masked_load(pointer.handle, mask.handle, None, None, None, False)
                    return tensor(made, typed(kind, pointer))
                if other.__class__ is float or other.__class__ is int:
                    instead = filler(other, kind, pointer)
                    made = builder.create_masked_load(pointer.handle, mask.handle, instead, None, None, False)
                    return tensor(made, typed(kind, pointer))
        return ask(pointer, mask, other, *rest, **options)

    return load


def storing() -> Function:
    builder, tensor, ask = interpreter.interpreter_builder, core.tensor, asked(core.store)

    def store(pointer: Any, value: Any, mask: Any = None, *rest: Any, **options: Any) -> Any:
        if value.__class__ is tensor and pointer.shape is value.shape and not rest:
            kind = value.dtype
            if getattr(pointer.dtype, "element_ty", None) is kind and not pointer.dtype.const and id(kind) in PLAIN:
                if mask is None:
                    return builder.create_store(pointer.handle, value.handle, None, None)
                if mask.__class__ is tensor and mask.shape is pointer.shape and mask.dtype is core.int1:
                    return builder.create_masked_store(pointer.handle, value.handle, mask.handle, None, None)
        return ask(pointer, value, mask, *rest, **options)

    return store


def choosing(constant: Constant) -> Function:
    builder, tensor, ask = interpreter.interpreter_builder, core.tensor, asked(core.where)

    def end(one: Any, like: Any) -> Any:
        """The handle of an operand of the type of `like`; None for others."""
        if one.__class__ is tensor:
            return one.handle if one.dtype is like.dtype and one.shape is like.shape else None
        return constant(one, like.dtype).handle if fits(one, like.dtype) else None

    def where(condition: Any, x: Any, y: Any) -> Any:
        if condition.__class__ is tensor and condition.dtype is core.int1 and condition.shape:
            like = x if x.__class__ is tensor else y
            if like.__class__ is tensor and like.shape is condition.shape and id(like.dtype) in PLAIN:
                left, right = end(x, like), end(y, like)
                if left is not None and right is not None:
                    return tensor(builder.create_select(condition.handle, left, right), like.type)
        return ask(condition, x, y)

    return where


def with_axes(_: object, operand: Any, slices: Any) -> Any:
    """An operation of the builder: a handle with new axes."""
    return interpreter.TensorHandle(operand.data[slices], operand.dtype.scalar)


def is_axis(index: object) -> bool:
    return index is None or (index.__class__ is slice and index == WHOLE)


def indexing() -> Function:
    """New axes of a block."""
    tensor, builder, ask = core.tensor, interpreter.interpreter_builder, asked(core.tensor.__getitem__)
    shapes = dict[tuple[int, tuple[bool, ...]], Any]()

    def item(self: Any, slices: Any) -> Any:
        if slices.__class__ is tuple and self.shape and all(map(is_axis, slices)):
            new = tuple([one is None for one in slices])
            known = shapes.get((id(self.shape), new))
            if known is not None:
                made = builder.create_axes(self.handle, slices)
                return tensor(made, core.block_type(self.dtype, known[0]))
            whole = ask(self, slices)
            # With the shape itself, whose address stays its own so.
            shapes[id(self.shape), new] = whole.type.shape, self.shape
            return whole
        return ask(self, slices)

    return item


@functools.cache
def parameters(kernel: Function) -> tuple[tuple[str, ...], dict[str, Any], list[str]]:
    """A kernel's parameters, their defaults, and those that are no tensors."""
    from triton.runtime.jit import _normalize_ty

    found = inspect.signature(kernel).parameters
    defaults = {name: one.default for name, one in found.items() if one.default is not one.empty}
    kinds = {name: _normalize_ty(kind) for name, kind in kernel.__annotations__.items()}
    return tuple(found), defaults, [name for name in found if kinds.get(name) == "constexpr"]


def prepare(self: Any, fn: Function, arg_names: list[str], grid: Any, pre_run_hooks: list[Any]) -> None:
    """Stands for `GridExecutor.__init__`."""
    assert not pre_run_hooks
    self.fn, self.arg_names, self.grid, self.pre_run_hooks = fn, arg_names, grid, pre_run_hooks
    self.constexprs = parameters(fn)[2]


@functools.cache
def places(grid: tuple[int, int, int]) -> np.ndarray:
    """Of all programs of a grid, in their order."""
    return np.indices(grid, np.int32).reshape(3, -1).T


def launch(self: Any, *arguments: Any, **options: Any) -> None:
    """Stands for `GridExecutor.__call__`, which copies tensors to the host and back; here all are there."""
    names, defaults, constants = parameters(self.fn)
    given = defaults | dict(zip(names, arguments, strict=False)) | {k: v for k, v in options.items() if k in names}
    interpreter._patch_lang(self.fn)
    values = {k: v if k in constants else interpreter._implicit_cvt(v) for k, v in given.items()}
    grid = (*(self.grid(values) if callable(self.grid) else self.grid), 1, 1)[:3]
    builder, running = interpreter.interpreter_builder, Programs(self.fn, values)
    builder.set_grid_dim(*grid)
    try:
        # Garbage of masked lanes is computed with, and a GPU tells nothing of it either.
        with np.errstate(all="ignore"):
            running.run(places(grid))
    except Exception as error:
        raise interpreter.InterpreterError(repr(error)) from error


def converting() -> Function:
    """Of an argument, a tensor of Triton's language."""
    convert, types = interpreter._implicit_cvt, dict[torch.dtype, Any]()

    def converted(value: Any) -> Any:
        if value.__class__ is not torch.Tensor:
            return convert(value)
        kind = types.get(value.dtype)
        if kind is None:
            kind = types[value.dtype] = convert(value).type
        return core.tensor(interpreter.TensorHandle(np.array([value.data_ptr()], np.uint64), kind), kind)

    return converted
