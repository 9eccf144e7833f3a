"""Prompts that are entered while a reply is written: sent one by one as replies end, given back when one does not."""

from specchat.attachments import Attachment
from specchat.chat.tree import Conversation
from specchat.tui.draft import QueuedPrompt, UnsentText
from specchat.tui.screens.feed import Feed
from specchat.tui.screens.window import ChatWindow


class Queue:
    """Waiting prompts of one chat, given back when that is left."""

    def __init__(self, window: ChatWindow, feed: Feed) -> None:
        self._window = window
        self._feed = feed
        self._of: Conversation | None = None

    def add(self, text: str, attachments: tuple[Attachment, ...]) -> None:
        """Take what is in the box, to be sent when the reply has ended."""
        window = self._window
        self._of = window.session.conversation
        window.session.waiting.append(QueuedPrompt(text, attachments, window.prompt.draft))
        window.prompt.take(text)
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
            if reply is None or reply.state == "failed" or reply.reason == "cancelled":
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
        self._feed.asked()

    def give_back(self) -> None:
        """Put what waits into the box, before what is there."""
        self._window.prompt.put_back(self.all())
        self._window.prompt.aside = UnsentText()
        self._window.session.waiting.clear()
        self._window.draw_rows()

    def all(self) -> UnsentText:
        """The waiting prompts, what was set aside, and the box in one: the pastes numbered anew."""
        texts: list[str] = []
        pastes: dict[int, str] = {}
        prompt = self._window.prompt
        for draft in (*(waiting.draft for waiting in self._window.session.waiting), prompt.aside, prompt.draft):
            text = draft.text
            for number in sorted(draft.pastes, reverse=True):
                text = text.replace(f"[paste {number}:", f"[paste {number + len(pastes)}:")
            pastes |= {number + len(pastes): pasted for number, pasted in draft.pastes.items()}
            texts += [text] if text.strip() else []
        return UnsentText("\n\n".join(texts), pastes)
