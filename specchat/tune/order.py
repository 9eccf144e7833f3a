"""The order of a tune, followed by those who wait for it, and the target's replies for it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from specchat.engine.errors import EngineError
from specchat.engine.protocol.events import Loading
from specchat.figures import duration
from specchat.tune.data import TuneData
from specchat.tune.plan import TunePlan

if TYPE_CHECKING:
    from specchat.config.catalog import Pair
    from specchat.engine.protocol.pair import Device, PairSpec
    from specchat.engine.session import Session
    from specchat.tune.replies import Question
    from specchat.tune.rows import TrainingText
    from specchat.tune.target import FrozenTarget
    from specchat.tune.workshop import Workshop

JUDGED = 32
"""Held-out replies that are looked at."""
NEEDS = "specchat's own decoder"


class TuneStopped(Exception):
    """A tune was stopped before its end, in a sentence."""


class TuneReport(Protocol):
    """Gets what is done."""

    def show(self, what: str, fraction: float | None = None) -> None:
        """Tell the current work, and the share of it that is done."""

    def know(self, **facts: Any) -> None:
        """Facts about the progress, for programs."""

    def line(self, text: str) -> None:
        """A sentence for people who watch."""

    def note(self, text: str) -> None:
        """A sentence that nobody should miss."""

    def result(self, **fields: Any) -> None:
        """The outcome, for programs."""


@dataclass(frozen=True)
class TuneOrder:
    """A tune.

    Attributes:
        pair: the pair to tune for.
        kind: of the tune, as its folder is named after.
        what: the thing that is made, in words.
        data: the prompts.
        replies: replies to learn from.
        steps: steps of training, or trials.
        toml: the models.toml that the result is written to.
        report: gets the progress.
        stopped: True once it is to be stopped.
        device: where the target is read and what drafts is trained; "auto": where the pair runs.
    """

    pair: "Pair"
    kind: str
    what: str
    data: TuneData
    replies: int
    steps: int
    toml: Path
    report: TuneReport
    stopped: Callable[[], bool]
    device: "Device" = "auto"

    @property
    def spec(self) -> "PairSpec":
        """The pair as it is loaded to learn from."""
        spec = self.pair.spec
        if self.device == "auto":
            return spec
        draft = None if spec.draft is None else replace(spec.draft, device=self.device)
        return replace(spec, target=replace(spec.target, device=self.device), draft=draft)

    @cached_property
    def folder(self) -> Path:
        """The folder for this tune alone."""
        from specchat.config.paths import user_paths

        return user_paths().data / "tune" / f"{self.pair.id}-{self.kind}"

    @cached_property
    def questions(self) -> "tuple[list[Question], list[Question]]":
        """The questions to learn from, and those to be judged by."""
        from specchat.tune.replies import questions

        return questions(self.data.chats, self.pair.sampling, self.replies)

    @cached_property
    def shop(self) -> "Workshop":
        from specchat.tune.workshop import Workshop

        return Workshop(self.folder)

    def show(self, loading: Loading) -> None:
        self.report.know(phase="loading")
        self.report.show(loading.what, loading.fraction)

    def check_stop(self, done: str) -> None:
        """Raises TuneStopped, with how to go on, where it is to be stopped."""
        if self.stopped():
            raise TuneStopped(f"Stopped {done}. The same command goes on from there.")

    def _tell(self, plan: TunePlan, target: "FrozenTarget", loaded: int) -> None:
        from specchat.models.words import size
        from specchat.tune.room import check_room

        check_room(plan, target.device, loaded)
        took, memory = duration(1e3 * plan.seconds), f"{size(plan.memory)} of memory"
        memory += f" and {size(plan.gpu)} of the GPU's" if plan.gpu else ""
        self.report.line(f"This takes about {took} here, and {memory} at most.")

    def refuse(self, reason: str, needs: str = NEEDS) -> EngineError:
        """A refusal to make what was ordered."""
        return EngineError("model", f'No {self.what} for pair "{self.pair.id}": {reason}, and this needs {needs}.')

    def collected(
        self,
        session: "Session",
        target: "FrozenTarget",
        plan: TunePlan | None = None,
        layers: Sequence[int] = (),
        asked: Sequence[object] = (),
    ) -> "tuple[list[Path], list[TrainingText]]":
        """The files of the target's replies to learn from, and those to be judged by, with its states after `layers`.

        Says first what the tune takes by `plan`. What the folder holds for another target, or where something else
        was `asked` for, is thrown away.

        Raises:
            TuneStopped: it is to be stopped.
            EngineError: memory does not hold it, or there is no reply.
            OSError: a file cannot be written or read.
        """
        from specchat.tune.rows import TrainingText
        from specchat.tune.workshop import fingerprint

        if plan is not None:
            self._tell(plan, target, session.info.load.memory)
        wanted = (self.data.chats, self.pair.sampling, *asked)
        if self.shop.prepare(self.kind, fingerprint(target.checkpoint), wanted):
            self.report.note(f"{self.folder} was of other models or of other prompts; it is begun anew.")
        judged = self._answered(session, layers, held_out=True)
        learnt = self._answered(session, layers, held_out=False)
        return learnt, [TrainingText.read(path) for path in judged[:JUDGED]]

    def _answered(self, session: "Session", layers: Sequence[int], held_out: bool) -> list[Path]:
        from specchat.config.paths import user_paths
        from specchat.engine.heads.target import Target
        from specchat.tune.replies import ResidentReplies, collect

        questions, folder = self.questions[held_out], self.shop.judged if held_out else self.shop.learnt
        before = 0 if held_out else len(self.questions[True])
        total = sum(len(each) for each in self.questions)
        files: list[Path] = []
        model = session.target.model
        assert isinstance(model, Target)
        self.report.know(phase="replies")
        resident = ResidentReplies(self.pair.spec, user_paths().runtime, self.stopped)
        try:
            for done, path in enumerate(collect(session, model, questions, layers, folder, resident), 1):
                files += [path] if path else []
                self.report.show(f"the target answers prompt {done:,} of {len(questions):,}", (before + done) / total)
                self.check_stop(f"after {done:,} of {len(questions):,} replies")
        finally:
            resident.close()
        if not files:
            raise EngineError(
                "request",
                f"There is nothing to learn from: of {len(questions):,} prompts, {self.pair.name} answers none with "
                f"two tokens or more, or they do not fit its context of {session.info.context:,} tokens. Give other "
                "--prompts.",
            )
        return files
