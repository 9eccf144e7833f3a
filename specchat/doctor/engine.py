"""The engine process with a pair in it, as a reply would find it."""

from collections.abc import Callable

from specchat.doctor.finding import Finding, note, ok, problem
from specchat.engine.events import Failed, Loaded, Loading
from specchat.engine.pair import PairInfo, PairSpec
from specchat.engine.port import EnginePort
from specchat.engine.requests import Load

TICK_S = 0.2


class Stopped(Exception):
    """The user does not want to wait any longer."""


def engine(
    port: EnginePort, pair: PairSpec, show: Callable[[str, float | None], None], stop: Callable[[], bool]
) -> list[Finding]:
    """Load `pair`, tell `show` how far that is, and say what was measured.

    Raises:
        Stopped: `stop` became true.
    """
    port.start()
    port.send(Load(pair))
    while True:
        for event in port.events(TICK_S):
            match event:
                case Loading():
                    show(event.what, event.fraction)
                case Loaded():
                    return _loaded(event.info)
                case Failed(kind="download"):
                    return [note("engine", f'The models of pair "{pair.id}" are not on this machine: {event.message}')]
                case Failed():
                    return [problem("engine", event.message)]
            if stop():
                raise Stopped
        if stop():
            raise Stopped


def _loaded(info: PairInfo) -> list[Finding]:
    cost = "" if info.draft_cost is None else f"; a drafted token costs {info.draft_cost:.2f} of that time"
    missing = [f"{strategy.name} ({strategy.reason})" for strategy in info.strategies if not strategy.available]
    there = ", ".join(strategy.name for strategy in info.strategies if strategy.available)
    strategies = note("strategies", f"{there}; not {', '.join(missing)}") if missing else ok("strategies", there)
    return [
        ok("engine", f"{info.name} on {info.device}, {info.memory / (1 << 20):.0f} MiB, in {info.load_seconds:.1f} s"),
        ok("plain speed", f"{info.plain_tokens_per_second:.0f} tok/s{cost}"),
        strategies,
        ok("exactness", info.exactness),
        *([note("device", info.note)] if info.note else []),
        *([note("pair", info.warning)] if info.warning else []),
    ]
