"""The frame of every tune: a folder of its own, one process in it, failures in sentences, and the pair loaded."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from specchat.engine.backends import DEFAULT_BACKEND
from specchat.engine.errors import EngineError, ForeignModel
from specchat.engine.hardware.gpu_failure import first_line, is_gpu_failure
from specchat.engine.hardware.out_of_memory import ran_out
from specchat.tune.data import begun_with, forget_begun
from specchat.tune.order import TuneOrder

if TYPE_CHECKING:
    from specchat.engine.device.model import DeviceModel
    from specchat.engine.protocol.pair import ModelSource
    from specchat.engine.session import Session
    from specchat.engine.weights.checkpoint import Checkpoint
    from specchat.tune.target import FrozenTarget


@contextmanager
def begun(order: TuneOrder) -> Iterator[TuneOrder]:
    """The order, alone in its folder; one that goes on has the prompts of saved chats that it began with.

    Raises:
        EngineError: another backend runs the pair, the same is tuned already, or whatever failed inside.
        ConfigError: the folder cannot be made.
    """
    from specchat.config.paths import private_folder

    if order.pair.spec.backend != DEFAULT_BACKEND:
        raise order.refuse(f"it is run by {order.pair.spec.backend}")
    folder = private_folder(order.folder)
    with _failing(folder), _alone(folder):
        data = begun_with(folder, order.data) if order.data.used else order.data
        order.report.show("starting ...")
        yield replace(order, data=data)
        forget_begun(folder)


def opened(order: TuneOrder, source: "ModelSource") -> "Checkpoint":
    """The checkpoint of a model of the pair.

    Raises:
        EngineError: only another backend runs it, or it cannot be read.
    """
    from specchat.engine.fetch.hub import locate
    from specchat.engine.weights.checkpoint import Checkpoint

    try:
        return Checkpoint.open(locate(source, order.show))
    except ForeignModel as error:
        raise order.refuse(error.reason) from None


def loaded(order: TuneOrder) -> "tuple[Session, FrozenTarget]":
    """The pair without its heads, and its target.

    Raises:
        EngineError: it cannot be read or loaded, or another program than our own decoders runs it.
    """
    from specchat.engine.heads.target import Target
    from specchat.engine.loading import load
    from specchat.engine.memory.cut import ON_TWO_GPUS
    from specchat.engine.model.decoder import CachedDecoder
    from specchat.tune.room import leave_room
    from specchat.tune.target import DeviceTarget, FrozenTarget

    checkpoint = opened(order, order.pair.spec.target)
    session = load(replace(order.spec, heads={}), order.show)
    model = session.target.model
    if isinstance(model, CachedDecoder):
        return session, FrozenTarget(checkpoint, model)
    if not isinstance(model, Target):
        raise order.refuse(session.info.notes.note or "another program runs it")
    on_gpu = cast("DeviceModel", model)
    if len(on_gpu.decoder.halves) > 1:
        raise order.refuse(ON_TWO_GPUS, 'one device, as "--device cpu" has it')
    found = DeviceTarget(checkpoint, on_gpu)
    leave_room(found.device)
    return session, found


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other process tunes in `folder`.

    Raises:
        EngineError: one does.
    """
    from filelock import FileLock, Timeout

    try:
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout:
        raise EngineError("request", "The same is being trained already. Wait for that, or stop it.") from None


@contextmanager
def _failing(folder: Path) -> Iterator[None]:
    """Turn errors of files and of exhausted memory into an EngineError in a sentence."""
    try:
        yield
    except EngineError:
        raise
    except OSError as error:
        path = error.filename or folder
        if not error.errno:
            raise EngineError(
                "request", f"{path} cannot be read ({error.strerror}). Delete it, and start again."
            ) from None
        raise EngineError(
            "request",
            f"{path} cannot be written ({error.strerror}). What was trained so far is kept in {folder}; when there is "
            "room, the same command goes on from there. Nothing was registered.",
        ) from None
    except Exception as error:
        kept = f"What was trained so far is kept in {folder}."
        if is_gpu_failure(error):
            words = f"The GPU failed while training ({first_line(error)}). {kept} --device cpu goes on in main memory."
            raise EngineError("model", words) from None
        if not ran_out(error):
            raise
        if "CUDA" in str(error):
            words = (
                f"The GPU's memory ran out while training. {kept} End other programs that use it and start the same "
                "command again, or go on in main memory with --device cpu."
            )
            raise EngineError("memory", words) from None
        raise EngineError(
            "memory",
            f"Memory ran out while training. {kept} Close other programs, or set a smaller context for the pair, and "
            "start the same command again.",
        ) from None
