"""Torch and Triton's interpreter above a CUDA runtime that is not there (`runtime.py`).

Tensors of a GPU have shapes and no values, those of torch's fake tensors. With `computes` there is memory behind them,
and what a GPU is asked for is computed there once the host waits for it.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from triton.runtime.interpreter import GridExecutor

from tests.gpu_net import runtime
from tests.gpu_net.runtime import RUNNING, Launch, Runtime, flat

WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "aten.equal", "is_nonzero")
"""Operations whose results the host has to know."""
ON_HOST: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.mm.dtype: lambda a, b, dtype: a.to(dtype) @ b.to(dtype),
}
"""Operations that torch has on GPUs alone, and what computes them here."""
PROCESSORS = 128
IN_MAIN_MEMORY = {
    *(("_multiply", name) for name in ("low", "high", "signs")),
    ("_make_inputs", "table"),
    *(("_embed", name) for name in ("low", "high", "signs", "scales", "minimums", "supers", "code", "codebook")),
}
"""Kernels, and what they may be given of locked main memory."""


def on_gpu(tensor: Tensor) -> bool:
    return tensor.device.type == "cuda"


def gpu_of(tensor: Tensor) -> int:
    return int(tensor.device.index or 0)


def storage(tensor: Tensor) -> int:
    """The identity of a tensor's memory, as long as that is there."""
    return int(tensor.untyped_storage()._cdata)


