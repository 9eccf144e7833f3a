"""Prompts that are entered while a reply is written: sent one by one as replies end, given back when one does not."""

from typing import TYPE_CHECKING

from specchat.attachments import Attachment
from specchat.chat.tree import Conversation
from specchat.tui.draft import Draft, Waiting

if TYPE_CHECKING:
    from specchat.tui.screens.chat import ChatScreen


class Queue:
    """Acts on the chat screen it belongs to. What waits belongs to one chat and is given back when that is left."""

    def __init__(self, chat: "ChatScreen") -> None:
        self._chat = chat
        self._of: Conversation | None = None

    def add(self, text: str, attachments: tuple[Attachment, ...]) -> None:
        """Take what is in the box, to be sent when the reply has ended."""
        chat = self._chat
        self._of = chat.session.conversation
        chat.session.waiting.append(Waiting(text, attachments, chat.prompt.draft))
        chat.prompt.take(text)
        chat.draw_rows()

    def look(self) -> None:
        """Send the next one where the reply has ended well; give all back where it has not, or its chat was left."""
        session = self._chat.session
        if not session.waiting:
            return
        if session.conversation is not self._of:
            self.give_back()
        elif session.running is None:
            reply = session.last_reply
            if reply is None or reply.state == "failed" or reply.reason == "cancelled":
                self.give_back()
            else:
                self._send(session.waiting[0])

    def _send(self, first: Waiting) -> None:
        chat = self._chat
        if refusal := chat.session.send(first.text, first.attachments):
            self.give_back()
            chat.refuse(refusal)
            return
        chat.session.waiting.pop(0)
        chat.sent()

    def give_back(self) -> None:
        """Put what waits into the box, before what is there."""
        self._chat.prompt.put_back(self.all())
        self._chat.session.waiting.clear()
        self._chat.draw_rows()

    def all(self) -> Draft:
        """The waiting prompts and the box in one: the pastes numbered anew."""
        texts: list[str] = []
        pastes: dict[int, str] = {}
        for draft in (*(waiting.draft for waiting in self._chat.session.waiting), self._chat.prompt.draft):
            text = draft.text
            for number in sorted(draft.pastes, reverse=True):
                text = text.replace(f"[paste {number}:", f"[paste {number + len(pastes)}:")
            pastes |= {number + len(pastes): pasted for number, pasted in draft.pastes.items()}
            texts += [text] if text.strip() else []
        return Draft("\n\n".join(texts), pastes)
