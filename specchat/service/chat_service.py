"""The chat service: requests of a client, and the updates that answer them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace

from specchat.attachments.files import Attachment, with_attachments
from specchat.chat.reasoning import without_marks
from specchat.chat.rows import INTERRUPTED
from specchat.chat.store import Store
from specchat.chat.turn import Reply, Turn
from specchat.config.catalog import Pair
from specchat.engine.protocol.events import Failed, Finished
from specchat.engine.protocol.options import NOTHING_WRITTEN, Beginning, Grammar, Written
from specchat.engine.protocol.port import EnginePort
from specchat.engine.protocol.requests import Count, Generate
from specchat.engine.protocol.stats import Stats
from specchat.service.calls import CallRound, Decision, PendingCall
from specchat.service.dispatch import Dispatch, Update
from specchat.service.listeners import Listener
from specchat.service.replies import Running
from specchat.service.saved_chats import SavedChats
from specchat.service.settings import ChatSettings, Preferences
from specchat.service.state import NO_OPTIONS, ServiceOptions, ServiceState

STEPS_S = 1 / 30
"""Seconds between updates of steps alone."""


class ChatService(ServiceState):
    """One engine, the chats of a store, one of which is open, and the replies that run in any of them.

    Requests that make no sense now are answered with a sentence. Call all methods from one thread.
    """

    def __init__(
        self, engine: EnginePort, store: Store, preferences: Preferences, options: ServiceOptions = NO_OPTIONS
    ) -> None:
        super().__init__(engine, store, preferences, options)
        self.warning = ""
        """The trouble with saving the last prompt, in a sentence."""
        self.chats = SavedChats(self)
        self._dispatch = Dispatch(self)

    @property
    def busy(self) -> bool:
        """True if events are to be expected."""
        return any((self.loaded.loading is not None, self.replies, self.listeners, self.calls))

    # The pair

    def load(self, pair: Pair, settings: ChatSettings | None = None, *, chosen: bool = False) -> None:
        """Load `pair`, stopping all replies; its defaults replace the settings that the user's preferences left open.

        Starts the engine where none runs. With `settings` the replies are made with these. A pair that the user has
        `chosen` is the next start's, once it is loaded.
        """
        for running in reversed(self.replies.all):
            self.replies.stop(running)
        for asking in self.calls.all:
            self._stop_calls(asking)
        if self.loaded.loading is not None:
            self._forget_requests()
        self.put_settings(settings or self.defaults(pair))
        self.put_pair(pair, chosen=chosen)
        self.loaded.load(pair)

    def give_up_loading(self) -> str:
        """Return to the pair before the one that is being loaded; what waits is asked of that. Gives a sentence."""
        back = self.loaded.give_up()
        if back is None:
            return ""
        self._forget_requests()
        self.take_back()
        return f"not loaded; going back to {self.loaded.name}"

    # Replies

    def refusal(self, content: str) -> str:
        """The reason why `content`, a prompt with its attachments, cannot be sent now; empty when it can."""
        if self.running is not None:
            return "a reply is running; your text is kept"
        if self.calling is not None:
            return "a tool is being called; your text is kept"
        if self.wanted and self.replies:
            return "this chat's pair is loaded when the other chats are answered; your text is kept"
        if self.wanted:
            return f"{self.wanted_name} answers in this chat, and is not loaded; your text is kept"
        if self.loaded.info is None and self.loaded.loading is None:
            return "no model is loaded; your text is kept"
        counted = self.prompt_count.counted
        if counted is not None and self.prompt_count.too_long(content):
            return (
                f"too long: {counted.tokens:,} tokens, the context holds {counted.context:,}; your text is kept"
                f"{self.way_out or '. Shorten it'}"
            )
        return ""

    def send(self, text: str, attachments: tuple[Attachment, ...] = (), grammar: Grammar | None = None) -> str:
        """Request a reply to `text`, in the place of the prompt that is edited if one is; returns a refusal.

        A `grammar` holds the reply's answer.
        """
        if refusal := self.refusal(with_attachments(text, attachments)) or self._unseen(attachments):
            return refusal
        turn, self.warning = self.chat.ask(text, attachments)
        self._answer(turn, grammar=grammar)
        return ""

    def _unseen(self, attachments: tuple[Attachment, ...]) -> str:
        """The reason why the pair cannot be sent these pictures; empty where it can."""
        info = self.loaded.info
        if info is None or info.sees or not any(one.picture for one in attachments):
            return ""
        return f"{info.name} reads no pictures: take them out, or choose another model; your text is kept"

    def regenerate(self, turn: Turn | None = None) -> str:
        """Request another reply to `turn`, or to the last prompt, with a new seed; returns a refusal."""
        turn = turn or self.conversation.last
        if turn is None:
            return "there is no reply to make again yet"
        if refusal := self.refusal(turn.content):
            return refusal
        self.prefill = self.next_prefill or (turn.reply.start.prefill if turn.reply else "")
        begun = turn.reply.start.begun if turn.reply and not self.prefill else NOTHING_WRITTEN
        self._answer(turn, begun=begun, fresh_seed=True)
        return ""

    def go_on(self) -> str:
        """Continue the last reply from its end, as another version of it, or with its calls; returns a refusal."""
        turn = self.conversation.last
        reply = turn.reply if turn is not None else None
        if turn is not None and turn.results and (reply is None or not reply.raw):
            if refusal := self.refusal(""):
                return refusal
            self._answer(turn)
            return ""
        if turn is None:
            return "there is no reply to continue yet"
        if reply is None or not (reply.raw or reply.tool_calls):
            return "the last prompt has no answer yet: /again asks for one"
        if reply.tool_calls and reply.ended:
            return self.refusal("") or self.begin_calls(Running(self.conversation, turn, reply, self.settings))
        if reply.ended and reply.state == "finished" and reply.end.reason == "stop":
            return "the last reply came to its end; write what you want next"
        if not self.loaded.continues:
            return "the server cannot go on with a reply: /again asks for another one"
        if refusal := self.refusal(turn.content):
            return refusal
        self._answer(turn, begun=without_marks(reply), seed=reply.seed)
        return ""

    def stop(self) -> str:
        """Stop the reply that runs here at its next step, or its calls; a second call restarts the engine."""
        if (asking := self.calling) is not None:
            self._stop_calls(asking)
            return ""
        running = self.running
        if running is None:
            return "nothing is running"
        if running.stopping:
            self._dispatch.fail_begun(Failed(None, "died", "stopped by restarting the engine"))
            self._forget_requests()
            self.loaded.restart()
            return "restarting the engine"
        self.replies.stop(running)
        return ""

    def _answer(
        self,
        turn: Turn,
        *,
        begun: Written = NOTHING_WRITTEN,
        fresh_seed: bool = False,
        seed: int | None = None,
        grammar: Grammar | None = None,
    ) -> None:
        settings = replace(self.settings, seed=None) if fresh_seed else self.settings
        reply = self._new_reply(settings, seed if settings.seed is None else None)
        reply.start, self.prefill = Beginning("" if begun.text else self.next_prefill, begun), ""
        self._add(Running(self.conversation, turn, reply, settings, grammar=grammar))

    def _new_reply(self, settings: ChatSettings, seed: int | None = None) -> Reply:
        return Reply(self.listeners.new_id(), self.loaded.name, settings.sampling_with(seed), settings.speculation)

    def _add(self, running: Running) -> None:
        self.replies.add(running)
        if self.loaded.info is not None:
            self.begin(running)

    # Calls of tools

    def decide(self, call: PendingCall, decision: Decision) -> None:
        """Take the user's answer to a call that the open chat's reply makes."""
        if (asking := self.calling) is not None:
            self.calls.decide(asking, call, decision)
            self.chat.saving.looked(self.conversation)

    def use_tools(self, on: bool, server: str = "") -> None:
        """Use tools in the open chat or not, or those of one server; what is turned off ends, what is on starts."""
        key = self.conversation.key
        before = self.tools.used(key)
        if server:
            self.tools.use_server(key, server, on)
        else:
            self.tools.use(key, on)
        self.chat.saving.looked(self.conversation)
        self.tools.ready(key)
        if not self.calls:
            for name in before.keys() - self.tools.used(key).keys():
                self.tools.servers.stop(name)

    def _return(self, ended: CallRound) -> Turn:
        """Add the results of calls to their chat."""
        turn = ended.chat.add(Turn("", parent=ended.reply, results=ended.in_order))
        if words := self.chat.saving.asked(ended.chat, turn):
            self.warning = words
        return turn

    def _stop_calls(self, asking: CallRound) -> None:
        """End calls. An empty reply keeps what they gave on the path."""
        self.calls.stop(asking)
        turn, reply = self._return(asking), self._new_reply(asking.settings)
        reply.finished(Finished(reply.id, "cancelled", "", (), Stats()))
        asking.chat.answer(turn, reply)
        self.chat.saving.ended(asking.chat, reply)

    def _called(self) -> list[Update]:
        """Go on with the chats whose calls have all results, and with replies whose tools are known by now."""
        ended = self.calls.take()
        for each in ended:
            settings = self.settings if each.chat is self.conversation else each.settings
            self._add(Running(each.chat, self._return(each), self._new_reply(settings), settings, each.number))
        prepared = [running for running in self.replies.all if running.reply.state == "preparing"]
        for running in prepared if self.loaded.info is not None else ():
            self.begin(running)
        begun = [running for running in prepared if running.reply.requested and running is self.running]
        problems = [word for running in begun for word in self.tools.problems(running.chat.key)]
        return [Update("called")] * bool(ended) + [Update("notice", problem) for problem in problems]

    # Requests besides the chats

    def request(self, request: Generate | Count, listener: Listener) -> None:
        """Send a request that is part of no chat, with an id of `listeners`; `listener` gets its events."""
        self.listeners.add(request.id, listener)
        self.engine.send(request)

    def count(self, content: str) -> bool:
        """Count the tokens of a prompt of `content` for `prompt_count`; False when that cannot be done now."""
        if self.loaded.info is None or self.replies or self.wanted:
            return False
        id = self.listeners.new_id()
        self.prompt_count.begin(id, content)
        editing = self.chat.editing
        messages = self.conversation.messages(editing and Turn(content, parent=editing.parent), content)
        tools = self.tools_for(self.conversation.key)
        template = self.loaded.arguments(self.settings.template)
        request = Count(id, messages, self.settings.limits, self.next_prefill, template, tools=tools)
        self.request(request, lambda event: self.prompt_count.end(id, event))
        return True

    def _forget_requests(self) -> None:
        """End the requests whose events are lost as the engine is started again."""
        self.listeners.fail(Failed(None, "died", "the engine was started again"))

    # Updates

    def poll(self) -> list[Update]:
        """The updates since the last call; never blocks."""
        return [*self._dispatch.poll(), *self._called()]

    def wait(self, seconds: float) -> list[Update]:
        """The next updates; none where nothing happens for `seconds`."""
        first = next(self.engine.events(seconds), None)
        return [] if first is None else self._dispatch.take([first, *self.engine.poll()])

    async def updates(self) -> AsyncIterator[list[Update]]:
        """The updates as they arrive; those of steps alone are gathered for STEPS_S."""
        loop, arrived, woken = asyncio.get_running_loop(), asyncio.Event(), False

        def wake(_: object = None) -> None:
            nonlocal woken
            if not woken:
                woken = True
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(arrived.set)

        self.engine.listen(wake)
        self.calls.arrived = self.tools.servers.changed = wake
        while True:
            arrived.clear()
            woken = False
            updates = self.poll()
            yield updates
            if updates and all(update.kind == "reply" for update in updates):
                await asyncio.sleep(STEPS_S)
            await arrived.wait()

    def close(self) -> None:
        """Save how the open chat is shown, and the text so far of the replies that run. Calls end without results."""
        self.calls.close()
        shown = self.running
        self.replies.interrupt(INTERRUPTED)
        if shown is not None:
            self.chat.saving.ended(shown.chat, shown.reply)  # dates it: this is the chat to go on with
        self.chat.saving.looked(self.conversation)
