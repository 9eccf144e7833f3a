"""Chat services over the scripted engine."""

from typing import Any

from specchat.chat.store import Store
from specchat.config.catalog import Catalog, Pair, Requires
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.service.chat_service import ChatService
from specchat.service.settings import Preferences
from specchat.service.state import ServiceOptions
from tests.fake import FakeEngine


class Clock:
    """Seconds that pass when `now` is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def pair(id: str, name: str) -> Pair:
    spec = PairSpec(id, name, ModelSource(path=f"/models/{id}"), ModelSource(path=f"/models/{id}-draft"))
    sampling = Sampling(temperature=0.7)
    return Pair(spec, strategy="draft", lengths={"draft": 5}, sampling=sampling, requires=Requires(vram_gib=8.5))


CATALOG = Catalog((pair("demo", "demo"), pair("big", "Qwen3 8B + 0.6B")), "demo")


def service_of(
    engine: FakeEngine, preferences: Preferences | None = None, store: Store | None = None, **options: Any
) -> ChatService:
    """A service as the app has it."""
    how = {"copies_saved": True, "saves_settings": True, "restarts": True} | options
    return ChatService(engine, store or Store(), preferences or Preferences(), ServiceOptions(**how))


def start(engine: FakeEngine, preferences: Preferences | None = None, store: Store | None = None) -> ChatService:
    """A service that loads the first pair."""
    service = service_of(engine, preferences, store)
    engine.start()
    service.load(CATALOG.pairs[0])
    return service


def ready(engine: FakeEngine, preferences: Preferences | None = None, store: Store | None = None) -> ChatService:
    """A service with the first pair loaded."""
    service = start(engine, preferences, store)
    service.poll()
    return service


def requested(engine: FakeEngine) -> Generate:
    """The latest request for a reply."""
    return [request for request in engine.requests if isinstance(request, Generate)][-1]


def paced() -> tuple[FakeEngine, Clock]:
    """An engine that writes ten words a second of its clock."""
    clock = Clock()
    return FakeEngine(("one two three four five six seven eight nine ten",), tokens_per_second=10, clock=clock), clock


def flush(store: Store) -> None:
    """Wait until all is saved."""
    assert store._writer.put(lambda _: None).wait(60)
