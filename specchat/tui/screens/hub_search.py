"""The search of the hub from the list of models."""

from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING

from specchat.clean import one_line
from specchat.engine.errors import EngineError
from specchat.engine.fetch.answer import Cancelled

if TYPE_CHECKING:
    from specchat.models.library import Library, ModelPlaces
    from specchat.models.machine import FreeMemory
    from specchat.models.offers import Offer


class HubSearch:
    """The words of the latest search, what was found, and a sentence about its course; empty once all is there."""

    def __init__(self, places: "Callable[[], ModelPlaces] | None") -> None:
        self._places = places
        self._over = Event()
        self.words = ""
        self.found: tuple[Offer, ...] = ()
        self.sentence = ""

    @property
    def possible(self) -> bool:
        return self._places is not None

    @property
    def host(self) -> str:
        return self._places().hub.host if self._places is not None else "the hub"

    def begin(self, words: str) -> Event:
        """Give up the search before, and begin one; `run` takes the event, which is set where this one is given up."""
        self._over.set()
        self._over = Event()
        self.words, self.found, self.sentence = words, (), f"asking {self.host} for “{one_line(words, 60)}” ..."
        return self._over

    def stop(self) -> None:
        """Give up what runs."""
        self._over.set()

    def run(self, over: Event, library: "Library", machine: "FreeMemory", notify: Callable[[], None]) -> None:
        """Search, in a thread of its own; `notify` is called when there is something new, until `over` is set."""
        from specchat.models.hub_offers import hub_offer, unheld
        from specchat.models.search import search, sized

        assert self._places is not None
        hub, words = self._places().hub, self.words

        def say(found: "tuple[Offer, ...]", sentence: str) -> None:
            if not over.is_set():
                self.found, self.sentence = unheld(found, library), sentence
                notify()

        try:
            hits = search(hub, words, over)
            if not hits:
                say((), f"{hub.host} has no model for “{one_line(words, 60)}” that is read here")
                return
            found = [hub_offer(hit, machine) for hit in hits]
            say(tuple(found), "")
            for number, hit in enumerate(sized(hub, hits, over)):
                found[number] = hub_offer(hit, machine)
                say(tuple(found), "")
        except Cancelled:
            return
        except EngineError as error:
            say((), error.message)
