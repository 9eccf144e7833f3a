"""The chat itself: transcript, gauges and prompt."""

import os
from time import monotonic, thread_time
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import TextArea

from specchat.chat.tree import Turn
from specchat.clean import one_line
from specchat.tui.actions.table import ACTIONS, BY_ID
from specchat.tui.clipboard import copy_natively
from specchat.tui.gauges import gauges
from specchat.tui.history import PromptHistory
from specchat.tui.launch import Catalog, Pair
from specchat.tui.session import Session, Update
from specchat.tui.status import header_sides, loading_words, status_sides
from specchat.tui.text.markdown import is_web_link
from specchat.tui.widgets.panel import EngineLine, EnginePanel
from specchat.tui.widgets.plain import Plain
from specchat.tui.widgets.prompt import Prompt
from specchat.tui.widgets.rows import Hints, Legend, TwoSided
from specchat.tui.widgets.sidebar import Sidebar
from specchat.tui.widgets.transcript import Transcript
from specchat.tui.widgets.welcome import Welcome

_POLL_HZ = 30
_TEXT_HZ = 15
_GAUGES_HZ = 5
_SHARE = min(0.03 * (os.cpu_count() or 1), 0.2)
"""Of one processor core, spent on drawing a running reply: the engine may need all the others."""
_SLOWEST = 0.25
"""Seconds between draws when that share would ask for more."""
_IDLE_CHECK = 1.0
"""Seconds between looks at an idle engine."""
_COUNT_AFTER = 0.25
"""Seconds without typing after which the prompt's tokens are counted."""
_MESSAGE_FOR = 6.0
"""Seconds a message stays in the status row."""


