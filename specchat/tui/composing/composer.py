"""The way of a prompt: a command is run, a text is sent with the files it names; their sizes beforehand."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specchat.attachments import Attachment, AttachmentError, with_attachments
from specchat.tui import figures
from specchat.tui.actions.table import BY_SLASH
from specchat.tui.composing import slash
from specchat.tui.composing.mentions import Attacher
from specchat.tui.pastes import FOLD_ABOVE

if TYPE_CHECKING:
    from specchat.tui.screens.chat import ChatScreen


_LOOK_S = 0.02
"""Seconds between looks whether the tokens are counted."""


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
        """The facts known of the prompt now."""
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
                self._send(parsed, attachments)

    def _send(self, text: str, attachments: tuple[Attachment, ...]) -> None:
        """Send what was entered; a long one once its tokens are counted, so that it is refused before it is taken."""
        chat, content = self._chat, with_attachments(text, attachments)
        known = chat.session.prompt_count.known(content)
        if len(content) <= FOLD_ABOVE or known or not chat.session.count(content):
            chat.send(text, attachments)
            return
        chat.say("counting tokens")
        chat.feed.expect()
        waiting = self._once_counted(chat.prompt.prompt, text, attachments)
        chat.run_worker(waiting, group="send", exclusive=True, exit_on_error=False)

    async def _once_counted(self, prompt: str, text: str, attachments: tuple[Attachment, ...]) -> None:
        chat = self._chat
        while chat.session.prompt_count.waiting:
            await asyncio.sleep(_LOOK_S)
        chat.say("")
        if chat.prompt.prompt == prompt:
            chat.send(text, attachments)

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
    size = figures.text_size([attachment.text for attachment in attachments])
    return f"{len(attachments)} file{'s' * (len(attachments) > 1)}, {size}"
