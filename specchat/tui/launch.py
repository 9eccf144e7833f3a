"""The app's launch, as the command line hands it over."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from specchat.attention import Notify
from specchat.chat.store import Store
from specchat.config.catalog import Pair
from specchat.config.live import LiveFiles
from specchat.config.presets import Preset
from specchat.config.saved_prompts import SavedPrompts
from specchat.config.themes import Theme
from specchat.dataclass import dataclass
from specchat.service.settings import Preferences
from specchat.service.state import ServiceOptions
from specchat.tune.beside_work import TuningPlaces

if TYPE_CHECKING:  # the app starts sooner without
    from specchat.models.declare import DeclaredPair, Named
    from specchat.models.library import ModelPlaces


@dataclass(frozen=True)
class UserConfig:
    """The user's configuration, read at the start."""

    theme: str | None = None
    themes: Sequence[Theme] = ()
    presets: Sequence[Preset] = ()
    keymap: Mapping[str, str] = field(default_factory=dict)
    """Keys by action id that replace the action's own, with commas between; "" for none."""
    settings_file: Path | None = None
    """The user's config.toml."""
    tools_file: Path | None = None
    """The file that names the servers of tools."""
    live: LiveFiles | None = None
    """Files that are read again when they change."""
    remember: Callable[[str, str | bool], None] | None = None
    """Saves a setting by key and value for the next start; raises an exception with a sentence where it cannot."""
    notify: Notify = "auto"
    """How the terminal tells of a reply that ends while one looks elsewhere."""
    prompts: SavedPrompts = field(default_factory=SavedPrompts)
    warnings: tuple[str, ...] = ()
    """Sentences to show once the window is up, such as a theme file that could not be read."""


@dataclass(frozen=True)
class ModelsHere:
    """The models of this machine, and how a pair of them is declared."""

    places: "Callable[[], ModelPlaces] | None" = None
    """Tells where models are and come from; None leaves downloads to the engine."""
    add: "Callable[[Named, Named | None], DeclaredPair] | None" = None
    """Writes a pair of a target and a draft into the user's models.toml; raises an EngineError where it cannot be."""


@dataclass(frozen=True)
class Launch:
    """The start of the app."""

    pair: Pair
    """The pair to load first."""
    named: bool = False
    """True if the command line names `pair`, which answers in `chat` whatever did before."""
    again: bool = False
    """True if `pair` is the one that was chosen last."""
    chat: str = ""
    """The key of the chat to open first; empty for a new one."""
    preferences: Preferences = field(default_factory=Preferences)
    store: Store = field(default_factory=Store)
    """The store of chats."""
    service: ServiceOptions = field(default_factory=lambda: ServiceOptions(copies_saved=True))
    """Options of the chat service that the command line decides."""
    config: UserConfig = field(default_factory=UserConfig)
    history: Path | None = None
    """File of the prompt history; None keeps none."""
    unsent: Path | None = None
    """File of the text that was typed and not sent; None keeps nothing."""
    pasted: Path | None = None
    """Folder of pasted pictures and of outputs of code; None for neither."""
    models: ModelsHere = ModelsHere()
    tuning: TuningPlaces | None = None
    """The folders and commands of tunes; None tunes nothing."""
