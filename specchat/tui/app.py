"""The app: puts session, screens and themes together."""

import asyncio
import gc
import os
import sys
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from rich.console import RenderableType
from textual import events, on
from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.driver import Driver
from textual.messages import InBandWindowResize
from textual.screen import Screen

from specchat.attention import codes
from specchat.clean import clean
from specchat.config.catalog import Catalog
from specchat.engine.protocol.port import EnginePort
from specchat.tui.actions.models import want_pair
from specchat.tui.actions.table import ACTIONS
from specchat.tui.actions.tuning import go_on
from specchat.tui.errands import Errands
from specchat.tui.history import PromptHistory
from specchat.tui.in_turn import InTurn
from specchat.tui.interrupting import Interrupting
from specchat.tui.key_parser import TerminalAnswer
from specchat.tui.keys import Keys
from specchat.tui.kitty import KittyGraphics, can_show
from specchat.tui.launch import Launch
from specchat.tui.live import watch
from specchat.tui.resting import RestingPictures, protocol_of
from specchat.tui.screens.chat import ChatScreen
from specchat.tui.session import AppSession
from specchat.tui.spots import spots_of, written
from specchat.tui.themes import DEFAULT_THEME, SPEC_DEFAULTS, shades, textual_theme
from specchat.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from specchat.tui.terminal import Ended  # it is for POSIX only


