"""The window of a chat: its widgets, and how the session is drawn in them."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.geometry import Size
from textual.screen import Screen

from specchat.config.catalog import Catalog
from specchat.config.errors import ConfigError
from specchat.config.saved_prompts import filled
from specchat.service.dispatch import UpdateKind
from specchat.tui.action import Action, When, Where
from specchat.tui.history import PromptHistory
from specchat.tui.keys import Keys
from specchat.tui.notice import Notice
from specchat.tui.session import AppSession
from specchat.tui.status import header_sides, status_sides
from specchat.tui.widgets.completions import Completions
from specchat.tui.widgets.panel import EngineLine, EnginePanel
from specchat.tui.widgets.plain import Plain
from specchat.tui.widgets.prompt import Prompt
from specchat.tui.widgets.reader import Reader
from specchat.tui.widgets.rows import Hints, TwoSided
from specchat.tui.widgets.sidebar import Sidebar
from specchat.tui.widgets.transcript import Transcript
from specchat.tui.widgets.welcome import Welcome

_HIDDEN = Path(__file__).with_name("hidden.tcss")
_COLUMN = 70
"""Cells that the chat must have beside the engine panel; with fewer the panel is folded into one row."""


class ChatWindow(Screen[None]):
    """Draws the session. What can be done in it is for those who use it."""

    AUTO_FOCUS = "Prompt"
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (40, "-narrow"), (100, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (12, "-lowest"), (15, "-low"), (18, "-tall")]  # noqa: RUF012

    def __init__(self, session: AppSession, catalog: Catalog, history: PromptHistory, keys: Keys, size: Size) -> None:
        # All widgets would be styled anew for the classes of the window's size if these came with its first event.
        wide = self._get_breakpoint_classes(size.width, self.HORIZONTAL_BREAKPOINTS)
        tall = self._get_breakpoint_classes(size.height, self.VERTICAL_BREAKPOINTS)
        super().__init__(classes=" ".join(wide | tall))
        self.session = session
        self.catalog = catalog
        self.history = history
        self.keys = keys
        self.themes = session.launch.config.themes
        self.files = ""
        """The files that the prompt names, in words."""
        self.notice = Notice(self, self.draw_rows)
        self.prompt = Prompt(history)
        self.completions = Completions()
        self.reading = Reader(session.conversation, self.notice, self.prompt, keys)
        self.sidebar = Sidebar(session.launch.store)
        self.status_row = TwoSided(id="status", most=4)
        self.welcome = Welcome(keys)
        self._header_row = TwoSided(id="header")
        self._panel = EnginePanel(keys)
        self._engine_line = EngineLine(keys)
        self._hints = Hints(keys)
        self._panel_hidden = False
        self._resumed = False

    def compose(self) -> ComposeResult:
        """The widgets that an empty chat shows; `complete` adds the others."""
        yield self._header_row
        with Horizontal(id="body"), Vertical(id="column"):
            with Vertical(id="main"):
                yield self.welcome
            with Vertical(id="below"):
                yield self.status_row
                with Horizontal(id="entry"):
                    yield Plain("❯", id="arrow")
                    yield self.prompt
        yield self._hints
        yield Plain("specchat needs a window of at least 40 x 12 cells", id="too-small")

    async def complete(self) -> None:
        """Add what is hidden at first, once the first frame is drawn."""
        self.app.stylesheet.add_source(_HIDDEN.read_text(encoding="utf-8"), (str(_HIDDEN), ""))
        body = self.query_one("#body")
        await body.mount(self.sidebar, before=0)
        await body.mount(self._panel)
        await self.query_one("#main").mount(self.reading)
        await self.query_one("#below").mount(self._engine_line, self.completions, before=0)

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        if not self._resumed:  # all was styled as it was mounted, just before
            event.refresh_styles, self._resumed = False, True

    @property
    def transcript(self) -> Transcript:
        return self.reading.transcript

    @property
    def place(self) -> Where:
        """The part of the window that has the focus."""
        if self.sidebar.has_focus_within:
            return "chats"
        return "transcript" if self.transcript.has_focus else "prompt"

    @property
    def commands(self) -> Mapping[str, Action[Any]]:
        """Actions by what is written after a slash; the user's saved prompts are among them."""
        help = "Put your saved prompt into the box."
        saved: dict[str, Action[Any]] = {
            name: Action(f"saved-{name}", name, help, partial(_fill_in, name=name), slash=name, argument="first blank")
            for name in self.session.launch.config.prompts.names()
        }
        return saved | self.keys.by_slash

    @property
    def choosing(self) -> bool:
        """True if enter takes what is marked in the list above the prompt; never without such a list."""
        return False

    @property
    def lists_chats(self) -> bool:
        """True if the list of chats is shown."""
        return self.has_class("-chats")

    @property
    def built_in(self) -> bool:
        """True if the pair is the one that comes with specchat."""
        fallback = self.session.launch.service.fallback
        return fallback is not None and self.session.loaded.id == fallback.spec.id

    # Drawing

    def redraw(self) -> None:
        """Everything at once, after something other than a step happened."""
        empty = not self.session.conversation.turns
        self.welcome.display, self.reading.display = empty, not empty  # a class would style every widget anew
        self.reading.sync()
        self.draw_gauges()
        self.draw_rows()
        self.reading.count()

    def draw_gauges(self) -> None:
        """The engine panel, or its one row; neither before something was asked."""
        session, panel, line = self.session, self._panel, self._engine_line
        if self._panel_hidden or not session.conversation.turns:
            panel.display = line.display = False
            return
        from specchat.insight.gauges import gauges  # the app starts sooner without

        total = session.ledger.total
        saved_ms = total.saved_ms if total.times is not None else None
        info = None if session.wanted else session.loaded.info
        shown = gauges(session.last_reply, info, session.diagnosis, saved_ms, session.gpu.use)
        listed = Sidebar.outer(self.size.width) if self.lists_chats else 0
        beside = self.size.width - listed - EnginePanel.OUTER >= _COLUMN
        covered = self.lists_chats and not self.has_class("-wide")
        panel.display, line.display = beside, not beside and not covered
        (panel if beside else line).show_gauges(shown)

    def toggle_panel(self) -> None:
        self._panel_hidden = not self._panel_hidden
        self.draw_gauges()

    def draw_rows(self) -> None:
        """Header and status, and what an empty chat shows."""
        session, notice = self.session, self.notice
        self._header_row.show_sides(*header_sides(session))
        message, warning = ("", notice.text) if notice.bad else (notice.text, "")
        sides = status_sides(session, self.keys, self.prompt.text, message, warning, self.files, self.choosing)
        self.status_row.show_sides(*sides, whole=bool(notice.text))
        if self.welcome.display:
            loaded = session.loaded
            again = session.launch.again and loaded.id == session.launch.pair.id
            self.welcome.show_pair(loaded.info, loaded.name, loaded.error, built_in=self.built_in, again=again)
        self.draw_hints()

    def draw_hints(self) -> None:
        """The keys that do something now: first those of where the focus is."""
        searching = self.place == "chats" and not self.sidebar.list.has_focus
        here = "prompt" if searching else self.place
        self._hints.show_for(here, self._facts(here))

    def _facts(self, here: Where) -> frozenset[When]:
        """The conditions of hints that hold now."""
        session, transcript = self.session, self.transcript
        reply, read = session.last_reply, here == "transcript"
        facts: dict[When, bool] = {
            "always": True,
            "begun": bool(session.conversation.turns),
            "below": session.reply is not None and not transcript.following,
            "typed": bool(self.prompt.text),
            "stoppable": session.at_work or session.chat.editing is not None,
            "editing": session.chat.editing is not None,
            "answered": reply is not None and not session.at_work,
            "recorded": reply is not None and bool(reply.steps),
            "on code": read and (line := transcript.line) is not None and line.code is not None,
            "on fold": read and transcript.on_fold,
            "on versions": read and transcript.on_versions,
            "in tokens": read and transcript.token_view,
        }
        return frozenset(fact for fact, holds in facts.items() if holds)

    def draw_chats(self) -> None:
        """List the chats anew, where they are shown."""
        if self.lists_chats:
            session = self.session
            answered = [running.chat.key for running in session.replies.all]
            calling = [calls.chat.key for calls in session.calls.all]
            self.sidebar.reload(session.conversation, [*answered, *calling])

    # What is said

    def say(self, message: str, *, bad: bool = False, until: UpdateKind | None = None) -> None:
        """Show a sentence in the status row for a while, at most until an update of kind `until`."""
        self.notice.say(message, bad=bad, until=until)

    def give_back(self, command: str, sentence: str) -> None:
        """Say what is wrong with a command and put it back into the box."""
        self.prompt.restore(command)
        self.say(sentence, bad=True)

    def refuse(self, refusal: str) -> None:
        """Say why the model cannot be asked now, and the key that helps."""
        session, way = self.session, ""
        if session.at_work:
            way = f" · {self.keys.named('stop')} stops it"
        elif session.loaded.info is None and session.loaded.loading is None:
            way = f" · {self.keys.named('models')} chooses one"
        self.say(refusal + way, bad=True, until="ended" if session.at_work else None)


def _fill_in(window: ChatWindow, argument: str, name: str) -> None:
    """Put a saved prompt into the box; an argument goes into its first blank, or after it."""
    try:
        window.prompt.fill_in(filled(window.session.launch.config.prompts.read(name), argument))
    except ConfigError as error:
        window.say(error.message, bad=True)
