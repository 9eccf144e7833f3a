"""The pair of models that the engine has, is loading or has lost."""

from collections.abc import Mapping
from typing import Literal

from specchat.clean import clean, one_line
from specchat.config.catalog import Pair
from specchat.dataclass import dataclass
from specchat.engine.protocol.events import Loading
from specchat.engine.protocol.options import Arguments, Sampling
from specchat.engine.protocol.pair_info import NO_SYSTEM_ROLE, PairInfo, StrategyStatus
from specchat.engine.protocol.port import EnginePort
from specchat.engine.protocol.requests import Load
from specchat.engine.strategies import STRATEGIES

Death = Literal["known", "again", "back", "last"]
"""An engine's end: known before; followed by a start with the same pair, or with the one before; or by no start."""
_MAX_DEATHS = 2
"""Deaths without a begun reply between them after which the engine is not started again by itself: a worker may load a
pair and end right after that."""


@dataclass
class EngineDeaths:
    """Ends of the engine without a reply between them.

    Attributes:
        most: number at which it is not started again.
        known: True if an end among the events at hand was dealt with.
    """

    most: int
    count: int = 0
    known: bool = False


class LoadedPair:
    """`info` is there once the pair is loaded, `loading` while it is being loaded, `error` where that failed."""

    def __init__(self, engine: EnginePort, fallback: Pair | None = None, restarts: bool = True) -> None:
        """`fallback` is loaded where the first pair cannot be. With `restarts` an engine that died is started again."""
        self._engine = engine
        self._deaths = EngineDeaths(_MAX_DEATHS if restarts else 1)
        self._before = fallback
        self._returning = False
        """True while the pair before is loaded again."""
        self.pair: Pair | None = None
        self.info: PairInfo | None = None
        self.loading: Loading | None = None
        self.error = ""
        self.used = False
        """True once any pair was loaded."""
        self._explained: dict[str, str] = {}
        """Subjects that were explained, each with the id of the last pair that it was explained for."""

    @property
    def name(self) -> str:
        """For people, on one line; empty without a pair."""
        return _name(self.pair) if self.pair else ""

    @property
    def id(self) -> str:
        return self.pair.spec.id if self.pair else ""

    @property
    def before(self) -> str:
        """The name of the pair to go back to from the one that is being loaded; empty where there is none."""
        return _name(self._before) if self._before not in (None, self.pair) else ""

    @property
    def lengths(self) -> Mapping[str, int]:
        """Draft lengths by strategy where the pair has its own."""
        return self.pair.lengths if self.pair else {}

    def plain_speed(self, sampling: Sampling) -> float:
        """Tokens per second of plain replies with these options, measured when it was loaded; 0 when unknown."""
        return self.info.plain_speed(sampling) if self.info else 0.0

    def arguments(self, chosen: Arguments) -> Arguments:
        """Return the chosen arguments that the pair's chat template offers with the chosen value."""
        offered = dict(self.info.template.choices) if self.info else {}
        return tuple((name, value) for name, value in chosen if value in offered.get(name, ()))

    def about_system(self) -> str:
        """A sentence, once for each pair that is loaded, where its model has no system role."""
        return "" if self.info is None or self.info.template.system_role else self._once("system", NO_SYSTEM_ROLE)

    def _once(self, subject: str, sentence: str) -> str:
        """The sentence where the subject was not explained for the loaded pair."""
        known, self._explained[subject] = self._explained.get(subject), self.id
        return "" if known == self.id else sentence

    @property
    def calls_tools(self) -> bool:
        """True if the model can be shown tools and calls of it be read."""
        return self.info is not None and self.info.template.tools

    @property
    def continues(self) -> bool:
        """False if the model is known not to go on from the beginning of a reply."""
        return self.info is None or self.info.server.continues

    def about_tools(self) -> str:
        """A sentence, once for each pair that is loaded, where its model calls no tools."""
        if self.info is None or self.info.template.tools:
            return ""
        why = "its server takes none" if self.info.server.name else "its chat template shows none"
        return self._once("tools", f"{self.name} is not offered the tools of this chat: {why}")

    def strategy_status(self, name: str) -> StrategyStatus | None:
        """The pair's status of a strategy; None when nothing is loaded or it does not know it."""
        return next((s for s in self.info.strategies if s.name == name), None) if self.info else None

    def unsupported(self, strategy: str) -> str:
        """The reason why the pair cannot draft with `strategy`; empty where it can or that is not known."""
        status = self.strategy_status(strategy)
        if status is None or status.available:
            return ""
        return f"{STRATEGIES[strategy].title} cannot be used here: {clean(status.reason)}"

    def load(self, pair: Pair) -> None:
        """Load `pair` in the place of the loaded one; starts the engine where none runs."""
        if self.info is not None or self._returning:
            self._before = self.pair
        waits = self.loading is not None
        self._begin(pair, "starting the engine")
        self._deaths.count = 0
        if waits:  # that load may be a long download
            self.restart()

    def give_up(self) -> Pair | None:
        """Stop loading and return to the pair before; None where there is none or nothing is loaded."""
        back = self._take_back() if self.loading is not None else None
        if back is not None:
            self._begin(back, f"going back to {_name(back)}", returning=True)
            self.restart()
        return back

    def _take_back(self) -> Pair | None:
        """The pair to go back to, once."""
        back, self._before = self._before, None
        return back if back is not self.pair else None

    def _begin(self, pair: Pair, doing: str, *, returning: bool = False) -> None:
        self.pair, self.info, self.error, self._returning = pair, None, "", returning
        self.loading = Loading(doing)
        self._engine.start()
        self._engine.send(Load(pair.spec))

    def progress(self, event: Loading) -> None:
        self.loading = Loading(one_line(event.what), event.fraction)

    def loaded(self, info: PairInfo) -> None:
        self.info, self.loading, self.error, self._returning = info, None, "", False
        self._before, self.used = None, True

    def answers(self) -> None:
        """A reply has begun: the engine works."""
        self._deaths.count = 0

    def failed(self, message: str) -> Pair | None:
        """The pair cannot be loaded; returns the one before, which is loaded again, or None."""
        self.loading, self.error, self._returning = None, clean(message), False
        back = self._take_back()
        if back is not None:
            self._begin(back, f"going back to {_name(back)}", returning=True)
        return back

    def polled(self) -> None:
        """The engine's events are about to be read: a death among them is a new one."""
        self._deaths.known = False

    def died(self, message: str) -> Death:
        """The engine is gone; it is started again unless it keeps ending."""
        if self._deaths.known:  # a request sent before the restart brings the news again
            return "known"
        if self.loading is not None and self.failed(message) is not None:
            self._deaths.known = True
            return "back"
        self._deaths.count += 1
        self.info = None
        if self._deaths.count >= self._deaths.most:
            self.failed(message)
            return "last"
        self.restart()
        return "again"

    def restart(self) -> None:
        self._deaths.known = True
        self.info, self.loading = None, Loading("starting the engine again")
        self._engine.restart()


def _name(pair: Pair) -> str:
    return one_line(pair.spec.name, 40)