class SpecchatApp(App[None]):
    """Chat over an engine. A pair is loaded after the first frame; the engine is closed at the end."""

    TITLE = "specchat"
    CSS_PATH = ["screens/app.tcss", "screens/chat.tcss"]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = []
    ENABLE_COMMAND_PALETTE = False  # its key is one of the actions

    def __init__(self, engine: EnginePort, catalog: Catalog, launch: Launch) -> None:
        # Without colours of its own an app looks as in those of a terminal: Textual would send shades of grey.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.engine = engine
        self.launch = launch
        self.session = AppSession(engine, launch)
        self.keys = Keys(ACTIONS, launch.config.keymap)
        self.interrupting = Interrupting()
        self._in_turn = InTurn(self, super().on_event)
        self._catalog = catalog
        self._shown = False
        self._ended: int | None = None
        self._graphics = self._graphics_here()
        for theme in launch.config.themes:
            self.register_theme(textual_theme(theme))
        wanted = launch.config.theme or DEFAULT_THEME
        if wanted in self.available_themes:
            self.theme = wanted

    def get_driver_class(self) -> type[Driver]:
        if sys.platform == "win32":
            return super().get_driver_class()
        from specchat.tui.terminal import Terminal

        return Terminal

    def _graphics_here(self) -> KittyGraphics | RestingPictures | None:
        """Pictures by the terminal's means, as far as they are known; some only where the driver reads its answers."""
        colours = self.console.color_system
        if can_show(os.environ, colours):
            return KittyGraphics(self._write_codes, self.call_later)
        protocol = protocol_of(os.environ, colours)
        if protocol is None or sys.platform == "win32":
            return None
        from specchat.tui.terminal import cell_pixels

        spots, redraw = lambda: spots_of(self.chat.transcript), lambda: self.chat.transcript.refresh()
        return RestingPictures(protocol, self._write_frame, cell_pixels, spots, redraw)

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        super()._display(screen, renderable)
        if self._graphics is not None and self._shown:
            self._graphics.displayed(written(renderable))

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return SPEC_DEFAULTS

    def get_css_variables(self) -> dict[str, str]:
        variables = super().get_css_variables()
        return {**variables, **shades(variables)}

    def refresh_css(self, animate: bool = True) -> None:
        """Before there is a screen, take the theme's colours only: with it come more styles, and all are read then."""
        if self.screen_stack:
            super().refresh_css(animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())

    def get_default_screen(self) -> Screen[None]:
        return ChatScreen(self.session, self._catalog, PromptHistory(self.launch.history), self.keys, self.size)

    @property
    def chat(self) -> ChatScreen:
        """The chat screen, which is always there below the others."""
        screen = self.screen_stack[0]
        assert isinstance(screen, ChatScreen)
        return screen

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            await self._in_turn.add(event)
        elif self._in_turn.begun or not isinstance(event, events.MouseEvent):  # a click could be for what is not there
            await super().on_event(event)

    def on_load(self) -> None:
        asyncio.get_running_loop().set_default_executor(Errands())

    def on_resize(self, event: events.Resize) -> None:
        if self._graphics is not None:
            self._graphics.sized(event)

    @on(InBandWindowResize)
    @on(TerminalAnswer)
    def _terminal_answers(self, event: InBandWindowResize | TerminalAnswer) -> None:
        if self._graphics is not None:
            self._graphics.answered(event)

    def on_ready(self) -> None:
        self._shown = True
        if self._ended is not None:
            self._leave(self._ended)
        else:
            self.call_after_refresh(self._begin)

    async def _begin(self) -> None:
        """Go on from the first frame: with the rest of the window, then with what was typed so far."""
        await self.chat.complete()
        if (graphics := self._graphics) is not None:
            graphics.changed = partial(self.chat.transcript.draw_pictures_by, graphics)
            graphics.begin()
        self._start_engine()
        await self._in_turn.begin()

    def _start_engine(self) -> None:
        pair, fallback = self.launch.pair, self.launch.service.fallback
        ask = bool(fallback and self.session.fetching.lacks(pair))
        self.session.load(
            fallback if ask and fallback is not None else pair,
            chosen=self.launch.named and not ask,
        )
        if self.launch.chat:
            self.chat.chats.open(self.launch.chat)
            if self.launch.named:
                self.session.chat_pair = ""
        self.chat.redraw()
        self.chat.queue.take_left()
        self.run_worker(_warm_up, thread=True, exit_on_error=False)
        for warning in (*self.launch.config.warnings, *self.keys.problems):
            self.notify(clean(warning), severity="warning", markup=False)

        if self.launch.config.live is not None:
            watch(self.chat, self.launch.config.live)
        if ask:
            want_pair(self.chat, pair)
        go_on(self.chat)

    @on(Transcript.CopyAsked)
    def _copy_asked(self, event: Transcript.CopyAsked) -> None:
        self.copy_to_clipboard(event.text, event.what)

    def copy_to_clipboard(self, text: str, what: str = "selection") -> None:
        """Put `text` into the clipboard and say what became of it, `what` being its name."""
        self._clipboard = text  # what is pasted in the app, whatever becomes of it outside
        self.run_worker(partial(self._copy, text, what), thread=True, exit_on_error=False, group="clipboard")

    def _copy(self, text: str, what: str) -> None:
        from specchat.clipboard import copy

        outcome = copy(text, lambda codes: self.call_from_thread(self._write_codes, codes))
        self.call_from_thread(self.chat.say, f"{what} of {len(text):,} characters {outcome}")

    def _write_codes(self, codes: str) -> None:
        if self._driver is not None:
            self._driver.write(codes)

    def _write_frame(self, codes: str) -> None:
        self._begin_update()
        self._write_codes(codes)
        self._end_update()

    @on(ChatScreen.Unseen)
    def _tell(self, event: ChatScreen.Unseen) -> None:
        self._write_codes(codes(event.words, self.launch.config.notify))

    def action_help_quit(self) -> None:
        """The answer to ctrl+c where nothing is selected."""
        self.interrupting.press(self.chat)

    def action_suspend_process(self) -> None:
        """Leave the terminal to the shell until it brings the app back; undo in the prompt where it cannot."""
        if self._driver is not None and self._driver.can_suspend:
            super().action_suspend_process()
        else:
            self.chat.prompt.action_undo()

    @on(Driver.SignalResume)
    def _draw_again(self) -> None:
        """The shell has written over the window, and only changes would be drawn."""
        self.refresh(layout=True)

    async def action_quit(self) -> None:
        self._leave()

    def on_ended(self, event: "Ended") -> None:
        self._ended = event.code
        if self._shown:  # Textual cannot leave before the first frame
            self._leave(event.code)

    def _leave(self, code: int = 0) -> None:
        """Leave; what was written, and where the chat is being read, is found again."""
        self.chat.chats.keep_place()
        self.chat.queue.keep(leaving=True)
        self.session.close()
        if self._graphics is not None:
            self._graphics.close()
        self.exit(return_code=code)

    async def on_unmount(self) -> None:
        self.engine.close()
        await asyncio.to_thread(self.session.tools.servers.close)

    def action_command_palette(self) -> None:
        """Show the palette; without the id that Textual gives it, which one that is still closing has too."""
        from specchat.tui.screens.palette import Palette

        if not isinstance(self.screen, Palette):
            self.push_screen(Palette())

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        from specchat.tui.screens.palette import commands

        del screen
        yield from commands(self.chat)


_OF_REPLIES = (
    "specchat.chat.titles",
    "specchat.insight.diagnosis",
    "specchat.insight.gauges",
    "specchat.insight.gpu_use",
    "specchat.service.repetition",
    "specchat.tui.text.turn",
)
"""Modules that the first frame does without, and the first reply does not."""


def _warm_up() -> None:
    """Import what the first reply needs, while the model loads; then keep what is loaded out of garbage collections.

    Collecting is off until then where the command line turned it off.
    """
    for name in _OF_REPLIES:
        import_module(name)
    from specchat.tui.text.code import highlight
    from specchat.tui.text.markdown import parse

    highlight("", "python")
    parse("")
    gc.freeze()
    gc.enable()
