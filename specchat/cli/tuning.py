"""The order of a training by `specchat tune`, the target's replies, and failures in sentences."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specchat.bench.prompts import read_prompts, shipped_prompts
from specchat.cli.chat_store import opened_store
from specchat.cli.exit_codes import ExitCode
from specchat.cli.interrupt import Interrupt
from specchat.cli.output import Problem, ProgressLine
from specchat.engine.errors import EngineError
from specchat.engine.events import Loading
from specchat.engine.options import Message
from specchat.engine.out_of_memory import ran_out
from specchat.private import replace
from specchat.tune.plan import IMPORTED, LEAST_ASKED, TunePlan, span

if TYPE_CHECKING:
    from specchat.config.catalog import Pair
    from specchat.engine.model.decoder import CachedDecoder
    from specchat.engine.session import Session
    from specchat.tune.replies import Question
    from specchat.tune.workshop import Workshop

JUDGED_EVERY = 50
"""Steps between two looks at held-out replies."""
LEAST_PROMPTS = 2
JUDGED = 32
"""Held-out replies that are looked at."""
BEGUN_WITH = ".chats.json"
"""The prompts of saved chats that an unfinished training began with."""


@dataclass(frozen=True)
class TrainingOrder:
    """The pair to train for, the prompts, how much to train and where, and what may stop it."""

    pair: "Pair"
    chats: Sequence[tuple[Message, ...]]
    replies: int
    steps: int
    folder: Path
    progress: ProgressLine
    interrupt: Interrupt

    @cached_property
    def questions(self) -> "tuple[list[Question], list[Question]]":
        """The questions to learn from, and those to be judged by."""
        from specchat.tune.replies import questions

        return questions(self.chats, self.pair.sampling, self.replies)

    @cached_property
    def shop(self) -> "Workshop":
        from specchat.tune.workshop import Workshop

        return Workshop(self.folder)

    @property
    def common(self) -> dict[str, Any]:
        """The fields that all orders have, for one of a kind."""
        return {field.name: getattr(self, field.name) for field in fields(TrainingOrder)}

    def show(self, loading: Loading) -> None:
        self.progress.know(phase="loading")
        self.progress.show(loading.what, loading.fraction)

    def check_stop(self, done: str) -> None:
        """Raises Problem after ctrl+c, with how to go on."""
        if self.interrupt.pressed:
            raise Problem(f"Stopped {done}. The same command goes on from there.", ExitCode.INTERRUPTED)

    def tell(self, plan: TunePlan, loaded: int) -> None:
        """Say what the tune takes here at most, with the `loaded` bytes of the pair.

        Raises:
            Problem: memory does not hold it.
        """
        from specchat.engine.model.memory import free_memory
        from specchat.models.words import size

        free, more = free_memory(), plan.memory - loaded - IMPORTED
        if free is not None and free < more:
            raise Problem(
                f"This takes {size(plan.memory)} of memory, and {size(loaded + IMPORTED + free)} are there. Close "
                "other programs, or choose a smaller pair.",
                ExitCode.MEMORY,
            )
        self.progress.line(f"This takes about {span(plan.seconds)} here, and {size(plan.memory)} of memory at most.")

    def collected(
        self, session: "Session", model: "CachedDecoder", layers: Sequence[int], held_out: bool
    ) -> list[Path]:
        """The files of the target's replies, with its states after `layers`.

        Raises:
            Problem: interrupted, or there is no reply.
        """
        from specchat.config.paths import user_paths
        from specchat.tune.replies import collect
        from specchat.tune.resident_replies import ResidentReplies

        questions, folder = self.questions[held_out], self.shop.judged if held_out else self.shop.learnt
        before = 0 if held_out else len(self.questions[True])
        total = sum(len(each) for each in self.questions)
        files: list[Path] = []
        self.progress.know(phase="replies")
        resident = ResidentReplies(self.pair.spec, user_paths().runtime, lambda: self.interrupt.pressed)
        try:
            for done, path in enumerate(collect(session, model, questions, layers, folder, resident), 1):
                files += [path] if path else []
                self.progress.show(f"the target answers prompt {done:,} of {len(questions):,}", (before + done) / total)
                self.check_stop(f"after {done:,} of {len(questions):,} replies")
        finally:
            resident.close()
        if not files:
            raise Problem(
                f"There is nothing to learn from: of {len(questions):,} prompts, {self.pair.name} answers none with "
                f"two tokens or more, or they do not fit its context of {session.info.context:,} tokens. Give other "
                "--prompts.",
                ExitCode.USAGE,
            )
        return files


@dataclass(frozen=True)
class TrainingData:
    """Prompts to learn from, in words, and the saved chats among them, as titles by key."""

    chats: Sequence[tuple[Message, ...]]
    words: str
    used: Mapping[str, str]


def data_of(pair: str, prompts: Path | None, from_chats: bool) -> TrainingData:
    """The prompts of a file, of the saved chats, or those that come along for a pair.

    Raises:
        Problem: the file or the chats cannot be read, or there are too few.
    """
    if from_chats:
        from specchat.chat.asked import asked_prompts

        if prompts is not None:
            raise Problem("--chats and --prompts cannot go together. Leave one out.", ExitCode.USAGE)
        with opened_store() as store:
            asked = list(asked_prompts(store))
        used = {each.chat: each.title for each in asked}
        data = TrainingData(
            [each.messages for each in asked], f"{len(asked):,} prompts of {len(used):,} saved chats", used
        )
        what, least, more = "The saved chats have", LEAST_ASKED, "Chat a while, or give --prompts."
        held = "one in eight is held out, and it takes two to measure by"
    else:
        file = prompts or shipped_prompts(pair)
        chats = [prompt.messages for prompt in read_prompts(file)]
        data = TrainingData(chats, f"{len(chats):,} prompts of {file}", {})
        what, least, more = f"{file} holds", LEAST_PROMPTS, "Add some."
        held = "one to learn from and one to be held out"
    if len(data.chats) < least:
        raise Problem(f"{what} fewer than {least} prompts: {held}. {more}", ExitCode.USAGE)
    return data


def begun_with(folder: Path, data: TrainingData) -> TrainingData:
    """Prompts of chats that an unfinished training in `folder` began with, or `data` if a chat is gone.

    Chats go on while a draft learns from them, and with other prompts a training begins anew.

    Raises:
        OSError: a file cannot be written.
    """
    from pydantic import TypeAdapter, ValidationError

    kind, file = TypeAdapter(TrainingData), folder / BEGUN_WITH
    with suppress(OSError, ValidationError):
        before = kind.validate_json(file.read_bytes())
        if before.used.keys() <= data.used.keys():
            return before
    replace(file, kind.dump_json(data).decode())
    return data


def forget_begun(folder: Path) -> None:
    """Let the next training in `folder` begin with the chats as they are then."""
    (folder / BEGUN_WITH).unlink(missing_ok=True)


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
        raise Problem("The same is being trained already. Wait for that, or stop it.", ExitCode.USAGE) from None


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
            f"Memory ran out while training. What was trained so far is kept in {folder}. Close other "
            "programs, or set a smaller context for the pair, and start the same command again.",
            ExitCode.MEMORY,
        ) from None
    finally:
        progress.clear()
