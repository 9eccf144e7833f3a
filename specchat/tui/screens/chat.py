"""The chat screen: input from keyboard and mouse, actions, and events of the engine."""

from collections.abc import Sequence
from typing import Any

from textual import events, on
from textual.binding import BindingsMap
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widgets import TextArea

from specchat.clean import one_line
from specchat.config.catalog import Catalog
from specchat.engine.protocol.events import AwaitingClient
from specchat.service.dispatch import Update, UpdateKind
from specchat.tui.action import Action, Where
from specchat.tui.composing.slash import Command
from specchat.tui.composing.suggestions import SUGGESTIONS, suggestion_after
from specchat.tui.demo_keys import corrected
from specchat.tui.history import PromptHistory
from specchat.tui.keys import Keys
from specchat.tui.screens.chats import Chats
from specchat.tui.screens.completer import Completer
from specchat.tui.screens.composer import Composer
from specchat.tui.screens.feed import Feed
from specchat.tui.screens.permissions import Permissions
from specchat.tui.screens.queue import Queue
from specchat.tui.screens.window import ChatWindow
from specchat.tui.session import AppSession
from specchat.tui.widgets.completions import Completions
from specchat.tui.widgets.prompt import Prompt
from specchat.tui.widgets.rows import Hints
from specchat.tui.widgets.sidebar import Sidebar
from specchat.tui.widgets.transcript import Transcript
from specchat.tui.widgets.welcome import Welcome


