"""What becomes of the prompt: a command is run, a text is sent with the files it names; their sizes beforehand."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specchat.attachments import Attachment, AttachmentError, with_attachments
from specchat.tui.actions.table import BY_SLASH
from specchat.tui.composing import slash
from specchat.tui.composing.mentions import Attacher

if TYPE_CHECKING:
    from specchat.tui.screens.chat import ChatScreen


@dataclass(frozen=True)
class Composed:
    """The prompt as the status row tells it: whether it is a command, and the files in it."""

    command: bool = False
    files: str = ""


class Composer:
    """Reads the prompt. Files are looked at in a thread."""

    def __init__(self, chat: "ChatScreen") -> None:
        self._chat = chat
        self._attacher = Attacher()
        self._files = ""

    @property
    def composed(self) -> Composed:
        """What is known of the prompt now."""
        text = self._chat.prompt.text
        if text.startswith("/") and not isinstance(slash.parse(text, BY_SLASH), str):
            return Composed(command=True)
        return Composed(files=self._files if "@" in text else "")

    async def enter(self, prompt: str) -> None:
        """Do what `prompt` asks for; where that cannot be, it is said and the prompt stays."""
        chat = self._chat
        parsed = slash.parse(prompt, BY_SLASH)
        if isinstance(parsed, slash.Mistake):
            chat.say(parsed.sentence, bad=True)
        elif isinstance(parsed, slash.Command):
            chat.prompt.take()
            chat.say("")
            await chat.do(parsed.action.id, parsed.argument)
        else:
            try:
                attachments = await self._attachments()
            except AttachmentError as error:
                chat.say(f"{error.message} Your text is kept.", bad=True)
                return
            if chat.prompt.prompt == prompt:  # nothing was typed while files were read
                chat.send(parsed, attachments)

    async def count(self) -> None:
        """Ask the engine how many tokens the prompt has, and look how large its files are."""
        chat = self._chat
        prompt = chat.prompt.prompt
        parsed = slash.parse(prompt, BY_SLASH)
        if not prompt.strip() or not isinstance(parsed, str):
            self._files = ""
            return
        try:
            attachments = await self._attachments()
        except AttachmentError as error:
            attachments, self._files = (), "a file cannot be attached"
            chat.say(error.message, bad=True)
        else:
            self._files = _words(attachments)
        if chat.prompt.prompt == prompt:
            if chat.session.count(with_attachments(parsed, attachments)):
                chat.feed.expect()
            chat.draw_rows()

    async def _attachments(self) -> tuple[Attachment, ...]:
        typed = self._chat.prompt.text  # not what is folded: nobody sees the files that a long paste names
        return await asyncio.to_thread(self._attacher.attachments, typed) if "@" in typed else ()


def _words(attachments: tuple[Attachment, ...]) -> str:
    """`2 files, 14 kB`; empty without any."""
    if not attachments:
        return ""
    size = sum(len(attachment.text.encode(errors="replace")) for attachment in attachments)
    shown = f"{size} bytes" if size < 1000 else f"{size / 1e3:.0f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"
    return f"{len(attachments)} file{'s' * (len(attachments) > 1)}, {shown}"
