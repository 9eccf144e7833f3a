"""The parts of `specchat tune heads`: collecting replies, training, measuring, with what is told and what may stop."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from specchat.cli.exit_codes import ExitCode
from specchat.cli.interrupt import Interrupt
from specchat.cli.output import Problem, ProgressLine
from specchat.engine.errors import EngineError, ForeignModel
from specchat.engine.events import Loading
from specchat.engine.options import Message
from specchat.engine.out_of_memory import ran_out
from specchat.engine.strategy import Head

if TYPE_CHECKING:
    from specchat.bench.interleaved import BenchProgress as Turn
    from specchat.config.catalog import Pair
    from specchat.engine.model.decoder import CachedDecoder
    from specchat.engine.session import Session
    from specchat.tune.families import TrainedFamily
    from specchat.tune.replies import Question
    from specchat.tune.trial import Speeds
    from specchat.tune.workshop import Workshop

JUDGED_EVERY = 50
"""Steps between two looks at held-out replies."""
JUDGED = 32
"""Held-out replies that are looked at."""
NEEDS = "heads learn from the states that specchat's own decoder has on the CPU"


@dataclass(frozen=True)
class TrainingOrder:
    """What is to be trained and where, what tells of it, and what may stop it."""

    pair: "Pair"
    family: Head
    chats: Sequence[tuple[Message, ...]]
    replies: int
    steps: int
    folder: Path
    progress: ProgressLine
    interrupt: Interrupt

    @cached_property
    def questions(self) -> "tuple[list[Question], list[Question]]":
        """What the target answers to be learnt from, and to be judged by."""
        from specchat.tune.replies import questions

        return questions(self.chats, self.pair.sampling, self.replies)

    @cached_property
    def shop(self) -> "Workshop":
        from specchat.tune.workshop import Workshop

        return Workshop(self.folder)

    def show(self, loading: Loading) -> None:
        self.progress.show(loading.what, loading.fraction)

    def check_stop(self, done: str) -> None:
        """Raises Problem after ctrl+c, with how to go on."""
        if self.interrupt.pressed:
            raise Problem(f"Stopped {done}. The same command goes on from there.", ExitCode.INTERRUPTED)


def trained(order: TrainingOrder) -> list[str]:
    """Collect replies, train, and write the heads into the workshop; what was learnt, in sentences.

    Raises:
        Problem: interrupted, no reply to learn from, or a target that heads are not for.
        EngineError: the pair cannot be loaded.
        OSError: a file cannot be written or read.
    """
    order.progress.show("starting ...")
    from specchat.engine.hub import locate
    from specchat.engine.loading import load
    from specchat.engine.model.checkpoint import Checkpoint
    from specchat.engine.model.decoder import CachedDecoder
    from specchat.tune.families import FAMILIES, untrained
    from specchat.tune.rows import TrainingText, reply
    from specchat.tune.target import FrozenTarget
    from specchat.tune.trainee import accepted_length
    from specchat.tune.training import Training
    from specchat.tune.workshop import fingerprint, put_heads

    pair, shop, family = order.pair, order.shop, FAMILIES[order.family]
    try:
        checkpoint = Checkpoint.open(locate(pair.spec.target, order.show))
    except ForeignModel as error:
        raise Problem(f'No heads for pair "{pair.id}": {error.reason}, and {NEEDS}.', ExitCode.UNUSABLE) from None
    if shop.prepare(order.family, fingerprint(checkpoint), (order.chats, pair.sampling)):
        order.progress.note(f"{shop.folder} was of another target or of other prompts; it is begun anew.")
    session = load(replace(pair.spec, heads={}), order.show)
    model = session.target.model
    if not isinstance(model, CachedDecoder):
        raise Problem(
            f'No heads for pair "{pair.id}": its target runs on the GPU, and {NEEDS}. Give it device = "cpu".',
            ExitCode.UNUSABLE,
        )
    to_learn, to_judge = order.questions
    judged = _collected(order, session, model, family, to_judge, shop.judged)
    learnt = _collected(order, session, model, family, to_learn, shop.learnt)
    replies = [reply(path) for path in learnt]
    trainee = untrained(order.family, FrozenTarget(checkpoint, model), replies)
    training = Training(trainee, shop.state)
    held_out = [TrainingText.read(path) for path in judged[:JUDGED]]
    length = accepted_length(trainee, held_out)
    for at in training.run(learnt, order.steps, lambda: order.interrupt.pressed):
        if at.step % JUDGED_EVERY == 0 or at.step == at.steps:
            length = accepted_length(trainee, held_out)
        words = f"step {at.step:,} of {at.steps:,}, loss {at.loss:.3f}, held out {length:.2f} tokens a step"
        order.progress.show(words, at.step / at.steps)
    order.check_stop(f"after step {training.step:,} of {order.steps:,}")
    put_heads(shop.heads, trainee.published())
    weights = sum(parameter.numel() for parameter in trainee.parameters())
    return [
        f"{order.family} heads of {weights:,} weights learnt from {len(learnt):,} replies of "
        f"{sum(map(len, replies)):,} tokens in {training.step:,} steps.",
        f"On {len(held_out):,} held-out replies they get {length:.2f} tokens a step.",
    ]


def measured(order: TrainingOrder) -> "Speeds":
    """The pair's held-out speed with the heads of the workshop and without.

    Raises:
        Problem: interrupted, or a text that is not plain decoding's.
        EngineError: the heads cannot be used.
    """
    from specchat.engine.loading import load
    from specchat.engine.pair import ModelSource
    from specchat.tune.trial import Different, speeds

    def tell(turn: "Turn") -> None:
        order.check_stop("before the heads were measured")
        order.progress.show(f"held-out prompts by {turn.contender}", turn.fraction)

    gc.collect()  # the session that was trained for is not needed beside this one
    source = ModelSource(path=str(order.shop.heads))
    session = load(replace(order.pair.spec, heads={order.family: source}), order.show)
    try:
        return speeds(session, order.family, order.questions[1], tell)
    except Different as error:
        raise Problem(
            f"The text by {error} differs from plain decoding's. Nothing was registered.", ExitCode.DIFFERENT
        ) from None


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """No other process trains in `folder`.

    Raises:
        Problem: one does.
    """
    from filelock import FileLock, Timeout

    try:
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout:
        raise Problem("The same heads are being trained already. Wait for that, or stop it.", ExitCode.USAGE) from None


@contextmanager
def failing(folder: Path, progress: ProgressLine) -> Iterator[None]:
    """Tells files that cannot be used, and memory that ran out, in a sentence, and ends the line of `progress`."""
    try:
        yield
    except (Problem, EngineError):
        raise
    except OSError as error:
        place = error.filename or folder
        if not error.errno:
            raise Problem(
                f"{place} cannot be read ({error.strerror}). Delete it, and start again.", ExitCode.USAGE
            ) from None
        raise Problem(
            f"{place} cannot be written ({error.strerror}). What was trained so far is kept in {folder}; when there is "
            "room, the same command goes on from there. Nothing was registered.",
            ExitCode.USAGE,
        ) from None
    except Exception as error:
        if not ran_out(error):
            raise
        raise Problem(
            f"Memory ran out while heads were being trained. What was trained so far is kept in {folder}. Close other "
            "programs, or set a smaller context for the pair, and start the same command again.",
            ExitCode.MEMORY,
        ) from None
    finally:
        progress.clear()


def _collected(
    order: TrainingOrder,
    session: "Session",
    model: "CachedDecoder",
    family: "TrainedFamily",
    questions: "list[Question]",
    folder: Path,
) -> list[Path]:
    """The files of the target's replies.

    Raises:
        Problem: interrupted, or there is no reply.
    """
    from specchat.tune.replies import collect

    files: list[Path] = []
    for done, path in enumerate(collect(session, model, questions, family.layers(model.config.layers), folder), 1):
        files += [path] if path else []
        order.progress.show(f"the target answers prompt {done:,} of {len(questions):,}", done / len(questions))
        order.check_stop(f"after {done:,} of {len(questions):,} replies")
    if not files:
        raise Problem(
            f"There is nothing to learn from: of {len(questions):,} prompts, {order.pair.name} answers none with two "
            f"tokens or more, or they do not fit its context of {session.info.context:,} tokens. Give other --prompts.",
            ExitCode.USAGE,
        )
    return files