class FakeTorch(TorchDispatchMode):
    """Takes each operation of torch to the host's memory or to a GPU's queue, and looks at what a capture forbids."""

    def __init__(self, runtime: Runtime, computes: bool) -> None:
        super().__init__()
        self.runtime = runtime
        self.computes = computes
        self.launches: list[Launch] = []
        self.to_host: list[int] = []
        """Bytes of each copy from a GPU to the host."""
        self.across: list[int] = []
        """Bytes of each copy from a GPU to another one."""
        self.locked: dict[int, int] = {}
        """Bytes of main memory that kernels read in place, by its address."""
        self.lockable: int | None = None
        """Bytes of main memory that the system locks, where that is limited."""
        self._behind: dict[int, torch.UntypedStorage] = {}
        self._pinned: dict[int, StorageWeakRef] = {}
        self._written: dict[int, int] = {}
        """How many copies to pinned memory are still to come."""
        self._landed: dict[int, int] = {}
        """With which wait of the host the last of them came."""
        self._read: dict[int, int] = {}
        """And from it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        there, device = [one for one in tensors if on_gpu(one)], kwargs.get("device")
        if not there and (device is None or torch.device(device).type != "cuda"):
            return self._on_host(func, args, kwargs, tensors)
        name = str(func)
        if (capture := self.runtime.capture) is not None:
            capture.operations[name.removeprefix("aten.").partition(".")[0]] += 1
        if name.startswith("aten._to_copy") and device is not None:
            return self._moved(func, args, kwargs)
        if any(word in name for word in WAITS):
            self.runtime.wait(gpu_of(there[0]))
            return self._value(func, args, kwargs)
        self._check_operands(name, tensors, there)
        return self._queued(func, args, kwargs, tensors)

    def _on_host(self, func: Any, args: Any, kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
        if not _is_view(func):
            for one in tensors:
                self.look(one, func._schema.is_mutable)
        pinned = kwargs.pop("pin_memory", False)
        with unset_fake_temporarily():
            made = func(*args, **kwargs)
        return self.pin(made) if pinned else made

    def pin(self, tensor: Tensor) -> Tensor:
        """Take main memory for pinned."""
        self._pinned[storage(tensor)] = StorageWeakRef(tensor.untyped_storage())
        return tensor

    def look(self, tensor: Tensor, writes: bool = False) -> None:
        """The host reads or writes main memory now.

        Of several copies to the same place it may look at those that it has just waited for.
        """
        place = storage(tensor)
        if self._written.get(place) and self._landed.get(place) != self.runtime.waits:
            self.runtime.problem("the host looks at pinned memory before it is written")
        if writes and self._read.get(place):
            self.runtime.problem("the host writes pinned memory before it is read")

    def pinned(self, tensor: Tensor) -> bool:
        """Whether main memory is pinned."""
        found = self._pinned.get(storage(tensor))
        return found is not None and not found.expired()

    def _check_operands(self, name: str, tensors: list[Tensor], there: list[Tensor]) -> None:
        if len({gpu_of(one) for one in there}) > 1:
            self.runtime.problem(f"{name} mixes GPUs")
        if self.runtime.capture is None:
            return
        for one in tensors:
            if not on_gpu(one):
                self.runtime.problem(f"{name} takes a host's {'scalar' if not one.dim() else 'tensor'} in a capture")

    def copy(self, to: Tensor, source: Tensor, at_once: bool) -> Tensor:
        """`copy_`; with `at_once` (non_blocking) the host does not wait."""
        assert torch.broadcast_shapes(to.shape, source.shape) == to.shape
        gpu, captured = gpu_of(to if on_gpu(to) else source), self.runtime.capture is not None
        if self.runtime.capture is not None:
            self.runtime.capture.operations["copy_"] += 1
        if on_gpu(to) and on_gpu(source):
            if gpu_of(to) != gpu_of(source):
                return self._across(to, source)
            self._ask(gpu, lambda a, b: a.copy_(b), to, source)
            return to
        host = source if on_gpu(to) else to
        if captured:
            if on_gpu(to):
                self.runtime.problem("a copy of the host's values is captured")
            if not at_once:
                self.runtime.problem("a blocking copy in a capture")
            if to.dtype != source.dtype or not (to.is_contiguous() and source.is_contiguous()):
                self.runtime.problem("a copy that needs another one in a capture")
        if at_once and not self.pinned(host):
            self.runtime.problem("a copy of pageable memory that the host does not wait for")
        if on_gpu(to):
            self._up(gpu, to, source, at_once and self.pinned(source))
        else:
            self._down(gpu, to, source)
            if not (at_once or captured):
                self.runtime.wait(gpu)
        return to

    def _across(self, to: Tensor, source: Tensor) -> Tensor:
        """From GPU to GPU: it runs on the source's, and the current streams of both wait for each other."""
        if self.runtime.capture is not None:
            self.runtime.problem("copy_ mixes GPUs")
            return to
        if to.dtype != source.dtype or not (to.is_contiguous() and source.is_contiguous()):
            self.runtime.problem("a copy from GPU to GPU that needs another one")
        self.across.append(to.nbytes)
        first, second = gpu_of(source), gpu_of(to)
        self.runtime.ask(first, self.runtime.until_now(second))
        values = (self._real(to), self._real(source)) if self.computes else None
        self.runtime.ask(first, self._unwatched(lambda: values and values[0].copy_(values[1])))
        self.runtime.ask(second, self.runtime.until_now(first))
        return to

    def _up(self, gpu: int, to: Tensor, source: Tensor, later: bool) -> None:
        """To a GPU; what is not pinned is read now."""
        with unset_fake_temporarily():
            values = source if later else source.clone()
        place = storage(source)
        if later:
            self._read[place] = self._read.get(place, 0) + 1

        def read() -> None:
            self._read[place] -= 1

        self._ask(gpu, lambda there: there.copy_(values), to)
        if later:
            self.runtime.ask(gpu, read)

    def _down(self, gpu: int, to: Tensor, source: Tensor) -> None:
        """From a GPU."""
        self.to_host.append(to.nbytes)
        place = storage(to)

        def begun() -> None:
            self._written[place] = self._written.get(place, 0) + 1

        def written() -> None:
            self._written[place] -= 1
            self._landed[place] = self.runtime.waits

        if (capture := self.runtime.capture) is not None:
            capture.begins.append(self._unwatched(begun))
        else:
            self._unwatched(begun)()
        self._ask(gpu, lambda there: to.copy_(there), source)
        self.runtime.ask(gpu, written)

    def _moved(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
        """`to` another device."""
        source, device = args[0], torch.device(kwargs["device"])
        if device.type == "cuda":
            made = torch.empty(source.shape, dtype=kwargs.get("dtype") or source.dtype, device=device)
            self._allocate("to", made)
            return self.copy(made, source, bool(kwargs.get("non_blocking", False)))
        with unset_fake_temporarily():
            host = torch.zeros(source.shape, dtype=kwargs.get("dtype") or source.dtype)
        if kwargs.get("non_blocking", False):
            self.runtime.problem("a copy of pageable memory that the host does not wait for")
        return self.copy(host, source, False)

    def _value(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """What the host is told of tensors, nought where there are no values."""
        real = tree_map(self._real, (args, kwargs))
        with unset_fake_temporarily():
            if not self.computes:
                real = tree_map(
                    lambda one: torch.zeros(one.shape, dtype=one.dtype) if _is(one) else one, (args, kwargs)
                )
            return func(*real[0], **real[1])

    def _queued(self, func: Any, args: Any, kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
        """The operation on shapes now, and on values when its turn comes."""
        before = {storage(one) for one in tensors}
        made = func(*args, **kwargs)
        results = [one for one in tree_leaves(made) if isinstance(one, Tensor)]
        fresh = [one for one in results if storage(one) not in before]
        for one in fresh:
            self._allocate(str(func), one)
        if not fresh and not func._schema.is_mutable:
            return made  # a view
        gpu = gpu_of(next(one for one in (*results, *tensors) if on_gpu(one)))
        if "empty" not in str(func):
            self.runtime.raise_pending()
        if not self.computes:
            self.runtime.ask(gpu, lambda: None)
            return made
        real, options = tree_map(self._real, (args, kwargs))
        options = {key: torch.device("cpu") if key == "device" else value for key, value in options.items()}
        outputs = [self._real(one) for one in fresh]

        def work() -> None:
            values = [one for one in tree_leaves(ON_HOST.get(func, func)(*real, **options)) if isinstance(one, Tensor)]
            for output, value in zip(outputs, values if outputs else (), strict=True):
                output.copy_(value)

        self.runtime.ask(gpu, self._unwatched(work))
        return made

    def _allocate(self, name: str, tensor: Tensor) -> None:
        held = tensor.untyped_storage()
        if (capture := self.runtime.capture) is not None:
            self.runtime.take(held.nbytes())
            capture.kept.append((StorageWeakRef(held), name))
        if self.computes:
            with unset_fake_temporarily():
                self._behind[storage(tensor)] = torch.full((held.nbytes(),), 0, dtype=torch.uint8).untyped_storage()

    def _real(self, value: Any) -> Any:
        """The memory behind a tensor of a GPU, other things as they are."""
        if not _is(value) or not on_gpu(value) or not self.computes:
            return value
        with unset_fake_temporarily():
            made = torch.empty(0, dtype=value.dtype)
            shape = tuple(map(int, value.shape)), tuple(map(int, value.stride()))
            return made.set_(self._behind[storage(value)], int(value.storage_offset()), *shape)

    def _ask(self, gpu: int, work: Callable[..., object], *tensors: Tensor) -> None:
        """Queue work on the memory behind tensors; without that, none."""
        if self.computes:
            real = [self._real(one) for one in tensors]
            self.runtime.ask(gpu, self._unwatched(lambda: work(*real)))
        else:
            self.runtime.ask(gpu, lambda: None)

    def _unwatched(self, work: Callable[[], object]) -> Callable[[], None]:
        def done() -> None:
            with torch.utils._python_dispatch._disable_current_modes():
                work()

        return done

    def launch(self, executor: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """A Triton launch, which goes to the current GPU whatever it is given."""
        names = inspect.getfullargspec(executor.fn).args
        given = inspect.getcallargs(executor.fn, *args, **{k: v for k, v in kwargs.items() if k in names})
        grid = executor.grid(given) if callable(executor.grid) else executor.grid
        one = Launch(executor, tree_map(_shape_of, given), (*grid, *(1,) * (3 - len(grid))))
        self.launches.append(one)
        if self.runtime.capture is not None:
            self.runtime.capture.launches.append(one)
        for name, value in flat(given):
            if not _is(value):
                continue
            if not on_gpu(value):
                if (one.name, name) not in IN_MAIN_MEMORY or value.data_ptr() not in self.locked:
                    self.runtime.problem(f"{one.name} is given {name} in main memory")
            elif gpu_of(value) != self.runtime.current:
                self.runtime.problem(f"{one.name} is launched on another GPU than {name} is on")
        if not self.computes:
            self.runtime.ask(self.runtime.current, lambda: None)
            return
        real = tree_map(self._real, (args, kwargs))
        self.runtime.ask(self.runtime.current, self._unwatched(lambda: INTERPRET(executor, *real[0], **real[1])))


INTERPRET = GridExecutor.__call__
INDEX, ASSIGN, LIST, COPY = Tensor.__getitem__, Tensor.__setitem__, Tensor.tolist, Tensor.copy_
TENSOR = torch.tensor


def _is(value: Any) -> bool:
    return isinstance(value, Tensor)


def _shape_of(value: Any) -> Any:
    """A tensor of the same shape that holds no memory of a capture; other things as they are."""
    if not _is(value):
        return value
    with torch.utils._python_dispatch._disable_current_modes():
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _is_view(func: Any) -> bool:
    """Whether an operation looks at no value."""
    returned = [one.alias_info for one in func._schema.returns]
    return any(alias is not None and not alias.is_write for alias in returned)


def index(self: Tensor, key: Any) -> Tensor:
    """As torch's, which asks for the GPU of a tensor."""
    if not on_gpu(self):
        return INDEX(self, key)
    made, dim = self, 0
    keys = key if isinstance(key, tuple) else (key,)
    for one in keys:
        match one:
            case _ if one is ...:
                dim = self.dim() - (len(keys) - 1)
            case None:
                made, dim = made.unsqueeze(dim), dim + 1
            case int():
                made = made.select(dim, one)
            case slice():
                first, last, step = one.indices(made.shape[dim])
                assert step == 1
                made, dim = made.narrow(dim, first, max(0, last - first)), dim + 1
            case _:
                raise TypeError(f"an index of {type(one)}")
    return made


def assign(self: Tensor, key: Any, value: Any) -> None:
    if not on_gpu(self):
        ASSIGN(self, key, value)
    elif _is(value):
        index(self, key).copy_(value)
    else:
        index(self, key).fill_(value)


class Cudart:
    """The calls of CUDA's runtime that lock main memory."""

    def __init__(self, fake: FakeTorch) -> None:
        self._fake = fake

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
        assert flags == 3
        if self._fake.lockable is not None and sum(self._fake.locked.values()) + size > self._fake.lockable:
            self._fake.runtime.error = "CUDA error: out of memory"
            return 2
        self._fake.locked[address] = size
        return 0

    def cudaHostUnregister(self, address: int) -> int:
        del self._fake.locked[address]
        return 0


class Properties:
    name, uuid, multi_processor_count = "a GPU that is not there", "none", PROCESSORS
    memory_clock_rate, memory_bus_width, L2_cache_size = 10_501_000, 384, 72 << 20


@contextmanager
def fake_torch(gpus: int = 1, computes: bool = False) -> Iterator[FakeTorch]:
    """Torch and Triton of a machine with so many GPUs."""
    made = FakeTorch(Runtime(gpus), computes)

    def listed(self: Tensor) -> Any:
        if not on_gpu(self):
            made.look(self)
            return LIST(self)
        return LIST(self.cpu())

    def tensor(values: Any, *, pin_memory: bool = False, device: Any = None, **options: Any) -> Tensor:
        found = TENSOR(values, **options)
        if device is not None:
            return found.to(device)
        return made.pin(found) if pin_memory else found

    def copied(self: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        if on_gpu(self) or on_gpu(source):
            return made.copy(self, source, non_blocking)
        return COPY(self, source, non_blocking)

    cuda: dict[str, Any] = {
        "Event": runtime.Event,
        "Stream": runtime.Stream,
        "CUDAGraph": runtime.Graph,
        "device": runtime.device,
        "stream": runtime.stream,
        "current_stream": runtime.current_stream,
        "synchronize": runtime.synchronize,
        "cudart": lambda: Cudart(made),
        "empty_cache": lambda: None,
        "graph_pool_handle": object,
        "get_device_properties": lambda _: Properties,
        "get_device_name": lambda _: Properties.name,
    }
    RUNNING.append(made.runtime)
    try:
        with ExitStack() as stack:
            for name, value in cuda.items():
                stack.enter_context(patch.object(torch.cuda, name, value))
            launch = lambda executor, *args, **kwargs: made.launch(executor, args, kwargs)  # noqa: E731
            stack.enter_context(patch.object(torch, "tensor", tensor))
            # Within it operations come as they were called, and not those that they are made of.
            for name in ("__enter__", "__exit__"):
                stack.enter_context(patch.object(torch.inference_mode, name, lambda *_: None))
            stack.enter_context(patch.object(GridExecutor, "__call__", launch))
            # Tensor itself would stay a sequence to C once these were patched there, and `torch.tensor` ask its length.
            for name, method in (("__getitem__", index), ("__setitem__", assign)):
                stack.enter_context(patch.object(FakeTensor, name, method))
            for name, method in (("tolist", listed), ("copy_", copied)):
                stack.enter_context(patch.object(Tensor, name, method))
            stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
            stack.enter_context(made)
            yield made
    finally:
        RUNNING.pop()
