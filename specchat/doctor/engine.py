"""The engine process with a pair in it, as a reply would find it."""

from collections.abc import Callable

from specchat.chat.store import Store
from specchat.config.catalog import Pair
from specchat.doctor.finding import Finding, note, ok, problem
from specchat.engine.errors import EngineError
from specchat.engine.protocol.pair_info import PairInfo
from specchat.engine.protocol.port import EnginePort
from specchat.service.chat_service import ChatService
from specchat.service.loading import load
from specchat.service.settings import Preferences


def engine(
    port: EnginePort, pair: Pair, show: Callable[[str, float | None], None], stop: Callable[[], bool]
) -> list[Finding]:
    """Load `pair` and report the measurements; `show` gets the progress.

    Raises:
        Stopped: `stop` became true.
    """
    try:
        return _loaded(load(ChatService(port, Store(), Preferences()), pair, show, stop))
    except EngineError as error:
        if error.kind == "download":
            return [note("engine", f'The models of pair "{pair.id}" are not on this machine: {error.message}')]
        return [problem("engine", error.message)]


def _loaded(info: PairInfo) -> list[Finding]:
    cost = "" if info.draft.cost is None else f"; a drafted token costs {info.draft.cost:.2f} of that time"
    missing = [f"{strategy.name} ({strategy.reason})" for strategy in info.strategies if not strategy.available]
    there = ", ".join(strategy.name for strategy in info.strategies if strategy.available)
    strategies = note("strategies", f"{there}; not {', '.join(missing)}") if missing else ok("strategies", there)
    return [
        ok("engine", f"{info.name} on {info.load.device}, {info.load.held}, in {info.load.seconds:.1f} s"),
        ok("plain speed", f"{info.plain.tokens_per_second:.0f} tok/s{cost}"),
        strategies,
        ok("exactness", info.notes.exactness),
        *([note("device", info.notes.note)] if info.notes.note else []),
        *([note("pair", info.notes.warning)] if info.notes.warning else []),
    ]
