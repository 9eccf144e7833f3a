"""Chats and branches on the chat screen: the list beside it, opening, leaving, editing, other versions."""

from typing import TYPE_CHECKING

from specchat.chat.turn import Reply, Turn
from specchat.clean import one_line
from specchat.tui.text.chat_rows import Said

if TYPE_CHECKING:
    from specchat.tui.screens.chat import ChatScreen
    from specchat.tui.widgets.sidebar import Sidebar


class Chats:
    """Acts on the chat screen it belongs to."""

    def __init__(self, chat: "ChatScreen") -> None:
        self._chat = chat

    @property
    def _sidebar(self) -> "Sidebar":
        return self._chat.sidebar

    # The list

    def toggle(self) -> None:
        """Show the list, or hide it."""
        if self._chat.has_class("-chats"):
            self.leave()
            return
        self._show()
        self._sidebar.to_list()

    def search(self) -> None:
        """Show the list with the search box in focus."""
        self._show()
        self._sidebar.to_search()

    def leave(self) -> bool:
        """Hide the list; False when it was hidden. The prompt has the focus again."""
        if not self._chat.has_class("-chats"):
            return False
        self._hide()
        self._chat.set_focus(self._chat.prompt)
        return True

    def uncover(self) -> None:
        """Hide the list where it covers the chat and the focus is elsewhere."""
        chat = self._chat
        if chat.has_class("-chats") and not chat.has_class("-wide") and not self._sidebar.has_focus_within:
            self._hide()

    def _hide(self) -> None:
        self._chat.remove_class("-chats")
        self._sidebar.disabled = True
        self._sidebar.forget_search()
        self._chat.draw_gauges()

    def redraw(self) -> None:
        """List the chats anew, where they are shown."""
        if self._chat.has_class("-chats"):
            session = self._chat.session
            self._sidebar.reload(session.conversation, [running.chat.key for running in session.replies.all])

    def _show(self) -> None:
        self._chat.add_class("-chats")
        self._sidebar.disabled = False
        self._chat.draw_gauges()
        self.redraw()

    # Chats

    def new(self) -> None:
        """Start an empty chat."""
        self.keep_place()
        self._chat.reading.end_find()
        self._chat.session.chats.new()
        self.show_conversation()
        self._chat.set_focus(self._chat.prompt)
        self.redraw()

    def delete(self, key: str) -> None:
        """Delete a saved chat; an empty one is shown where it is the open one."""
        chat = self._chat
        if key == chat.session.conversation.key:
            chat.reading.end_find()
            if not self._sidebar.has_focus_within:
                chat.set_focus(chat.prompt)
        chat.session.chats.delete(key).wait(1)
        self.show_conversation()
        self.redraw()

    def open(self, key: str, message: str | None = None) -> None:
        """Show a saved chat, at `message` if one is given, else where it was left."""
        chat = self._chat
        self.keep_place()
        if refusal := chat.session.chats.open(key):
            chat.say(refusal, bad=True)
            return
        chat.reading.end_find()
        conversation = chat.session.conversation
        found = conversation.find(message) if message is not None else None
        if found is not None and chat.session.running is None:  # what is being written stays in view
            conversation.show(found)
        self.show_conversation()
        if found is None:
            chat.transcript.read_on(chat.session.chat.scroll)
        else:
            reply = isinstance(found, Reply)
            turn = found.turn if isinstance(found, Reply) else found
            if turn is not None:
                chat.transcript.go_to_said(Said(turn, "model" if reply else "you"))
        if chat.has_class("-wide"):
            self.redraw()
            chat.set_focus(chat.prompt)
        else:
            self.leave()

    def keep_place(self) -> None:
        """Remember where the open chat is being read."""
        self._chat.session.chat.scroll = self._chat.transcript.place_in_words()

    def show_conversation(self) -> None:
        """Draw another chat, or another branch of it."""
        self._chat.queue.look()
        self._chat.transcript.show(self._chat.session.conversation)
        self._chat.say("")
        self._chat.redraw()
        self._chat.count_soon()
        self._chat.feed.expect()

    def load_wanted(self) -> None:
        """Load the pair of a reopened chat, once something is written and no reply runs."""
        typed = self._chat.prompt.text
        if typed and not typed.startswith("/"):
            self._load_wanted()

    def _load_wanted(self) -> None:
        """Load the pair of a reopened chat, with the settings it had, where no reply runs."""
        chat = self._chat
        if not chat.session.wanted or chat.session.replies:
            return
        wanted, settings = chat.session.wanted, chat.session.settings
        chat.session.wanted = ""
        pair = next((pair for pair in chat.catalog.pairs if pair.spec.id == wanted), None)
        if pair is None or pair.unsupported:
            chat.session.settle()
            reason = pair.unsupported if pair else "it is not in models.toml any more"
            chat.say(f"this chat's pair {one_line(wanted, 40)} is not loaded: {reason}", bad=True)
            return
        chat.session.load(pair, settings)
        chat.say("")
        chat.redraw()
        chat.feed.expect()

    # Branches

    @property
    def _turn(self) -> Turn | None:
        """The turn under the transcript's cursor while that has the focus, else the last one."""
        transcript = self._chat.transcript
        said = transcript.said if transcript.has_focus else None
        return said.turn if said is not None else self._chat.session.conversation.last

    def edit(self) -> None:
        """Put an earlier prompt into the box; sending it makes a branch."""
        turn = self._turn
        if turn is None:
            self._chat.say("there is no prompt to edit yet", bad=True)
            return
        self._chat.session.chat.editing = turn
        self._chat.prompt.fill(turn.prompt)
        self._chat.set_focus(self._chat.prompt)
        self._chat.draw_rows()

    def stop_editing(self) -> bool:
        """Leave the edited prompt as it was; False when none is edited."""
        if self._chat.session.chat.editing is None:
            return False
        self._chat.session.chat.editing = None
        self._chat.prompt.load_text("")
        self._chat.say("not edited")
        return True

    def regenerate(self) -> None:
        """Another reply to the prompt under the cursor, or to the last one."""
        self._chat.say("")
        self._load_wanted()
        if refusal := self._chat.session.regenerate(self._turn):
            self._chat.refuse(refusal)
            return
        self._chat.redraw()
        self._chat.feed.expect()

    def go_on(self) -> None:
        """Continue the last reply."""
        self._chat.say("")
        self._load_wanted()
        if refusal := self._chat.session.go_on():
            self._chat.refuse(refusal)
            return
        self._chat.redraw()
        self._chat.feed.expect()

    def show_version(self, step: int) -> None:
        """Show the version before (-1) or after (1); the cursor stays on the message it is of."""
        chat, transcript = self._chat, self._chat.transcript
        said = transcript.said if transcript.has_focus else None
        turn = said.turn if said is not None else None
        of_prompt = said is not None and said.by == "you"
        if refusal := chat.session.chats.show_branch(step, turn, of_prompt=of_prompt):
            chat.say(refusal, bad=True)
            return
        self.show_conversation()
        if said is not None and (shown := chat.session.conversation.siblings(said.turn).shown) is not None:
            transcript.go_to_said(Said(shown, said.by), at_top=False)
