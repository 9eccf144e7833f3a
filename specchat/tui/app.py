"""The app: puts session, screens and themes together."""

import gc
from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.screen import Screen

from specchat.clean import clean
from specchat.engine.port import EnginePort
from specchat.tui.actions.keys import Keys
from specchat.tui.clipboard import copy
from specchat.tui.commands import commands
from specchat.tui.history import PromptHistory
from specchat.tui.launch import Catalog, Launch
from specchat.tui.live import watch
from specchat.tui.screens.chat import ChatScreen
from specchat.tui.screens.palette import Palette
from specchat.tui.session import Session
from specchat.tui.text.code import highlight
from specchat.tui.text.markdown import parse
from specchat.tui.themes import DEFAULT_THEME, SPEC_DEFAULTS, textual_theme


class SpecchatApp(App[None]):
    """Chat over an engine. A pair is loaded after the first frame; the engine is closed at the end."""

    TITLE = "specchat"
    CSS_PATH = ["screens/app.tcss", "screens/chat.tcss"]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = []
    ENABLE_COMMAND_PALETTE = True

    def __init__(self, engine: EnginePort, catalog: Catalog, launch: Launch) -> None:
        super().__init__()
        self.engine = engine
        self.catalog = catalog
        self.launch = launch
        self.session = Session(engine, launch)
        self.keys = Keys(launch.keymap)
        self.set_keymap(self.keys.for_textual())
        for theme in launch.themes:
            self.register_theme(textual_theme(theme))
        wanted = launch.theme or DEFAULT_THEME
        if wanted in self.available_themes:
            self.theme = wanted

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return SPEC_DEFAULTS

    def get_default_screen(self) -> Screen[None]:
        return ChatScreen(self.session, self.catalog, PromptHistory(self.launch.history), self.keys)

    @property
    def chat(self) -> ChatScreen:
        """The chat screen, which is always there below the others."""
        screen = self.screen_stack[0]
        assert isinstance(screen, ChatScreen)
        return screen

    def on_ready(self) -> None:
        self.call_after_refresh(self._start_engine)

    def _start_engine(self) -> None:
        self.session.load(self.launch.pair)
        if self.launch.chat:
            self.chat.chats.open(self.launch.chat)
        self.chat.redraw()
        self.chat.feed.expect()
        self.run_worker(_warm_up, thread=True, exit_on_error=False)
        for warning in (*self.launch.warnings, *self.keys.problems):
            self.notify(clean(warning), severity="warning", markup=False)

        if self.launch.live is not None:
            watch(self, self.launch.live)

    def copy_to_clipboard(self, text: str, what: str = "selection") -> None:
        """Put `text` into the clipboard and say what became of it, `what` being its name."""
        self._clipboard = text  # what is pasted in the app, whatever becomes of it outside
        self.run_worker(partial(self._copy, text, what), thread=True, exit_on_error=False, group="clipboard")

    def _copy(self, text: str, what: str) -> None:
        outcome = copy(text, lambda codes: self.call_from_thread(self._write_codes, codes))
        self.call_from_thread(self.chat.say, f"{what} {outcome}: {len(text):,} characters")

    def _write_codes(self, codes: str) -> None:
        if self._driver is not None:
            self._driver.write(codes)

    async def action_quit(self) -> None:
        """Leave; what was written, and where the chat is being read, is found again."""
        self.chat.chats.keep_place()
        self.session.close()
        self.exit()

    def on_unmount(self) -> None:
        self.engine.close()

    def action_command_palette(self) -> None:
        """Show the palette; without the id that Textual gives it, which one that is still closing has too."""
        if not isinstance(self.screen, Palette):
            self.push_screen(Palette())

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        del screen
        yield from commands(self)


def _warm_up() -> None:
    """Import what the first reply needs, while the model loads; then keep what is loaded out of garbage collections."""
    highlight("", "python")
    parse("")
    gc.freeze()
