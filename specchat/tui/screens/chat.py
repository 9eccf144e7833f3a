"""The chat itself: transcript, gauges and prompt."""

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import TextArea

from specchat.attachments import Attachment
from specchat.tui.actions.action import Where
from specchat.tui.actions.keys import Keys
from specchat.tui.actions.table import ACTIONS, BY_ID
from specchat.tui.composing.completer import Completer
from specchat.tui.composing.composer import Composer
from specchat.tui.composing.suggestions import suggestion
from specchat.tui.engine_events import UpdateKind
from specchat.tui.gauges import gauges
from specchat.tui.history import PromptHistory
from specchat.tui.launch import Catalog
from specchat.tui.screens.chats import Chats
from specchat.tui.screens.choosing import Choosing
from specchat.tui.screens.feed import Feed
from specchat.tui.screens.interrupting import Interrupting
from specchat.tui.screens.notice import Notice
from specchat.tui.screens.queue import Queue
from specchat.tui.screens.reading import Reading
from specchat.tui.session import Session
from specchat.tui.status import header_sides, loading_words, status_sides
from specchat.tui.widgets.completions import Completions
from specchat.tui.widgets.find_bar import FindBar
from specchat.tui.widgets.panel import EngineLine, EnginePanel
from specchat.tui.widgets.plain import Plain
from specchat.tui.widgets.prompt import Prompt
from specchat.tui.widgets.rows import Hints, Inspector, Legend, TwoSided
from specchat.tui.widgets.sidebar import Sidebar
from specchat.tui.widgets.step_strip import StepStrip
from specchat.tui.widgets.transcript import Transcript
from specchat.tui.widgets.welcome import Welcome

_COLUMN = 70
"""Cells that the chat must have beside the engine panel; with fewer the panel is folded into one row."""
_COUNT_AFTER = 0.25
"""Seconds without typing after which the prompt's tokens are counted."""


