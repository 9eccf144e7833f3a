"""Load a pair and wait for it."""

from collections.abc import Callable

from specchat.config.catalog import Pair
from specchat.engine.errors import EngineError
from specchat.engine.protocol.events import Failed
from specchat.engine.protocol.pair_info import PairInfo
from specchat.service.chat_service import ChatService

TICK_S = 0.2
"""Seconds between looks at `stop` while nothing arrives."""


class Stopped(Exception):
    """The user does not want to wait any longer."""


def load(
    service: ChatService,
    pair: Pair,
    show: Callable[[str, float | None], None],
    stop: Callable[[], bool],
    *,
    chosen: bool = False,
) -> PairInfo:
    """Load `pair`, with the service's preferences; `show` gets the progress. See `ChatService.load` for `chosen`.

    Raises:
        EngineError: it cannot be loaded. The pair before is in use again, where there was one.
        Stopped: `stop` became true.
    """
    service.load(pair, service.preferences.settings(pair), chosen=chosen)
    failure: Failed | None = None
    while True:
        for update in service.wait(TICK_S):
            if (loading := service.loaded.loading) is not None:
                show(loading.what, loading.fraction)
            if isinstance(update.event, Failed):
                failure = failure or update.event
        if stop():
            raise Stopped
        if service.loaded.loading is None:
            if failure is not None:
                raise EngineError(failure.kind, failure.message)
            assert service.loaded.info is not None
            return service.loaded.info