class ChatScreen(ChatWindow):
    """Chats with the session. Its keys are those of all actions, in each place those that work there."""

    class Unseen(Message):
        """Something has ended while the terminal is not looked at; `words` say what."""

        def __init__(self, words: str) -> None:
            super().__init__()
            self.words = words

    def __init__(self, session: AppSession, catalog: Catalog, history: PromptHistory, keys: Keys, size: Size) -> None:
        super().__init__(session, catalog, history, keys, size)
        self._bindings = BindingsMap.merge([self._bindings, BindingsMap(keys.bindings())])
        self.feed = Feed(self, self._took)
        self.queue = Queue(self, self.feed)
        self.composer = Composer(self, self.feed, self.queue)
        self.chats = Chats(self, self.queue, self.composer)
        self.permissions = Permissions(self)
        self._completer = Completer(
            self.prompt, self.completions, lambda: self.commands, self._values, lambda: self.status_row.region.y
        )

    def on_mount(self) -> None:
        self.prompt.placeholder = Content("ask something")
        self.prompt.takes_key = self._completed
        self.prompt.follows = lambda typed: suggestion_after(typed) if self.welcome.display else ""
        self.watch(self.transcript, "scroll_y", lambda _: self.call_next(self.draw_hints), init=False)
        self.feed.start()
        self.redraw()

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw_gauges)
        self.call_after_refresh(self.reading.draw_steps)
        self.call_after_refresh(self.chats.uncover)
        if self.focused is None:
            self.set_focus(self.prompt)

    def _took(self, updates: list[Update]) -> None:
        """Handle the engine's updates other than steps alone."""
        for update in updates:
            if update.prompt:
                self.prompt.restore(update.prompt)
            self.notice.happened(update.kind)
            if message := self.session.words(update):
                until: UpdateKind | None = "loaded" if update.kind == "loading" else None
                until = "reply" if isinstance(update.event, AwaitingClient) else until
                self.say(message, bad=update.kind not in ("loaded", "answered", "called", "notice"), until=until)
            elif update.kind == "ended" and self.built_in and (reply := self.session.last_reply) is not None:
                self.say(corrected(reply.text, self.keys))
            if update.kind in ("ended", "answered", "loaded"):
                self.composer.count_soon()
                self.chats.load_wanted()
            if update.kind in ("ended", "answered", "called"):
                self.draw_chats()
            self._tell_outside(update)
        self.session.make_way()
        self.queue.look()
        self.redraw()

    def _tell_outside(self, update: Update) -> None:
        """Have the terminal say that a reply has ended, or asks for a call, to someone who looks elsewhere."""
        calling = self.session.calling
        asks = update.kind == "called" and calling is not None and calling.asked is not None
        if self.app.app_focus or not (asks or update.kind in ("ended", "answered")):
            return
        title = f"“{one_line(self.session.conversation.title, 40)}”"
        words = update.message or (f"{title} asks for a call of a tool" if asks else f"{title} is answered")
        self.post_message(self.Unseen(words))

    def redraw(self) -> None:
        super().redraw()
        self.permissions.look()

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        super().on_screen_resume(event)
        self.permissions.look()

    # The prompt

    @on(Prompt.Sent)
    async def _sent(self, event: Prompt.Sent) -> None:
        if event.text.strip() and (command := await self._entered(event.text)) is not None:
            await self._run(command.action, command.argument)

    async def _entered(self, text: str) -> Command | None:
        """Send what was entered once the chat's own pair is there, or give the command it is."""
        if not text.startswith("/") and not await self.chats.own_pair():
            return None
        return await self.composer.enter(text)

    @on(Welcome.Picked)
    def _suggestion_picked(self, event: Welcome.Picked) -> None:
        if not self.prompt.text or self.prompt.text in SUGGESTIONS:
            self.prompt.fill(event.words)
        self.set_focus(self.prompt)

    @on(Prompt.Refused)
    def _paste_refused(self, event: Prompt.Refused) -> None:
        self.say(event.reason, bad=True)

    @on(Prompt.Paged)
    def _paged(self, event: Prompt.Paged) -> None:
        transcript = self.transcript
        transcript.scroll_relative(y=event.direction * max(transcript.size.height - 2, 1), animate=False)

    @property
    def choosing(self) -> bool:
        return self._completer.chooses

    def _completed(self, key: str) -> bool:
        """True if the list above the prompt takes this key."""
        if taken := self._completer.key(key):
            self.draw_rows()
        return taken

    @on(TextArea.Changed)
    def _typed(self) -> None:
        self.chats.load_wanted()
        self._completer.typed()
        self.draw_rows()
        self.composer.count_soon()

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

    # Actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """True if a key's action is for where the focus is."""
        return action != "do" or self._takes(self.keys.by_id[str(parameters[0])].where)

    def _takes(self, where: Where) -> bool:
        if where == "anywhere":
            return True
        if where == "transcript" and self.transcript.labelled:  # letters choose among the labels
            return False
        places = {"prompt": self.prompt, "transcript": self.transcript, "chats": self.sidebar.list}
        return where in places and self.focused is places[where]

    @on(Hints.Picked)
    async def _hint_picked(self, event: Hints.Picked) -> None:
        await self.do(event.action)

    async def action_do(self, action: str) -> None:
        await self.do(action)

    async def do(self, action: str, argument: str = "") -> None:
        """Run one of the actions."""
        await self._run(self.keys.by_id[action], argument)

    async def _run(self, action: Action[Any], argument: str) -> None:
        if action.run is not None and (waiting := action.run(self, argument)) is not None:
            await waiting

    def complete_again(self) -> None:
        """Offer what fits the prompt, of which more is known."""
        self._completer.again()

    def _values(self, action: Action[Any]) -> Sequence[tuple[str, str]]:
        return action.values(self) if action.values is not None else ()

    def stop(self) -> None:
        """End the innermost thing there is to end; the reply last."""
        if self._completer.close():
            self.draw_rows()
            return
        if self.sidebar.has_focus_within and self.chats.leave():
            return
        if self.reading.leave() or self.chats.stop_editing():
            return
        if self.session.at_work:
            self.stop_reply()
            return
        self.clear_selection()
        self.say(self.session.give_up_loading(), until="loaded")

    def stop_reply(self) -> None:
        """Stop the reply that runs here; the second time, by restarting the engine."""
        again, calling = self.session.stopping, self.session.calling is not None
        self.session.stop()
        self.transcript.sync()
        if again:
            self.say("restarting the engine", until="loaded")
        elif calling or self.session.loaded.continues:
            self.say("/continue " + ("has the model answer without it" if calling else "goes on with the reply"))
        else:
            self.say("the reply is stopped")
        self.queue.look()
        self.redraw()
        self.draw_chats()

    @on(Sidebar.Chosen)
    def _chat_chosen(self, event: Sidebar.Chosen) -> None:
        self.chats.open(event.key, event.message)

    @on(Transcript.CursorMoved)
    def _row_moved(self) -> None:
        self.draw_hints()
