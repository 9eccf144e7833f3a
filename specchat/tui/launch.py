"""The app's launch, as the command line hands it over."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from specchat.chat.store import Store
from specchat.config.catalog import Pair
from specchat.config.live import LiveFiles
from specchat.config.personas import Persona
from specchat.config.presets import Preset
from specchat.config.themes import Theme
from specchat.config.used_pairs import UsedPairs
from specchat.mcp_tools.servers import ToolServers
from specchat.service.settings import Preferences
from specchat.tune.beside_work import TuningPlaces

if TYPE_CHECKING:  # the app starts sooner without
    from specchat.models.declare import DeclaredPair, Named
    from specchat.models.library import ModelPlaces


@dataclass(frozen=True)
class Launch:
    """The start of the app."""

    pair: Pair
    """The pair to load first."""
    fallback: Pair | None = None
    """The pair to load where that one cannot be."""
    preferences: Preferences = field(default_factory=Preferences)
    theme: str | None = None
    themes: Sequence[Theme] = ()
    personas: Sequence[Persona] = ()
    presets: Sequence[Preset] = ()
    history: Path | None = None
    """File of the prompt history; None keeps none."""
    draft: Path | None = None
    """File of what was typed and not sent; None keeps nothing."""
    copies_saved: bool = True
    """True if drafts may copy from the replies of saved chats."""
    settings_file: Path | None = None
    """The user's config.toml."""
    remember: Callable[[str, str | bool], None] | None = None
    """Saves a setting by key and value for the next start; raises an exception with a sentence where it cannot."""
    store: Store = field(default_factory=Store)
    """The store of chats."""
    chat: str = ""
    """The key of the chat to open first; empty for a new one."""
    named: bool = False
    """True if the command line names `pair`, which answers in `chat` whatever did before."""
    keymap: Mapping[str, str] = field(default_factory=dict)
    """Keys by action id that replace the action's own, with commas between; "" for none."""
    models: "Callable[[], ModelPlaces] | None" = None
    """Tells where models are and come from; None leaves downloads to the engine."""
    used: UsedPairs | None = None
    """The store of loaded pairs."""
    again: bool = False
    """True if `pair` is the one that was chosen last."""
    add: "Callable[[Named, Named | None], DeclaredPair] | None" = None
    """Writes a pair of a target and a draft into the user's models.toml; raises an EngineError where it cannot be."""
    servers: ToolServers | None = None
    """The servers whose tools chats may use."""
    uses_tools: bool = False
    """True if new chats use tools."""
    tools_file: Path | None = None
    """The file that names the servers."""
    tuning: TuningPlaces | None = None
    """The folders and commands of tunes; None tunes nothing."""
    live: LiveFiles | None = None
    warnings: tuple[str, ...] = ()
    """Sentences to show once the window is up, such as a theme file that could not be read."""
