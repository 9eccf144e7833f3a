"""The pair of models that the engine has, is loading or has lost."""

from collections.abc import Mapping
from typing import Literal

from specchat.clean import clean, one_line
from specchat.engine.api import Load, Loading, PairInfo, StrategyStatus
from specchat.engine.port import EnginePort
from specchat.engine.strategies import STRATEGIES
from specchat.tui.launch import Pair

Death = Literal["told", "again", "last"]
"""One that was told before, one after which the engine was started again, one after which it was not."""
_DEATHS = 2
"""Deaths without a successful load between them after which the engine is not started again by itself."""


class LoadedPair:
    """`info` is there once the pair is loaded, `loading` while it is being loaded, `error` where that failed."""

    def __init__(self, engine: EnginePort) -> None:
        self._engine = engine
        self.pair: Pair | None = None
        self.info: PairInfo | None = None
        self.loading: Loading | None = None
        self.error = ""
        self._deaths = 0
        self._restarted = False

    @property
    def name(self) -> str:
        """For people, on one line; empty without a pair."""
        return one_line(self.pair.spec.name, 40) if self.pair else ""

    @property
    def id(self) -> str:
        return self.pair.spec.id if self.pair else ""

    @property
    def lengths(self) -> Mapping[str, int]:
        """Draft lengths by strategy where the pair has its own."""
        return self.pair.lengths if self.pair else {}

    @property
    def plain_tokens_per_second(self) -> float:
        """As measured when it was loaded; 0 when unknown."""
        return self.info.plain_tokens_per_second if self.info else 0.0

    def strategy_status(self, name: str) -> StrategyStatus | None:
        """What the pair says about a strategy; None when nothing is loaded or it does not know it."""
        return next((s for s in self.info.strategies if s.name == name), None) if self.info else None

    def lack(self, strategy: str) -> str:
        """Why the pair cannot draft with `strategy`, in a sentence; empty where it can or that is not known."""
        status = self.strategy_status(strategy)
        if status is None or status.available:
            return ""
        return f"{STRATEGIES[strategy].title} cannot be used here: {clean(status.reason)}"

    def load(self, pair: Pair) -> None:
        """Load `pair` in the place of what is loaded; starts the engine where none runs."""
        self.pair, self.info, self.error = pair, None, ""
        self.loading, self._deaths = Loading("starting the engine"), 0
        self._engine.start()
        self._engine.send(Load(pair.spec))

    def told(self, event: Loading) -> None:
        self.loading = Loading(one_line(event.what), event.fraction)

    def loaded(self, info: PairInfo) -> None:
        self.info, self.loading, self.error, self._deaths = info, None, "", 0

    def failed(self, message: str) -> None:
        self.loading, self.error = None, clean(message)

    def polled(self) -> None:
        """The engine's events are about to be read: a death among them is not one of before."""
        self._restarted = False

    def died(self, message: str) -> Death:
        """The engine is gone; it is started again unless it keeps ending."""
        if self._restarted:  # told once more by a request made before the restart
            return "told"
        self._deaths += 1
        self.info = None
        if self._deaths >= _DEATHS:
            self.failed(message)
            return "last"
        self.restart()
        return "again"

    def restart(self) -> None:
        self._restarted = True
        self.info, self.loading = None, Loading("starting the engine again")
        self._engine.restart()
