"""Prompts that are entered while a reply is written: sent one by one as replies end, given back when one does not.

With what is in the box they are kept in a file until they are sent.
"""

from specchat.attachments.files import Attachment
from specchat.chat.tree import Conversation
from specchat.tui.draft import QueuedPrompt, UnsentFile, UnsentText, joined
from specchat.tui.screens.feed import Feed
from specchat.tui.screens.window import ChatWindow


class Queue:
    """Waiting prompts of one chat, given back when that is left."""

    def __init__(self, window: ChatWindow, feed: Feed) -> None:
        self._window = window
        self._feed = feed
        self._of: Conversation | None = None
        self._file = UnsentFile(window.session.launch.unsent)

    def add(self, text: str, attachments: tuple[Attachment, ...]) -> None:
        """Take what is in the box, to be sent when the reply has ended."""
        window = self._window
        self._of = window.session.conversation
        window.session.waiting.append(QueuedPrompt(text, attachments, window.prompt.draft))
        window.prompt.take(text)
        self.keep()
        window.draw_rows()

    def look(self) -> None:
        """Send the next one where the reply has ended well; give all back where it has not, or its chat was left."""
        session = self._window.session
        if not session.waiting:
            return
        if session.conversation is not self._of:
            self.give_back()
        elif not session.at_work:
            reply = session.last_reply
            if reply is None or reply.state == "failed" or reply.end.reason == "cancelled":
                self.give_back()
            else:
                self._send(session.waiting[0])

    def _send(self, first: QueuedPrompt) -> None:
        session = self._window.session
        if refusal := session.send(first.text, first.attachments):
            self.give_back()
            self._window.refuse(refusal)
            return
        session.waiting.pop(0)
        self.keep()
        self._feed.asked()

    def give_back(self) -> None:
        """Put what waits into the box, before what is there."""
        self._window.prompt.put_back(self.all())
        self._window.prompt.aside = UnsentText()
        self._window.session.waiting.clear()
        self._window.draw_rows()

    def all(self) -> UnsentText:
        """The waiting prompts, what was set aside, and the box in one."""
        prompt = self._window.prompt
        return joined([*(waiting.draft for waiting in self._window.session.waiting), prompt.aside, prompt.draft])

    def keep(self, *, leaving: bool = False) -> None:
        """Keep what was not sent, for the next start."""
        self._file.keep(self.all(), leaving=leaving)

    def take_left(self) -> None:
        """Put what windows left into the empty box."""
        if not self._window.prompt.text:
            self._window.prompt.put_back(self._file.take_left())
