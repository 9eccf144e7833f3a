"""A CUDA runtime that is not there: the work of each GPU waits in a queue until the host waits for it.

`fake_torch.py` puts it below torch and Triton.
"""

import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import torch

Work = Callable[[], None]


@dataclass
class Launch:
    """A Triton launch: the executor that Triton made of a kernel and a grid, and its arguments, tensors as shapes."""

    executor: Any
    arguments: dict[str, Any]
    grid: tuple[int, int, int]

    @property
    def name(self) -> str:
        return str(self.executor.fn.__name__)

    @property
    def leaves(self) -> dict[str, Any]:
        """Arguments and fields of arguments by name."""
        return dict(flat(self.arguments))


def flat(arguments: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values of arguments, with the fields of NamedTuples in their stead."""
    for name, value in arguments.items():
        if hasattr(value, "_asdict"):
            yield from flat(value._asdict())
        else:
            yield name, value


@dataclass
class Queue:
    """The work of a GPU in the order in which it was asked for; `done` of it is done."""

    work: deque[Work] = field(default_factory=deque)
    done: int = 0

    @property
    def asked(self) -> int:
        return self.done + len(self.work)

    def do(self, until: int) -> None:
        while self.done < until:
            self.done += 1
            self.work.popleft()()


class Runtime:
    """Some GPUs, the current one, the capture that is under way, and what was found to be wrong."""

    def __init__(self, gpus: int = 1) -> None:
        self.queues = [Queue() for _ in range(gpus)]
        self.current = 0
        self.streams: dict[int, Stream] = {}
        """The current stream of a GPU where it is not its first one."""
        self.capture: Graph | None = None
        self.captures: list[Graph] = []
        self.problems: Counter[str] = Counter()
        self.waits = 0
        """How often the host has waited for what was not yet done."""
        self.left: int | None = None
        """Bytes that a capture may still take, where that is limited."""
        self.error = ""
        """The pending error, which torch looks for after a kernel of its own."""

    def problem(self, words: str) -> None:
        """Note what is wrong, and where in the program."""
        frames = [f for f in traceback.extract_stack() if "/specchat/" in f.filename or "/test_" in f.filename]
        at = frames[-1] if frames else None
        self.problems[words + (f" ({at.filename.rpartition('/')[2]}: {at.name})" if at else "")] += 1

    def raise_pending(self) -> None:
        """Raise the pending error and clear it."""
        words, self.error = self.error, ""
        if words:
            raise torch.AcceleratorError(words)

    def take(self, size: int) -> None:
        """Memory for a capture."""
        if self.left is not None:
            if size > self.left:
                assert self.capture is not None
                self.capture.broken = True
                raise torch.OutOfMemoryError("CUDA out of memory.")
            self.left -= size

    def ask(self, gpu: int, work: Work) -> None:
        """Queue work, or take it into the capture that is under way."""
        if self.capture is None:
            self.queues[gpu].work.append(work)
        elif gpu != self.capture.gpu:
            self.problem(f"work of GPU {gpu} in a capture of GPU {self.capture.gpu}")
        else:
            self.capture.work.append(work)

    def until_now(self, gpu: int) -> Work:
        """Work of another GPU that waits for what this one was asked for so far."""
        queue, until = self.queues[gpu], self.queues[gpu].asked
        return lambda: queue.do(until)

    def wait(self, gpu: int, until: int | None = None) -> None:
        """Do what a GPU was asked for, as far as `until`."""
        if self.capture is not None:
            self.problem("the host waits within a capture")
            return
        queue = self.queues[gpu]
        until = queue.asked if until is None else until
        if until > queue.done:
            self.waits += 1
            queue.do(until)


RUNNING: list[Runtime] = []


def running() -> Runtime:
    """The runtime that stands for CUDA now."""
    return RUNNING[-1]


def number(device: Any = None) -> int:
    """The index of a GPU that torch's functions may be given, the current one where they are given none."""
    if isinstance(device, torch.device | str):
        device = torch.device(device).index
    return running().current if device is None else int(device)


@contextmanager
def device(which: Any) -> Iterator[None]:
    """As `torch.cuda.device`."""
    runtime, before = running(), running().current
    runtime.current = number(which)
    try:
        yield
    finally:
        runtime.current = before


class Stream:
    """As `torch.cuda.Stream`: all of a GPU are done in one order."""

    def __init__(self, device: Any = None, **_: object) -> None:
        self.gpu = number(device)


def current_stream(device: Any = None) -> Stream:
    return running().streams.get(number(device)) or Stream(device)


@contextmanager
def stream(one: Stream) -> Iterator[None]:
    """As `torch.cuda.stream`, which also makes the stream's GPU the current one."""
    runtime = running()
    before = runtime.streams.get(one.gpu)
    with device(one.gpu):
        runtime.streams[one.gpu] = one
        try:
            yield
        finally:
            runtime.streams.pop(one.gpu)
            if before is not None:
                runtime.streams[one.gpu] = before


class Event:
    """As `torch.cuda.Event`: work is done when it is waited for, and no sooner."""

    def __init__(self, **_: object) -> None:
        self._at: tuple[int, int] | None = None

    def record(self, stream: Stream | None = None) -> None:
        gpu = number() if stream is None else stream.gpu
        if running().capture is not None:
            running().problem("an event is recorded in a capture")
        self._at = gpu, running().queues[gpu].asked

    def query(self) -> bool:
        return self._at is None or running().queues[self._at[0]].done >= self._at[1]

    def synchronize(self) -> None:
        if self._at is not None:
            running().wait(*self._at)

    def elapsed_time(self, _: Self) -> float:
        return 1.0


class Graph:
    """As `torch.cuda.CUDAGraph`."""

    def __init__(self) -> None:
        self.work: list[Work] = []
        self.begins: list[Work] = []
        """What is so from the moment on that the graph is replayed."""
        self.launches: list[Launch] = []
        self.operations: Counter[str] = Counter()
        self.kept: list[tuple[Any, str]] = []
        """Weak references to memory that was taken in the capture, and what took it."""

    def capture_begin(self, pool: object = None, **_: object) -> None:
        runtime = running()
        assert runtime.capture is None, "two captures at a time"
        if runtime.current not in runtime.streams:
            runtime.problem("a capture on the first stream, which takes none")
        self.gpu, runtime.capture, self.ended, self.broken, self.pool = runtime.current, self, False, False, pool

    def capture_end(self) -> None:
        runtime = running()
        assert runtime.capture is self, "no capture is under way"
        runtime.capture = None
        if self.broken:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
        runtime.captures.append(self)
        self.ended = True
        for reference, operation in self.kept:
            if not reference.expired():
                runtime.problem(f"what {operation} took in a capture outlives it")

    def replay(self) -> None:
        assert self.ended, "the capture was never ended"
        for begin in self.begins:
            begin()
        for work in self.work:
            running().ask(self.gpu, work)


def synchronize(device: Any = None) -> None:
    running().wait(number(device))
