"""Chats and branches on the chat screen: the list beside it, opening, leaving, editing, other versions."""

import asyncio

from specchat.chat.turn import Reply, Turn
from specchat.clean import one_line
from specchat.config.catalog import Pair
from specchat.config.errors import ConfigError, UnknownPair
from specchat.tui.screens.composer import Composer
from specchat.tui.screens.queue import Queue
from specchat.tui.screens.window import ChatWindow
from specchat.tui.text.chat_rows import Said


class Chats:
    """Shows another chat, or another branch of the one that is shown."""

    def __init__(self, window: ChatWindow, queue: Queue, composer: Composer) -> None:
        self._window = window
        self._sidebar = window.sidebar
        self._queue = queue
        self._composer = composer
        self._loading: asyncio.Future[bool] | None = None
        """Loads the pair of a reopened chat."""
        self._tried = ""
        """The pair of the open chat that was to be loaded already; once that failed, only sending tries it again."""

    # The list

    def toggle(self) -> None:
        """Show the list, or hide it."""
        if self._window.lists_chats:
            self.leave()
            return
        self._show()
        self._sidebar.to_list()

    def search(self, words: str = "") -> None:
        """Show the list with the search box in focus, and what is found for `words` if there are any."""
        self._show()
        self._sidebar.to_search(words)

    def leave(self) -> bool:
        """Hide the list; False when it was hidden. The prompt has the focus again."""
        if not self._window.lists_chats:
            return False
        self._hide()
        self._window.set_focus(self._window.prompt)
        return True

    def uncover(self) -> None:
        """Hide the list where it covers the chat and the focus is elsewhere."""
        window = self._window
        if window.lists_chats and not window.has_class("-wide") and not self._sidebar.has_focus_within:
            self._hide()

    def _hide(self) -> None:
        self._window.remove_class("-chats")
        self._sidebar.disabled = True
        self._sidebar.forget_search()
        self._window.draw_gauges()

    def _show(self) -> None:
        self._window.add_class("-chats")
        self._sidebar.disabled = False
        self._window.draw_gauges()
        self._window.draw_chats()

    # Chats

    def new(self) -> None:
        """Start an empty chat."""
        self.keep_place()
        self._window.reading.end_find()
        self._window.session.chats.new()
        self.show_conversation()
        self._window.set_focus(self._window.prompt)
        self._window.draw_chats()

    def delete(self, key: str) -> None:
        """Delete a saved chat; an empty one is shown where it is the open one."""
        window = self._window
        if key == window.session.conversation.key:
            window.reading.end_find()
            if not self._sidebar.has_focus_within:
                window.set_focus(window.prompt)
        window.session.chats.delete(key).wait(1)
        self.show_conversation()
        self._window.draw_chats()

    def open(self, key: str, message: str | None = None) -> None:
        """Show a saved chat, at `message` if one is given, else where it was left."""
        window = self._window
        self.keep_place()
        if refusal := window.session.chats.open(key):
            window.say(refusal, bad=True)
            return
        self._tried = ""
        window.reading.end_find()
        conversation = window.session.conversation
        found = conversation.find(message) if message is not None else None
        if found is not None and window.session.running is None:  # what is being written stays in view
            conversation.show(found)
        self.show_conversation()
        if found is None:
            window.transcript.read_on(window.session.chat.scroll)
        else:
            turn = found.turn if isinstance(found, Reply) else found
            if turn is not None:
                window.transcript.go_to_said(Said(turn, "you" if turn is found else "model"))
        if window.has_class("-wide"):
            self._window.draw_chats()
            window.set_focus(window.prompt)
        else:
            self.leave()

    def keep_place(self) -> None:
        """Remember where the open chat is being read."""
        self._window.session.chat.scroll = self._window.transcript.place_in_words()

    def show_conversation(self) -> None:
        """Draw another chat, or another branch of it."""
        self._queue.look()
        self._window.transcript.show(self._window.session.conversation)
        self._window.say("")
        self._window.redraw()
        self._composer.count_soon()

    def load_wanted(self) -> None:
        """Begin to load the pair of a reopened chat once something is written."""
        typed = self._window.prompt.text
        untried = self._waits and self._loading is None and self._tried != self._window.session.wanted
        if typed and not typed.startswith("/") and untried:
            self._window.run_worker(self.own_pair(), group="wanted", exit_on_error=False)

    @property
    def _waits(self) -> bool:
        """True if the open chat's own pair is not loaded and could be, as no reply runs."""
        session = self._window.session
        return bool(session.wanted) and not session.replies

    async def own_pair(self) -> bool:
        """Have the open chat's own pair loaded or being loaded; False if it cannot be, which was said."""
        if not self._waits:
            return True
        if self._loading is None:
            self._loading = asyncio.ensure_future(self._load())
            self._loading.add_done_callback(self._loaded)
        return await asyncio.shield(self._loading)

    def _loaded(self, loading: "asyncio.Future[bool]") -> None:
        self._loading = None

    async def _load(self) -> bool:
        window, session = self._window, self._window.session
        wanted, settings, chat = session.wanted, session.settings, session.conversation
        self._tried = wanted
        pair = await self._found(wanted)
        if session.conversation is not chat or not self._waits:
            return True
        if isinstance(pair, str):
            window.say(f"this chat's pair {session.wanted_name} is not loaded: {pair}", bad=True)
            return False
        session.load(pair, settings)
        window.say("")
        window.redraw()
        return True

    async def usable(self, name: str) -> Pair | None:
        """The pair of that name if it can be loaded, else None, which is said."""
        pair = await self._found(name)
        if isinstance(pair, Pair):
            return pair
        self._window.say(f"{one_line(name, 40)} cannot answer: {pair}", bad=True)
        return None

    async def _found(self, name: str) -> Pair | str:
        """The pair of that name, or why it cannot be loaded. The disk is read in a thread."""
        window, fetching = self._window, self._window.session.fetching
        models = window.keys.named("models")
        try:
            pair = await asyncio.to_thread(window.session.find, name, window.catalog)
            lacking = await asyncio.to_thread(fetching.lacks, pair)
        except ConfigError as error:
            unknown = isinstance(error, UnknownPair)
            reason = "no models.toml has it, nor this machine a model of that name" if unknown else error.message
            return f"{reason.removesuffix('.')}; {models} chooses another"
        return f"{lacking[0].label} is not here; {models} downloads it" if lacking else pair.unsupported or pair

    # Branches

    @property
    def turn(self) -> Turn | None:
        """The turn under the transcript's cursor while that has the focus, else the last one."""
        transcript = self._window.transcript
        said = transcript.said if transcript.has_focus else None
        return said.turn if said is not None else self._window.session.conversation.last

    def edit(self) -> None:
        """Put an earlier prompt into the box; sending it makes a branch."""
        turn = self.turn
        if turn is None:
            self._window.say("there is no prompt to edit yet", bad=True)
            return
        turn = turn.asked
        session, prompt = self._window.session, self._window.prompt
        if session.chat.editing is None:
            prompt.set_aside(turn.prompt)
        elif session.chat.editing is not turn or not prompt.text.strip():
            prompt.fill(turn.prompt)
        session.chat.editing = turn
        self._window.set_focus(prompt)
        self._window.draw_rows()

    def stop_editing(self) -> bool:
        """Leave the edited prompt as it was; False when none is edited."""
        if self._window.session.chat.editing is None:
            return False
        self._window.session.chat.editing = None
        self._window.prompt.bring_back()
        self._window.say("not edited")
        return True

    async def regenerate(self, turn: Turn | None, name: str = "") -> bool:
        """Another reply to the prompt of `turn`, by the pair `name` if one is given.

        False where that pair cannot be had, which is said.
        """
        session = self._window.session
        self._window.say("")
        if not name:
            if await self.own_pair():
                self._answered(session.regenerate(turn))
            return True
        pair = await self.usable(name)
        if pair is None:
            return False
        if turn is not None and not (session.replies or session.calls):
            session.load(pair)
        self._answered(session.regenerate(turn))
        return True

    async def go_on(self) -> None:
        """Continue the last reply."""
        self._window.say("")
        if await self.own_pair():
            self._answered(self._window.session.go_on())

    def _answered(self, refusal: str) -> None:
        """Show the reply that was requested as it is written, or why there is none."""
        if refusal:
            self._window.refuse(refusal)
            return
        self._window.redraw()
        self._window.transcript.follow()

    def show_version(self, step: int) -> None:
        """Show the version before (-1) or after (1); the cursor stays on the message it is of."""
        window, transcript = self._window, self._window.transcript
        said = transcript.said if transcript.has_focus else None
        turn = said.turn if said is not None else None
        of_prompt = said is not None and said.by == "you"
        if refusal := window.session.chats.show_branch(step, turn, of_prompt=of_prompt):
            window.refuse(refusal)
            return
        self.show_conversation()
        if said is not None and (shown := window.session.conversation.siblings(said.turn).shown) is not None:
            transcript.go_to_said(Said(shown, said.by), at_top=False)
