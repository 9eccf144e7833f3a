"""The target's replies to prompts, from which heads learn, by a session of ours or by the resident engine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from random import Random

import torch

from specchat.engine.heads.target import Target
from specchat.engine.process.client import LOADER
from specchat.engine.protocol.events import Failed, Finished, Loaded
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Cancel, Generate, Load
from specchat.engine.session import Session
from specchat.resident.shared import SharedEngine, join_background
from specchat.tune.rows import SUFFIX, TrainingText

LONGEST_REPLY = 256
"""Tokens."""
LEAST_REPLY = 2
"""Tokens from which there is something to guess."""
WARMTH = (0.7, 1.0)
"""Temperatures of further replies to a prompt, in turn; the first is as the pair says."""
SEED = 7
HELD_OUT, MOST_HELD_OUT = 8, 64
"""One prompt of so many is not learnt from, and at most so many are not."""

Chat = tuple[Message, ...]
Answer = Callable[[Generate], tuple[int, ...] | None]
"""Gives the tokens of a reply; None where it cannot."""


@dataclass(frozen=True)
class Question:
    """A chat to answer; `name` is that of the file for its reply."""

    name: str
    chat: Chat
    sampling: Sampling


def questions(prompts: Sequence[Chat], sampling: Sampling, count: int) -> tuple[list[Question], list[Question]]:
    """The `count` questions to learn from, and those to be judged by, of which no prompt is learnt from."""
    every = min(max(HELD_OUT, ceil(len(prompts) / MOST_HELD_OUT)), len(prompts))
    judged = range(every - 1, len(prompts), every)
    learnt = [i for i in range(len(prompts)) if i not in judged]
    Random(SEED).shuffle(learnt)  # files are often sorted by category
    training_questions = []
    for number in range(count if learnt else 0):
        turn, index = divmod(number, len(learnt))
        how = Sampling(temperature=WARMTH[turn % len(WARMTH)]) if turn else sampling
        training_questions.append(Question(f"{number:06}", prompts[learnt[index]], replace(how, seed=turn)))
    return training_questions, [Question(f"{i:06}", prompts[i], Sampling()) for i in judged]


def collect(
    session: Session,
    model: Target,
    asked: Sequence[Question],
    layers: Sequence[int],
    folder: Path,
    elsewhere: Answer | None = None,
) -> Iterator[Path | None]:
    """Answer what has no file in `folder` yet; for each question its file, or None where it has no reply to learn from.

    `model` is the session's target. States after so many `layers`, and after the last one, are kept. `elsewhere` may
    answer in the place of `session`, where it can.

    Raises:
        OSError: a file cannot be written.
    """
    recorded = sorted({*layers, model.config.layers})
    model.record_states(recorded)
    session.forget()
    for question in asked:
        path = folder / f"{question.name}{SUFFIX}"
        if not path.exists():
            row = _answered(session, model, question, recorded, elsewhere)
            if row is None:
                yield None
                continue
            row.write(path)
        yield path


def _answered(
    session: Session, model: Target, question: Question, layers: Sequence[int], elsewhere: Answer | None
) -> TrainingText | None:
    prompt = session.tokenizer.prompt(question.chat)
    if len(prompt) < 2 or len(prompt) + LEAST_REPLY > session.info.context:
        return None
    limits = Limits(LONGEST_REPLY, context="refuse")  # of a shortened chat the states would be others
    request = Generate(0, question.chat, question.sampling, limits, Speculation.of("auto"))
    reply = elsewhere(request) if elsewhere is not None else None
    if reply is None:
        reply = ()
        for event in session.generate(request):
            if isinstance(event, Finished):
                reply = event.token_ids
    if len(reply) < LEAST_REPLY:
        return None
    text = [*prompt, *reply]
    session.target.begin(text)
    states = {layer: model.states(layer, 0, len(text) - 1).to("cpu", copy=True) for layer in layers}
    return TrainingText(torch.tensor(text), len(prompt), states)


TICK_S = 0.2
"""Seconds between looks at `stopped` while nothing arrives."""
ANSWER_S = 10.0
"""Seconds in which an engine says whether it has a pair."""
CLIENT = "tune"


class ResidentReplies:
    """Answers by a pair that is loaded there. Where that ends, it answers no more."""

    def __init__(self, pair: PairSpec, folder: Path, stopped: Callable[[], bool], loader: str = LOADER) -> None:
        """Look for an engine with `pair` by its socket in `folder`; `stopped` ends a reply."""
        self._stopped = stopped
        self._count = 0
        self._engine = join_background(folder, CLIENT, loader)
        if self._engine is not None and not _has(self._engine, pair):
            self.close()

    @property
    def open(self) -> bool:
        """True while it answers."""
        return self._engine is not None

    def __call__(self, request: Generate) -> tuple[int, ...] | None:
        """The tokens of a reply, none after `stopped`; None where the engine or the pair is gone.

        A reply that made way for another is asked for again.
        """
        while (engine := self._engine) is not None:
            if self._stopped():
                return ()
            self._count += 1
            end = self._finished(engine, replace(request, id=self._count))
            if isinstance(end, Finished) and end.reason != "cancelled":
                return end.token_ids
            if isinstance(end, Failed):
                self.close()
        return None

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
        self._engine = None

    def _finished(self, engine: SharedEngine, request: Generate) -> Finished | Failed:
        engine.send(request)
        cancelled = False
        while True:
            if self._stopped() and not cancelled:
                cancelled = True
                engine.send(Cancel(request.id))
            # One event at a time: those of a quick reply leave no pause.
            event = next(engine.events(TICK_S), None)
            if isinstance(event, Failed) or (isinstance(event, Finished) and event.id == request.id):
                return event


def _has(engine: SharedEngine, pair: PairSpec) -> bool:
    engine.send(Load(pair))
    event = next(engine.events(ANSWER_S), None)
    return isinstance(event, Loaded)
