"""The session: what may be asked of the engine next, and the asking."""

from dataclasses import replace
from itertools import count

from specchat.attachments import Attachment, with_attachments
from specchat.chat.rows import INTERRUPTED
from specchat.chat.turn import Reply, Turn
from specchat.config.catalog import Pair
from specchat.engine.events import Failed
from specchat.engine.options import NOTHING_WRITTEN, Written
from specchat.engine.port import EnginePort
from specchat.engine.requests import Count
from specchat.tui.engine_events import EngineEvents, Update
from specchat.tui.launch import Launch
from specchat.tui.racing import Racing
from specchat.tui.session_chats import SessionChats
from specchat.tui.session_state import SessionState
from specchat.tui.settings import ChatSettings
from specchat.tui.text.reasoning import without_marks


class AppSession(SessionState):
    """One engine, one chat that is shown, and the replies that run in this one and others.

    Requests that make no sense now are answered with a sentence, not raised.
    """

    def __init__(self, engine: EnginePort, launch: Launch) -> None:
        super().__init__(engine, launch)
        self.warning = ""
        """The trouble with saving the last prompt, in a sentence."""
        self._ids = count(1)
        self.racing = Racing(self, self._ids)
        self.chats = SessionChats(self)
        self._events = EngineEvents(self, self.racing)

    @property
    def busy(self) -> bool:
        """Whether events are to be expected."""
        return self.loaded.loading is not None or bool(self.replies) or self.prompt_count.waiting or self.racing.running

    # The pair and the settings

    def load(self, pair: Pair, settings: ChatSettings | None = None) -> None:
        """Load `pair`, stopping all replies; its defaults replace the settings that the command line left open.

        Starts the engine where none runs. With `settings` the replies are made with these.
        """
        for running in reversed(self.replies.all):
            self.replies.stop(running)
        self.racing.end()
        self.put_settings(settings or self.defaults(pair))
        self.wanted = ""
        self.loaded.load(pair)

    def give_up_loading(self) -> str:
        """Go back to the pair before the one that is being loaded; what waits is asked of that. Gives a sentence."""
        back = self.loaded.give_up()
        if back is None:
            return ""
        self.take_back_settings()
        return f"not loaded; going back to {self.loaded.name}"

    # Replies

    def refusal(self, content: str) -> str:
        """Why `content`, a prompt with what is attached to it, cannot be sent now; empty when it can."""
        if self.running is not None:
            return "a reply is running: esc stops it; your text is kept"
        if self.racing.running:
            return "a race is running: esc ends it; your text is kept"
        if self.wanted and self.replies:
            return "this chat's pair is loaded when the other chats are answered; your text is kept"
        if self.loaded.info is None and self.loaded.loading is None:
            return "no model is loaded: F3 chooses one; your text is kept"
        counted = self.prompt_count.counted
        if counted is not None and self.prompt_count.too_long(content):
            return (
                f"too long: {counted.tokens:,} tokens, the context holds {counted.context:,}; your text is kept"
                f"{self.way_out or '. Shorten it'}"
            )
        return ""

    def send(self, text: str, attachments: tuple[Attachment, ...] = ()) -> str:
        """Ask for a reply to `text`, in the place of the prompt that is edited if one is; gives a refusal."""
        if refusal := self.refusal(with_attachments(text, attachments)):
            return refusal
        turn, self.warning = self.chat.ask(text, attachments)
        self._answer(turn)
        return ""

    def regenerate(self, turn: Turn | None = None) -> str:
        """Ask for another reply to `turn`, or to the last prompt, with a new seed."""
        turn = turn or self.conversation.last
        if turn is None:
            return "there is no reply to make again yet"
        if refusal := self.refusal(turn.content):
            return refusal
        self.prefill = self.next_prefill or (turn.reply.prefill if turn.reply else "")
        begun = turn.reply.begun if turn.reply and not self.prefill else NOTHING_WRITTEN
        self._answer(turn, begun=begun, fresh_seed=True)
        return ""

    def go_on(self) -> str:
        """Continue the last reply where it ended, as another version of it; gives a refusal."""
        turn = self.conversation.last
        reply = turn.reply if turn is not None else None
        if turn is None or reply is None or not reply.raw:
            return "there is no reply to continue yet"
        if reply.ended and reply.state == "finished" and reply.reason == "stop":
            return "the last reply came to its end; write what you want next"
        if refusal := self.refusal(turn.content):
            return refusal
        self._answer(turn, begun=without_marks(reply), seed=reply.seed)
        return ""

    def stop(self) -> str:
        """Stop the reply that runs here at its next step; asked twice, by restarting the engine."""
        running = self.running
        if running is None:
            return "nothing is running"
        if running.stopping:
            self._events.fail_begun(Failed(None, "died", "stopped by restarting the engine"))
            self.loaded.restart()
            return "restarting the engine"
        self.replies.stop(running)
        return ""

    def _answer(
        self, turn: Turn, *, begun: Written = NOTHING_WRITTEN, fresh_seed: bool = False, seed: int | None = None
    ) -> None:
        settings = replace(self.settings, seed=None) if fresh_seed else self.settings
        sampling = settings.sampling_with(seed if settings.seed is None else None)
        reply = Reply(next(self._ids), self.loaded.name, sampling, settings.speculation)
        reply.begun = begun
        reply.prefill, self.prefill = "" if begun.text else self.next_prefill, ""
        running = self.replies.add(self.conversation, turn, reply, settings.limits, settings.template)
        if self.loaded.info is not None:
            self.ask(running)

    # The end

    def close(self) -> None:
        """The app ends: save how the chat is shown, and what was written of the replies that run."""
        shown = self.running
        self.replies.interrupt(INTERRUPTED)
        if shown is not None:
            self.chat.saving.ended(shown.chat, shown.reply)  # dates it: this is the chat to go on with
        self.chat.saving.looked(self.conversation)

    # The prompt's length

    def count(self, content: str) -> bool:
        """Ask how many tokens a prompt of `content` would have; False when that cannot be asked now."""
        if self.loaded.info is None or self.replies or self.racing.running:
            return False
        request = next(self._ids)
        self.prompt_count.asked(request, content)
        messages = self.conversation.messages(prompt=content)
        self.engine.send(Count(request, messages, self.settings.limits, self.next_prefill, self.settings.template))
        return True

    # Events

    def poll(self) -> list[Update]:
        """The events since the last call."""
        return self._events.poll()

    def check(self) -> list[Update]:
        """Like `poll`, for now and then while idle: notices a worker that died."""
        return self._events.check()
