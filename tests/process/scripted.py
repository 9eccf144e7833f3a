"""A session without a model, run by a real worker: the last message says what happens."""

import ctypes
import mmap
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from specchat.engine.drafters.earlier import Earlier
from specchat.engine.errors import ContextError, ModelError
from specchat.engine.hardware.gpu_failure import GpuLost
from specchat.engine.hardware.gpu_record import GpuRecord
from specchat.engine.process.held_pair import WorkerSession
from specchat.engine.protocol.events import Changed, Counted, Event, Finished, Loading, Started, Step
from specchat.engine.protocol.options import Message
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.pair_info import PairInfo
from specchat.engine.protocol.requests import Cancel, Count, Generate
from specchat.engine.reply.control import Control
from specchat.engine.reply.cross_chat import CrossChatIndexer
from tests import fake
from tests.parts import changed

STEP_S = 0.02
LONGEST = 100_000
"""Tokens of the longest context that fits."""


class OutOfMemoryError(RuntimeError):
    """Named like torch's."""


class AcceleratorError(RuntimeError):
    """Named like torch's."""


class Held:
    """Nothing holds a text here."""

    back_s, together = 0.0, ()


class ScriptedSession:
    def __init__(self, info: PairInfo) -> None:
        self.info = info
        self.earlier = Earlier()
        self.cross_chat = CrossChatIndexer(self.earlier, encode)
        self.takes_turns, self.holder = True, Held()

    def save_read(self, stop: Callable[[], bool]) -> None:
        """There is nothing to save."""

    def forget_read(self, chat: str | None = None) -> None:
        """There is nothing to forget."""

    def count(self, request: Count) -> Counted:
        return Counted(request.id, words(request.messages), self.info.context)

    def generate(self, request: Generate, control: Control) -> Iterator[Event]:
        match request.messages[-1].content:
            case "too long":
                raise ContextError("It does not fit.")
            case "bug":
                raise ZeroDivisionError("a secret\nbug")
            case "memory":
                raise OutOfMemoryError("CUDA out of memory")
            case "memory later":
                reply = self._reply(request, control, "Once there was a fox.")
                yield from (next(reply) for _ in range(3))
                raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9")
            case "gpu later":
                reply = self._reply(request, control, "Once there was a fox.")
                yield from (next(reply) for _ in range(3))
                raise AcceleratorError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might")
            case "noise":
                print("printed by Python")
                os.system("echo printed by a child; echo and its errors >&2")
                print(input("asks"))
            case "die":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "shrunk":
                with tempfile.TemporaryFile() as file:
                    file.truncate(1 << 16)
                    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                    file.truncate(0)
                    print(mapped[-1])
            case "exit":
                os._exit(7)
            case "codes":
                yield from self._reply(request, control, "Once \x1b]52;c;aGk=\x07there")
                return
            case "recall":
                known = "".join(chr(token) if token >= 0 else " | " for token in self.earlier.places.token_ids)
                yield from self._reply(request, control, known or "nothing")
                return
            case "endless":
                yield from self._reply(request, control, "word " * 10_000)
                return
            case "stuck":
                yield Started(request.id, 1, 0, request.sampling.seed, request.speculation)
                print("stuck")
                time.sleep(3600)
            case "native":
                yield Started(request.id, 1, 0, request.sampling.seed, request.speculation)
                ctypes.PyDLL(None).sleep(3600)  # which, unlike CDLL, keeps Python's lock
        yield from self._reply(request, control, "Once there was a fox.")

    def _reply(self, request: Generate, control: Control, text: str) -> Iterator[Event]:
        speculation = request.speculation
        yield Started(request.id, words(request.messages), 0, request.sampling.seed, speculation)
        said, made = "", list[Step]()
        for number, step in enumerate(fake.steps(text)):
            time.sleep(STEP_S)
            if number == 10:
                print("well under way")
            said += "".join(piece.text for piece in step.pieces)
            made.append(step)
            yield replace(step, id=request.id, strategy=speculation.strategy)
            while (message := control.poll()) is not None:
                if isinstance(message, Cancel):
                    yield Finished(request.id, "cancelled", said, (), fake.stats(made, 0, 0.0))
                    return
                speculation = message.speculation
                yield Changed(request.id, speculation, step.context_used)
        yield Finished(request.id, "stop", said, (), fake.stats(made, 0, 0.0))


def encode(text: str) -> list[int]:
    if "unreadable" in text:
        raise ValueError
    return list(text.encode())


def words(messages: Sequence[Message]) -> int:
    return sum(len(message.content.split()) for message in messages)


def _lost_card() -> GpuRecord:
    def ask() -> None:
        raise AcceleratorError("CUDA error: an illegal memory access was encountered")

    return GpuRecord.of("another card", ask)


def load(pair: PairSpec, progress: Callable[[Loading], None], make_room: Callable[[], None]) -> WorkerSession:
    progress(Loading(f"reading {pair.target.label}", 0.5))
    if pair.id == "missing" or os.path.exists(f"{pair.target.label}/gone"):
        raise ModelError("There is no such folder.")
    make_room()
    if pair.id == "huge" or (pair.context or 0) > LONGEST:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
    if pair.id == "gpu":
        raise RuntimeError("Triton Error [CUDA]: an illegal instruction was encountered")
    GpuRecord.use(card := GpuRecord.of("a card"), *[_lost_card()] * (pair.id == "on two cards"), pair=pair.id)
    if pair.id == "gpu or cpu" and pair.target.device != "cpu" and not card.wrong("kernels", pair.id):
        raise GpuLost(pair, "CUDA error: an illegal memory access was encountered")
    if pair.id == "checked":
        card.begin("kernels")
        progress(Loading("checking", 0.6))
        time.sleep(3600)
    if pair.name == "slow":
        print("loading")
        time.sleep(3600)
    where = pair.target.device if pair.id == "gpu or cpu" else fake.INFO.load.device
    note = "runs code of its own" if pair.trust_remote_code else ""
    context = {"context": pair.context} if pair.context else {}
    known = context | {"device": where, "gpu": "GPU-1" if pair.id == "on a gpu" else "", "note": note}
    return ScriptedSession(changed(fake.INFO, id=pair.id, name=f"{pair.name} {os.getpid()}", **known))