class ChatScreen(Screen[None]):
    """Draws the session."""

    BINDINGS: ClassVar[list[BindingType]] = [
        action.binding() for action in ACTIONS if action.run and action.keys and action.where == "anywhere"
    ]
    AUTO_FOCUS = "Prompt"
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (40, "-narrow"), (100, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (12, "-low"), (18, "-tall")]  # noqa: RUF012

    def __init__(self, session: Session, catalog: Catalog, history: PromptHistory, keys: Keys) -> None:
        super().__init__()
        self.themes = session.launch.themes
        self.keys = keys
        self.session: Session = session
        self.catalog: Catalog = catalog
        self.reading: Reading = Reading(self)
        self.chats: Chats = Chats(self)
        self.choosing: Choosing = Choosing(self)
        self.feed: Feed = Feed(self)
        self.interrupting = Interrupting(self)
        self.queue = Queue(self)
        self.history = history
        self._composer = Composer(self)
        self._completer = Completer(self)
        self._resumed = False
        self._notice = Notice(self)
        self._panel_hidden = False
        self._counter: Timer | None = None

    def compose(self) -> ComposeResult:
        yield TwoSided(id="header")
        with Horizontal(id="body"):
            yield Sidebar(self.session.launch.store)
            with Vertical(id="column"):
                with Vertical(id="main"):
                    yield Welcome()
                    with Vertical(id="reading"):
                        with Horizontal(id="text"):
                            yield Transcript(self.session.conversation)
                            yield StepStrip()
                        yield FindBar()
                        yield Legend()
                        yield Inspector()
                with Vertical(id="below"):
                    yield EngineLine()
                    yield Completions()
                    yield TwoSided(id="status")
                    with Horizontal(id="entry"):
                        yield Plain("❯", id="arrow")
                        yield Prompt(self.history)
            yield EnginePanel()
        yield Hints(self.keys)
        yield Plain("specchat needs a window of at least 40 x 12 cells", id="too-small")

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        if not self._resumed:  # all was styled as it was mounted, just before
            event.refresh_styles, self._resumed = False, True

    def on_mount(self) -> None:
        self.prompt.placeholder = Content("ask something")
        self.prompt.takes_key = self._takes_key
        self.feed.start()
        self.watch(self.transcript, "scroll_y", lambda _: self.draw_steps(), init=False)
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

    @property
    def place(self) -> Where:
        """Where the focus is."""
        if self.sidebar.has_focus_within:
            return "chats"
        return "transcript" if self.transcript.has_focus else "prompt"

    # Drawing

    def redraw(self) -> None:
        """Everything at once, after something other than a step happened."""
        empty = not self.session.conversation.turns
        welcome, reading = self.query_one(Welcome), self.query_one("#reading")
        welcome.display, reading.display = empty, not empty  # a class here would style every widget anew
        self.draw_text()
        self.draw_gauges()
        self.draw_rows()
        self.reading.count()

    def draw_text(self) -> None:
        """The chat, and in the token view its steps and what is known of the token under the cursor."""
        self.transcript.sync()
        self.draw_steps()
        self.reading.show_token()

    def draw_steps(self) -> None:
        if self.transcript.token_view:
            self.query_one(StepStrip).show(self.transcript.stretch())

    def draw_gauges(self) -> None:
        """The engine panel, or its one row; neither before something was asked."""
        session, total = self.session, self.session.ledger.total
        saved_ms = total.saved_ms if total.compared_ms else None
        shown = gauges(session.last_reply, session.loaded.info, session.diagnosis, saved_ms)
        panel, line = self.query_one(EnginePanel), self.query_one(EngineLine)
        asked = bool(session.conversation.turns)
        listed = Sidebar.OUTER if self.has_class("-chats") else 0
        beside = self.size.width - listed - EnginePanel.OUTER >= _COLUMN
        covered = self.has_class("-chats") and not self.has_class("-wide")
        wanted = asked and not self._panel_hidden
        panel.display, line.display = wanted and beside, wanted and not beside and not covered
        (panel if beside else line).show_gauges(shown)

    def draw_rows(self) -> None:
        """Header and status, and what an empty chat shows."""
        session = self.session
        self.query_one("#header", TwoSided).show_sides(*header_sides(session))
        notice = self._notice
        message, warning = ("", notice.text) if notice.bad else (notice.text, "")
        composed = self._composer.composed
        sides = status_sides(session, self.prompt.text, message, warning, composed)
        self.query_one("#status", TwoSided).show_sides(*sides, whole=bool(notice.text))
        welcome = self.query_one(Welcome)
        if welcome.display:
            loaded = session.loaded
            told = loaded.error or loading_words(loaded.loading)
            fallback = session.launch.fallback
            built_in = fallback is not None and loaded.id == fallback.spec.id
            welcome.show_pair(loaded.info, loaded.name, told, built_in=built_in)
        self.draw_hints()

    def draw_hints(self) -> None:
        """The keys that do something now: first those of where the focus is."""
        searching = self.place == "chats" and not self.sidebar.list.has_focus
        here = "prompt" if searching else self.place
        applying = [action for action in ACTIONS if action.where in (here, "anywhere") and action.applies(self)]
        self.query_one(Hints).show_actions(sorted(applying, key=lambda action: action.where == "anywhere"))

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw_gauges)
        self.call_after_refresh(self.draw_steps)
        self.call_after_refresh(self.chats.uncover)
        if self.focused is None:
            self.set_focus(self.prompt)

    def say(self, message: str, *, bad: bool = False, until: UpdateKind | None = None) -> None:
        """Show a sentence in the status row for a while, at most until an update of kind `until`."""
        self.reading.message_gone()
        self._notice.show(message, bad=bad, until=until)
        self.draw_rows()

    def refuse(self, refusal: str) -> None:
        """Say why nothing is asked of the model now."""
        self.say(refusal, bad=True, until="ended" if self.session.running is not None else None)

    def happened(self, kind: UpdateKind) -> None:
        """What the status row tells may be over."""
        self._notice.happened(kind)

    # The prompt

    @on(Prompt.Sent)
    async def _sent(self, event: Prompt.Sent) -> None:
        if event.text.strip() and event.text == self.prompt.prompt:  # not of a second enter that came with the first
            await self._composer.enter(event.text)

    def send(self, text: str, attachments: tuple[Attachment, ...]) -> None:
        """Ask for a reply, now or once the one before has ended; what cannot be sent stays in the prompt."""
        if self.session.running is not None and self.session.chat.editing is None:
            self.queue.add(text, attachments)
            return
        if refusal := self.session.send(text, attachments):
            self.refuse(refusal)
            return
        self.prompt.take(text)
        self.sent()

    def sent(self) -> None:
        """A reply was asked for."""
        self.say(self.session.warning, bad=True)
        self.redraw()
        self.chats.redraw()
        self.feed.expect()

    def _takes_key(self, key: str) -> bool:
        """Whether a key typed in the prompt means something else: in the list of choices or in an empty chat."""
        if self._completer.key(key):
            return True
        words = suggestion(key, self.prompt.text) if self.query_one(Welcome).display else ""
        if words:
            self.prompt.fill(words)
        return bool(words)

    @on(Prompt.Refused)
    def _paste_refused(self, event: Prompt.Refused) -> None:
        self.say(event.reason, bad=True)

    @on(Prompt.Paged)
    def _paged(self, event: Prompt.Paged) -> None:
        transcript = self.transcript
        transcript.scroll_relative(y=event.direction * max(transcript.size.height - 2, 1), animate=False)

    @on(TextArea.Changed)
    def _typed(self) -> None:
        self.chats.load_wanted()
        self._completer.typed()
        self.draw_rows()
        self.count_soon()

    @on(TextArea.SelectionChanged)
    def _cursor_moved(self) -> None:
        self._completer.typed()

    @on(Completions.Picked)
    def _picked(self, event: Completions.Picked) -> None:
        self._completer.take(event.choice)

    def on_descendant_blur(self) -> None:
        self._completer.close()

    def on_descendant_focus(self) -> None:
        self.chats.uncover()
        self.draw_hints()

    def count_soon(self) -> None:
        """Count the prompt's tokens once nothing changed for a moment."""
        if self._counter is not None:
            self._counter.stop()
        self._counter = self.set_timer(_COUNT_AFTER, self._count)

    def _count(self) -> None:
        self.run_worker(self._composer.count(), group="count", exclusive=True, exit_on_error=False)

    # Actions

    async def action_do(self, action: str) -> None:
        await self.do(action)

    async def do(self, action: str, argument: str = "") -> None:
        """Run one of the actions."""
        run = BY_ID[action].run
        if run is not None and (waiting := run(self, argument)) is not None:
            await waiting

    def stop(self) -> None:
        """End the innermost thing there is to end; the reply last."""
        if self._completer.close() or (self.sidebar.has_focus_within and self.chats.leave()):
            return
        if self.reading.leave() or self.chats.stop_editing():
            return
        if self.session.reply is not None:
            self.stop_reply()
            return
        self.clear_selection()
        self.say(self.session.give_up_loading(), until="loaded")
        self.feed.expect()

    def stop_reply(self) -> None:
        """Stop the reply that runs here; asked again, by restarting the engine."""
        again = self.session.stopping
        self.session.stop()
        if again:
            self.say("restarting the engine", until="loaded")
        else:
            self.say("/continue goes on with the reply")
        self.queue.look()
        self.redraw()
        self.chats.redraw()
        self.feed.expect()

    @on(Sidebar.Chosen)
    def _chat_chosen(self, event: Sidebar.Chosen) -> None:
        self.chats.open(event.key, event.message)

    def toggle_panel(self) -> None:
        self._panel_hidden = not self._panel_hidden
        self.draw_gauges()

    def toggle_token_view(self) -> None:
        token_view = not self.transcript.token_view
        self.set_class(token_view, "-tokens")
        self.transcript.show(self.session.conversation, token_view=token_view)
        self.reading.show_token()
        self.call_after_refresh(self.draw_steps)
        self.say("token view: ctrl+t goes back" if token_view else "")

    def copy_reply(self, *, reasoning: bool = False) -> None:
        reply = self.session.last_reply
        self.reading.copy_reply(reply.text if reply else "", reasoning=reasoning)

    @on(Transcript.CopyAsked)
    def _copy_code(self, event: Transcript.CopyAsked) -> None:
        self.reading.copy(event.text, "code")

    @on(Transcript.LinkAsked)
    def _show_link(self, event: Transcript.LinkAsked) -> None:
        self.reading.link(event.url)

    @on(Transcript.TokensAsked)
    def _show_tokens(self, event: Transcript.TokensAsked) -> None:
        self.reading.look_into_tokens(event.row)

    @on(Transcript.CursorMoved)
    def _row_moved(self) -> None:
        self.reading.cursor_moved()
        self.draw_steps()
        self.draw_hints()

    @on(StepStrip.Clicked)
    def _step_clicked(self, event: StepStrip.Clicked) -> None:
        self.set_focus(self.transcript)
        self.transcript.go_to_step(event.reply, event.step)

    @on(FindBar.Changed)
    def _look_for(self, event: FindBar.Changed) -> None:
        self.reading.look_for(event.query)

    @on(FindBar.Stepped)
    def _step(self, event: FindBar.Stepped) -> None:
        self.reading.step(event.direction)

    @on(FindBar.Accepted)
    def _found(self) -> None:
        self.reading.accept()
