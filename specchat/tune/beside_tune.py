"""A draft's training beside a chat: one at a time, paused while replies are written, gone on with after a restart."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specchat.clean import one_line
from specchat.dataclass import dataclass
from specchat.figures import duration
from specchat.tune import BEGUN_WITH
from specchat.tune.beside_work import BesideWork, TuningPlaces

if TYPE_CHECKING:  # the app starts sooner without
    from specchat.tune.beside import BesideCommand
    from specchat.tune.plan import TunePlan

_PHASES = {
    "loading": "loading the models",
    "replies": "the model answers",
    "training": "training",
    "measuring": "measuring",
}
"""Words for the phases of the command, in their order; it loads before the first and the last."""
_KNOWN = 0.02
"""Share of a phase after which its pace is taken for the rest."""


@dataclass(frozen=True)
class TuneEnd:
    """The end of a training: the fields of its result, or the reason why there is none, in a sentence."""

    pair: str
    result: Mapping[str, Any] | None = None
    error: str = ""


class Tuning(BesideWork):
    """The training that runs. What was ordered stands in a file until it has ended.

    A stop keeps what is done so far; when the program ends it is gone on with at the next start.
    """

    NAME = "tune"

    def __init__(self, places: TuningPlaces | None) -> None:
        super().__init__(places)
        self.changed: set[str] = set()
        """Ids of pairs that models.toml gives other parts, to be taken in between replies."""
        self.outcome = ""
        """The outcome of the latest one, in a sentence, until the next request."""
        self._plan: TunePlan | None = None
        self._phase = ""
        self._began = 0.0
        """Share of the phase that was done when it was first heard of."""

    def begin(self, pair: str, plan: "TunePlan | None" = None, on_cpu: bool = False) -> str:
        """Train the draft of the pair called `pair` on the saved chats; returns the reason where that cannot begin.

        With `on_cpu` it is trained in main memory, wherever the pair runs.
        """
        assert self.places is not None
        from specchat.config.errors import ConfigError
        from specchat.config.paths import private_folder
        from specchat.private import replace

        order = self.places.order
        try:
            private_folder(order.parent)
            replace(order, json.dumps({"pair": pair, "on_cpu": on_cpu}) + "\n")
            device = ("--device", "cpu") if on_cpu else ()
            self.job = self.places.run(("tune", "draft", pair, "--chats", "--json", *device, *self.places.options))
        except ConfigError as error:
            return error.message
        except OSError as error:
            return f"{order} cannot be written ({error.strerror}). Nothing was begun."
        self.pair, self._plan, self._phase, self._began = pair, plan, "", 0.0
        self.outcome = ""
        return ""

    def ordered(self) -> tuple[str, bool]:
        """The id of the pair that was training when the app was left, and True if it trained on the CPU.

        The id is empty if none was.
        """
        if self.places is None:
            return "", False
        try:
            order = json.loads(self.places.order.read_bytes())
            pair, on_cpu = order["pair"], order.get("on_cpu", False)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return "", False
        return (pair, on_cpu is True) if isinstance(pair, str) else ("", False)

    def unfinished(self, pair: str) -> bool:
        """True if a training of that pair's draft was stopped, and would go on."""
        return self.places is not None and (self.places.order.parent / f"{pair}-draft" / BEGUN_WITH).exists()

    def ended(self) -> TuneEnd | None:
        """The end, once."""
        job = self.job
        if job is None or job.busy:
            return None
        self.job = None
        if self.places is not None:
            self.places.order.unlink(missing_ok=True)
        if job.state == "done":
            return TuneEnd(self.pair, job.result)
        return TuneEnd(self.pair, error=job.error if job.state == "failed" else "")

    def left_s(self) -> float | None:
        """Seconds that it will still run, by the pace of its phase and the plan; None while that is not known."""
        job, plan = self.job, self._plan
        if job is None:
            return None
        phase, done = str(job.progress.get("phase", "loading")), _number(job.progress.get("fraction"))
        if phase != self._phase:
            self._phase, self._began = phase, done or 0.0
        later = [] if plan is None else [plan.replies_s, plan.training_s, plan.measuring_s]
        at = list(_PHASES).index(phase) if phase in _PHASES else 0
        rest = sum(later[at:])
        if at and done is not None and done - self._began > _KNOWN:
            return job.phase_s * (1 - done) / (done - self._began) + rest
        return sum(later[max(at - 1, 0) :]) or None

    def doing(self, job: "BesideCommand") -> str:
        parts = [self._doing(job), *self.accepted()]
        if (left := self.left_s()) is not None:
            parts.append(f"{duration(1e3 * left)} left")
        return " · ".join(parts)

    def accepted(self) -> Sequence[str]:
        """The share of drafts accepted on held-out replies, at first and now, once it is known."""
        progress = {} if self.job is None else self.job.progress
        before, now = _number(progress.get("accepted_before")), _number(progress.get("accepted"))
        if before is None or now is None:
            return ()
        return (f"accepted {before:.0%}, now {now:.0%}" if now != before else f"accepted {before:.0%}",)

    def _doing(self, job: "BesideCommand") -> str:
        phase, done = str(job.progress.get("phase", "loading")), _number(job.progress.get("fraction"))
        words = one_line(_PHASES.get(phase, phase), 20)
        share = f" {done:.0%}" if done is not None and phase != "loading" else ""
        return f"tune {'waits' if job.paused else 'on your chats'}: {words}{share}"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
