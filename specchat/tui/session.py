"""The app's session: the chat service, and what only the app shows."""

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from specchat.chat.turn import Reply
from specchat.config.catalog import Catalog, Pair
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.port import EnginePort
from specchat.models.fetching import Fetching
from specchat.recommend.beside import Recommending
from specchat.service.chat_service import ChatService
from specchat.service.dispatch import Update
from specchat.service.settings import ChatSettings
from specchat.tui.draft import QueuedPrompt
from specchat.tui.launch import Launch
from specchat.tune.beside_tune import Tuning

if TYPE_CHECKING:  # the app starts sooner without
    from specchat.insight.diagnosis import Advisor, Diagnosis
    from specchat.insight.gpu_use import GpuWatch
    from specchat.insight.ledger import Ledger
    from specchat.insight.racing import Racing
    from specchat.models.library import Library
    from specchat.models.machine import FreeMemory
    from specchat.models.offers import Offer


class AppSession(ChatService):
    """A chat service with the ledger, the race, downloads, tuning and prompts that wait."""

    def __init__(self, engine: EnginePort, launch: Launch) -> None:
        super().__init__(
            engine,
            launch.store,
            launch.preferences,
            replace(launch.service, saves_settings=True, restarts=True, watches=True, ended=self._enter),
        )
        self.launch = launch
        self.fetching = Fetching(launch.models.places)
        self.tuning = Tuning(launch.tuning)
        self.recommending = Recommending(launch.tuning)
        self.waiting: list[QueuedPrompt] = []
        """Prompts to send when the reply that runs here has ended."""

    @cached_property
    def ledger(self) -> "Ledger":
        from specchat.insight.ledger import Ledger

        return Ledger()

    def _enter(self, reply: Reply) -> None:
        self.ledger.add(reply)

    @cached_property
    def gpu(self) -> "GpuWatch":
        from specchat.insight.gpu_use import GpuWatch

        return GpuWatch()

    @cached_property
    def racing(self) -> "Racing":
        from specchat.insight.racing import Racing

        return Racing(self, self.ledger)

    @cached_property
    def _advisor(self) -> "Advisor":
        from specchat.insight.diagnosis import Advisor

        return Advisor(self.ledger)

    @property
    def diagnosis(self) -> "Diagnosis":
        """The verdict on drafting, and advice."""
        return self._advisor.diagnose(self.last_reply, self.loaded.info, self.settings.speculation, self.loaded.lengths)

    def words(self, update: Update) -> str:
        """The sentence that an update deserves; of a reply that was cut, with the way on."""
        match update.event if update.kind == "ended" else None:
            case Finished(reason="length"):
                return "the reply reached the token limit" + ": /continue goes on" * self.loaded.continues
            case Finished(reason="context"):
                refuses = self.settings.limits.context == "refuse"
                way = "/new starts a new chat" if refuses else "the next one leaves out earlier turns"
                return f"the context is full, so the reply ends here: {way}"
        return update.message

    def load(self, pair: Pair, settings: ChatSettings | None = None, *, chosen: bool = False) -> None:
        self.racing.end()
        super().load(pair, settings, chosen=chosen)

    def find(self, name: str, catalog: Catalog) -> Pair:
        """The pair of that name: of `catalog`, used before, or found on this machine. Reads the disk.

        Raises:
            ConfigError: there is none, or its files are gone.
        """
        if self.fetching.places is None:
            return catalog.find(name)
        from specchat.models.names import pair_named

        return pair_named(name, catalog, self.launch.service.used, self.fetching.places())

    def machine(self) -> "FreeMemory":
        """Free memory once the loaded pair has made way."""
        from specchat.models.machine import this_machine

        machine, info = this_machine(), self.loaded.info
        if info is None:
            return machine
        if info.load.gpu:
            return replace(machine, gpu=machine.gpu and machine.gpu + info.load.memory)
        return replace(machine, memory=machine.memory and machine.memory + info.load.memory)

    def look(self, catalog: Catalog) -> "tuple[Library, tuple[Offer, ...]]":
        """Read what is on the disk, and say of each model whether it fits."""
        from specchat.models.library import Library, look
        from specchat.models.offers import offer_of, offers

        places, fetched, machine = self.fetching.places, self.fetching.pair, self.machine()
        library = look(places()) if places is not None else Library((), ())
        found = offers(catalog, library, machine, self.loaded.pair)
        if fetched is not None and fetched.id not in {offer.pair.id for offer in found}:
            found = (*found, offer_of(fetched, library, machine))
        return library, tuple(found)

    @property
    def writes(self) -> bool:
        """True while the engine writes something, or a pair is being loaded."""
        return bool(self.replies) or self.racing.running or self.loaded.loading is not None

    def make_way(self) -> None:
        """Let what runs beside the chat wait while the engine writes."""
        self.tuning.pause(self.writes)
        self.recommending.pause(self.writes)

    def close(self) -> None:
        self.tuning.close()
        self.recommending.close()
        super().close()

    def refusal(self, content: str) -> str:
        if not self.at_work and self.racing.running:
            return "a race is running; your text is kept"
        return super().refusal(content)

    def count(self, content: str) -> bool:
        return not self.racing.running and super().count(content)