class ChatScreen(Screen[None]):
    """Draws the session. Its timer runs only while events are to be expected."""

    BINDINGS: ClassVar[list[BindingType]] = [
        action.binding() for action in ACTIONS if action.run and action.keys and action.where == "anywhere"
    ]
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (40, "-narrow"), (100, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (12, "-low"), (18, "-tall")]  # noqa: RUF012

    def __init__(self, session: Session, catalog: Catalog, history: PromptHistory) -> None:
        super().__init__()
        self.session = session
        self._catalog = catalog
        self._history = history
        self._message = ""
        self._message_bad = False
        self._text_at = self._gauges_at = self._worked = 0.0
        self._undrawn = False
        self._unsaved = ""
        self._poller: Timer | None = None
        self._counter: Timer | None = None
        self._silencer: Timer | None = None

    def compose(self) -> ComposeResult:
        yield TwoSided(id="header")
        with Horizontal(id="body"):
            yield Sidebar(self.session.launch.store)
            with Vertical(id="main"):
                yield Welcome()
                yield Transcript(self.session.conversation)
                yield Legend()
            yield EnginePanel()
        yield EngineLine()
        yield TwoSided(id="status")
        with Horizontal(id="entry"):
            yield Plain("❯", id="arrow")
            yield Prompt(self._history)
        yield Hints()
        yield Plain("specchat needs a window of at least 40 x 12 cells", id="too-small")

    def on_mount(self) -> None:
        self.prompt.placeholder = Content("ask something")
        self.prompt.focus()
        self._poller = self.set_interval(1 / _POLL_HZ, self._poll, pause=True)
        self.set_interval(_IDLE_CHECK, self._check)
        self.redraw()

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def sidebar(self) -> Sidebar:
        return self.query_one(Sidebar)

    @property
    def prompt(self) -> Prompt:
        return self.query_one(Prompt)

    # Drawing

    def redraw(self) -> None:
        """Everything at once, after something other than a step happened."""
        self.set_class(not self.session.conversation.turns, "-empty")
        self.transcript.sync()
        self._draw_gauges()
        self._draw_rows()

    def _draw_gauges(self) -> None:
        shown = gauges(self.session.last_reply, self.session.info)
        narrow = not self.has_class("-wide")
        (self.query_one(EngineLine) if narrow else self.query_one(EnginePanel)).show_gauges(shown)

    def _draw_rows(self) -> None:
        session = self.session
        self.query_one("#header", TwoSided).show_sides(*header_sides(session))
        message = self._message if not self._message_bad else ""
        warning = self._message if self._message_bad else ""
        self.query_one("#status", TwoSided).show_sides(*status_sides(session, self.prompt.text, message, warning))
        if self.has_class("-empty"):
            name = session.pair.spec.name if session.pair else ""
            self.query_one(Welcome).show_pair(session.info, name, session.load_error or loading_words(session.loading))

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw_gauges)
        if self.focused is None:
            self.prompt.focus()

    def say(self, message: str, *, bad: bool = False) -> None:
        """Show a sentence in the status row for a while."""
        self._message, self._message_bad = one_line(message, 400), bad
        if self._silencer is not None:
            self._silencer.stop()
        self._silencer = self.set_timer(_MESSAGE_FOR, self._silence) if message else None
        self._draw_rows()

    def _silence(self) -> None:
        self.say("")

    # Events

    def watch_engine(self) -> None:
        """Expect events: called after every request."""
        if self._poller is not None and self.session.busy:
            self._poller.resume()

    def _poll(self) -> None:
        self._handle(self.session.poll())
        if not self.session.busy and self._poller is not None:
            self._poller.pause()

    def _check(self) -> None:
        if not self.session.busy:
            self._handle(self.session.check())
        if self._unsaved != (problem := self.session.chat.saving.problem):
            self._unsaved = problem
            self._draw_rows()

    def _handle(self, updates: list[Update]) -> None:
        if not updates:
            if self._undrawn:
                self._draw_steps()
            return
        if all(update.kind == "reply" for update in updates):
            self._draw_steps()
            return
        for update in updates:
            if update.prompt:
                self.prompt.restore(update.prompt)
            if update.message:
                self.say(update.message, bad=update.kind != "loaded")
            if update.kind in ("ended", "loaded"):
                self._count_soon()
            if update.kind == "ended":
                self.redraw_chats()
        self.redraw()
        self.watch_engine()

    def _draw_steps(self) -> None:
        """Draw what steps brought, at a rate that leaves the processor to the engine."""
        now, worked = monotonic(), thread_time()
        waited = now - self._text_at
        tired = worked - self._worked > _SHARE * waited and waited < _SLOWEST
        self._undrawn = tired or waited < 1 / _TEXT_HZ
        if self._undrawn:
            return
        self._text_at, self._worked = now, worked
        self.transcript.sync()
        if now - self._gauges_at >= 1 / _GAUGES_HZ:
            self._gauges_at = now
            self._draw_gauges()

    # The prompt

    @on(Prompt.Sent)
    def _sent(self, event: Prompt.Sent) -> None:
        if not event.text.strip():
            return
        if refusal := self.session.send(event.text):
            self.say(refusal, bad=True)
            return
        self.prompt.take()
        self.say(self.session.warning, bad=True)
        self.redraw()
        self.redraw_chats()
        self.watch_engine()

    @on(Prompt.Refused)
    def _paste_refused(self, event: Prompt.Refused) -> None:
        self.say(event.reason, bad=True)

    @on(Prompt.Paged)
    def _paged(self, event: Prompt.Paged) -> None:
        transcript = self.transcript
        transcript.scroll_relative(y=event.direction * max(transcript.size.height - 2, 1), animate=False)

    @on(TextArea.Changed)
    def _typed(self) -> None:
        self._draw_rows()
        self._count_soon()

    def _count_soon(self) -> None:
        if self._counter is not None:
            self._counter.stop()
        self._counter = self.set_timer(_COUNT_AFTER, self._count)

    def _count(self) -> None:
        if self.prompt.text.strip() and self.session.count(self.prompt.prompt):
            self.watch_engine()

    # Actions

    async def action_do(self, action: str) -> None:
        await self.do(action)

    async def do(self, action: str, argument: str = "") -> None:
        """Run one of the actions."""
        run = BY_ID[action].run
        if run is not None and (waiting := run(self, argument)) is not None:
            await waiting

    def stop(self) -> None:
        if self.sidebar.has_focus_within:
            self.leave_chats()
            return
        if self.session.chat.editing is not None:
            self.session.chat.editing = None
            self.prompt.load_text("")
            self.say("not edited")
            return
        if self.session.reply is None:
            self.clear_selection()
            self.say("")
            return
        again = self.session.stopping
        self.session.stop()
        self.say("restarting the engine" if again else "stopping; esc again restarts the engine")
        self.redraw()
        self.watch_engine()

    def new_chat(self) -> None:
        self.session.new_chat()
        self.show_conversation()
        self.prompt.focus()
        self.redraw_chats()

    def show_conversation(self) -> None:
        """Draw another chat, or another branch of it."""
        self.transcript.show(self.session.conversation)
        self.say("")
        self.redraw()
        self.watch_engine()

    def edit(self, turn: Turn | None = None) -> None:
        """Put an earlier prompt into the box; sending it makes a branch."""
        turn = turn or self.session.conversation.last
        if turn is None:
            self.say("there is no prompt to edit yet", bad=True)
            return
        self.session.chat.editing = turn
        self.prompt.fill(turn.prompt)
        self.prompt.focus()
        self._draw_rows()

    # Chats

    def toggle_chats(self) -> None:
        if self.has_class("-chats"):
            self.leave_chats()
            return
        self._show_chats()
        self.sidebar.to_list()

    def search_chats(self) -> None:
        self._show_chats()
        self.sidebar.to_search()

    def _show_chats(self) -> None:
        self.add_class("-chats")
        self.sidebar.disabled = False
        self.redraw_chats()

    def leave_chats(self) -> None:
        """Hide the list; the prompt has the focus again."""
        self.remove_class("-chats")
        self.sidebar.disabled = True
        self.prompt.focus()

    def redraw_chats(self) -> None:
        """List the chats anew, where they are shown."""
        if self.has_class("-chats"):
            self.sidebar.reload(self.session.conversation.key)

    @on(Sidebar.Chosen)
    def _chat_chosen(self, event: Sidebar.Chosen) -> None:
        self.open_chat(event.key, event.message)

    def open_chat(self, key: str, message: str | None = None) -> None:
        """Show a saved chat, at `message` if one is given."""
        if refusal := self.session.open_chat(key):
            self.say(refusal, bad=True)
            return
        if message is not None and (found := self.session.conversation.find(message)) is not None:
            self.session.conversation.show(found)
        self.show_conversation()
        if self.has_class("-wide"):
            self.redraw_chats()
            self.prompt.focus()
        else:
            self.leave_chats()

    def regenerate(self) -> None:
        if refusal := self.session.regenerate():
            self.say(refusal, bad=True)
            return
        self.redraw()
        self.watch_engine()

    def toggle_token_view(self) -> None:
        token_view = not self.transcript.token_view
        self.set_class(token_view, "-tokens")
        self.transcript.show(self.session.conversation, token_view=token_view)
        self.say("token view: ctrl+t goes back" if token_view else "")

    def copy_reply(self) -> None:
        reply = self.session.last_reply
        if reply is None or not reply.text:
            self.say("there is no reply to copy yet", bad=True)
            return
        self.copy(reply.text, "reply")

    @on(Transcript.CopyAsked)
    def _copy_code(self, event: Transcript.CopyAsked) -> None:
        self.copy(event.text, "code")

    def copy(self, text: str, what: str) -> None:
        """Put `text` into the terminal's and this machine's clipboard."""
        self.app.copy_to_clipboard(text)
        self.run_worker(lambda: copy_natively(text), thread=True, exit_on_error=False)
        self.say(f"{what} copied: {len(text):,} characters")

    @on(Transcript.LinkAsked)
    def _open_link(self, event: Transcript.LinkAsked) -> None:
        if is_web_link(event.url):
            self.say(f"opening {event.url}")
            self.app.open_url(event.url)

    def open_settings(self) -> None:
        from specchat.tui.screens.settings import SettingsScreen

        self.app.push_screen(SettingsScreen(self.session), lambda _: self.redraw())

    def open_pairs(self) -> None:
        from specchat.tui.screens.pairs import PairsScreen

        self.app.push_screen(PairsScreen(self.session, self._catalog), self._pair_chosen)

    def _pair_chosen(self, chosen: Pair | None) -> None:
        if chosen is not None:
            self.choose_pair(chosen)

    def choose_pair(self, pair: Pair) -> None:
        """Load another pair; the chat stays. One that cannot run here says why and changes nothing."""
        if pair.unsupported:
            self.say(f"{one_line(pair.spec.name, 40)} cannot be loaded: {pair.unsupported}", bad=True)
            return
        self.session.load(pair)
        self.redraw()
        self.watch_engine()

    def choose_strategy(self, name: str) -> None:
        """Draft differently from the next step on."""
        if refusal := self.session.choose_strategy(name):
            self.say(refusal, bad=True)
        self.redraw()

    def open_help(self) -> None:
        from specchat.tui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen())
