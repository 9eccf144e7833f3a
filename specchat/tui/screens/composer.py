"""The way of a prompt: a command is read, a text is sent with the files it names; their sizes beforehand."""

import asyncio

from textual.timer import Timer

from specchat import figures
from specchat.attachments.files import Attachment, AttachmentError, with_attachments
from specchat.attachments.mentions import Attacher, carried, unattached
from specchat.attachments.passages import fitted
from specchat.tui.composing import slash
from specchat.tui.pastes import FOLD_ABOVE
from specchat.tui.screens.feed import Feed
from specchat.tui.screens.queue import Queue
from specchat.tui.screens.window import ChatWindow

_COUNT_AFTER = 0.25
"""Seconds without typing after which the prompt is kept in a file and its tokens are counted."""
_LOOK_S = 0.02
"""Seconds between looks whether the tokens are counted."""


class Composer:
    """Reads the prompt. Files are looked at in a thread."""

    def __init__(self, window: ChatWindow, feed: Feed, queue: Queue) -> None:
        self._window = window
        self._feed = feed
        self._queue = queue
        self._attacher = Attacher()
        self._counter: Timer | None = None

    async def enter(self, prompt: str) -> slash.Command | None:
        """Send `prompt`, or give the command it is; where neither can be, it is said and the prompt stays."""
        window = self._window
        parsed = slash.parse(prompt, window.commands)
        if isinstance(parsed, slash.Mistake):
            window.say(parsed.sentence, bad=True)
        elif isinstance(parsed, slash.Command):
            window.prompt.take()
            window.say("")
            return parsed
        else:
            try:
                attachments = await self._attachments()
            except AttachmentError as error:
                window.say(f"{error.message} Your text is kept.", bad=True)
                return None
            if window.prompt.prompt == prompt:  # nothing was typed while files were read
                self._send_counted(parsed, attachments)
        return None

    def _send_counted(self, text: str, attachments: tuple[Attachment, ...]) -> None:
        """Send what was entered; a long one once its tokens are counted, so that it is refused before it is taken."""
        window, content = self._window, with_attachments(text, attachments)
        known = window.session.prompt_count.known(content)
        if len(content) <= FOLD_ABOVE or known or not window.session.count(content):
            self._send(text, attachments)
            return
        window.say("counting tokens")
        waiting = self._once_counted(window.prompt.prompt, text, attachments)
        window.run_worker(waiting, group="send", exclusive=True, exit_on_error=False)

    async def _once_counted(self, prompt: str, text: str, attachments: tuple[Attachment, ...]) -> None:
        window = self._window
        while window.session.prompt_count.waiting:
            await asyncio.sleep(_LOOK_S)
        window.say("")
        if window.prompt.prompt == prompt:
            self._send(text, attachments)

    def _send(self, text: str, attachments: tuple[Attachment, ...]) -> None:
        """Ask for a reply, now or once the one before has ended; what cannot be sent stays in the prompt."""
        session = self._window.session
        if session.at_work and session.chat.editing is None:
            self._queue.add(text, attachments)
            return
        if refusal := session.send(text, attachments):
            self._window.refuse(refusal)
            return
        unattached_files = unattached(self._window.prompt.text) if "@" in text else ""
        self._window.prompt.take(text)
        self._feed.asked()
        if unattached_files:
            self._window.say(unattached_files)

    def count_soon(self) -> None:
        """Keep the prompt and count its tokens once nothing changed for a moment."""
        if self._counter is not None:
            self._counter.stop()
        self._counter = self._window.set_timer(_COUNT_AFTER, self._begin_count)

    def _begin_count(self) -> None:
        self._queue.keep()
        self._window.run_worker(self._count(), group="count", exclusive=True, exit_on_error=False)

    async def _count(self) -> None:
        """Ask the engine how many tokens the prompt has, and look how large its files are."""
        window = self._window
        prompt = window.prompt.prompt
        parsed = slash.parse(prompt, window.commands)
        if not prompt.strip() or not isinstance(parsed, str):
            window.files = ""
            return
        try:
            attachments = await self._attachments()
        except AttachmentError as error:
            attachments, window.files = (), "a file cannot be attached"
            window.say(error.message, bad=True)
        else:
            window.files = _words(attachments, len(self._attacher.secrets))
        if window.prompt.prompt == prompt:
            window.session.count(with_attachments(parsed, attachments))
            window.draw_rows()

    async def _attachments(self) -> tuple[Attachment, ...]:
        typed = self._window.prompt.text  # not what is folded: nobody sees the files that a long paste names
        read = await asyncio.to_thread(self._read, typed) if "@" in typed else ()
        edited = self._window.session.chat.editing
        return read if edited is None else (*read, *carried(edited.prompt, edited.attachments, typed, read))

    def _read(self, typed: str) -> tuple[Attachment, ...]:
        return fitted(typed, self._attacher.attachments(typed), self._window.session.room_for_files)


def _words(attachments: tuple[Attachment, ...], secrets: int) -> str:
    """`2 files, 14 kB, 1 by passages that fit, 1 picture, 1 secret left out`; empty without any."""
    texts = [attachment.text for attachment in attachments if attachment.picture is None]
    pictures = len(attachments) - len(texts)
    words = [f"{len(texts)} file{'s' * (len(texts) > 1)}, {figures.text_size(texts)}"] if texts else []
    if cut := sum(attachment.whole > 0 for attachment in attachments):
        words.append(f"{cut} by passages that fit")
    if pictures:
        words.append(f"{pictures} picture{'s' * (pictures > 1)}")
    if secrets:
        words.append(f"{secrets} secret{'s' * (secrets > 1)} left out")
    return ", ".join(words)
