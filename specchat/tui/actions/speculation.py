"""Seeing what drafting does: advice, what-if, race, replay and ledger."""

from dataclasses import replace

from specchat.chat.turn import Reply
from specchat.engine.protocol.options import Speculation
from specchat.engine.strategies import SERVER
from specchat.tui.action import Action
from specchat.tui.screens.chat import ChatScreen


def use_strategy(chat: ChatScreen, name: str) -> None:
    """Draft differently from the next step on."""
    if refusal := chat.session.choose_strategy(name):
        chat.say(refusal, bad=True)
    chat.redraw()


def _use(chat: ChatScreen, strategy: str, length: int, label: str) -> None:
    """Draft like this from now on and say since when, or why not."""
    session = chat.session
    status = session.loaded.strategy_status(strategy)
    if status is not None and not status.available:
        use_strategy(chat, strategy)
        return
    drafting = strategy != "plain"
    session.change(replace(session.settings, strategy=strategy, draft_length=length if drafting else None))
    chat.say(f"{label} from the next {'reply' if session.reply is None else 'step'} on")
    chat.redraw()


def _advice(chat: ChatScreen, _: str) -> None:
    advice = chat.session.diagnosis.advice
    if advice is None:
        chat.say("no faster setting is known yet")
        return
    _use(chat, advice.speculation.strategy, advice.speculation.draft_length, advice.label)


def _reply(chat: ChatScreen, argument: str) -> Reply | None:
    """The reply of that number, the last one without; None after saying why there is none."""
    replies = [turn.reply for turn in chat.session.conversation.turns if turn.reply]
    reply = chat.session.last_reply
    if argument:
        number = int(argument) if argument.isdecimal() and len(argument) < 9 else 0
        reply = replies[number - 1] if 0 < number <= len(replies) else None
        if reply is None:
            chat.say(f"there is no reply {argument}; this chat has {len(replies)}", bad=True)
            return None
    if reply is None or not reply.steps:
        chat.say("there is no recorded reply here yet", bad=True)
        return None
    return reply


def _what_if(chat: ChatScreen, argument: str) -> None:
    from specchat.insight.projection import ENOUGH_STEPS, project
    from specchat.tui.screens.what_if import WhatIfScreen

    if (reply := _reply(chat, argument)) is None:
        return
    if reply.record.speculation.strategy == SERVER:
        chat.say("a server drafted this reply, and it decides how far", bad=True)
        return
    if (projection := project(reply)) is None:
        chat.say("nothing was drafted in this reply, so its steps say nothing about draft lengths", bad=True)
        return
    if projection.steps < ENOUGH_STEPS:
        steps = f"{projection.steps} drafted step{'s' * (projection.steps != 1)}"
        chat.say(f"too short ({steps}) to compare other lengths", bad=True)
        return

    def chosen(length: int | None) -> None:
        if length is not None:
            strategy = projection.strategy if length else "plain"
            _use(chat, strategy, length, f"{strategy} x{length}" if length else strategy)

    chat.app.push_screen(
        WhatIfScreen(projection, _in_use(chat.session.settings.speculation, projection.strategy)), chosen
    )


def _in_use(speculation: Speculation, strategy: str) -> int | None:
    """The length set for `strategy`: 0 where plain decoding is set, None where it is another strategy."""
    return speculation.draft_length if speculation.strategy in (strategy, "plain") else None


def _race(chat: ChatScreen, _: str) -> None:
    from specchat.tui.screens.race import RaceScreen

    if refusal := chat.session.racing.start():
        chat.refuse(refusal)
        return
    chat.app.push_screen(RaceScreen(chat.session))


def _replay(chat: ChatScreen, argument: str) -> None:
    from specchat.tui.screens.replay import ReplayScreen

    if (reply := _reply(chat, argument)) is None:
        return
    if not reply.ended:
        chat.say("this reply is still being written: it can be replayed once it has ended", bad=True)
        return
    chat.app.push_screen(ReplayScreen(reply))


def _ledger(chat: ChatScreen, _: str) -> None:
    from specchat.tui.screens.ledger import LedgerScreen

    chat.app.push_screen(LedgerScreen(chat.session.ledger))


def _watch(chat: ChatScreen, _: str) -> None:
    from specchat.tui.screens.watch import WatchScreen

    chat.app.push_screen(WatchScreen(chat.session))


SPECULATION: tuple[Action[ChatScreen], ...] = (
    Action("advice", "Apply advice", "Draft as the engine panel advises.", _advice, ("f4",), slash="advice"),
    Action("what-if", "What if", "How fast a reply would have been at other draft lengths.", _what_if, ("f10",),
           slash="whatif", argument="reply number"),
    Action("race", "Race", "Answer the last prompt plainly and drafted, and compare.", _race, ("f6",),
           slash="race"),
    Action("replay", "Replay", "Play a reply again step by step.", _replay, ("f12",), slash="replay",
           argument="reply number"),
    Action("watch", "Watch", "The reply that the engine writes for another program.", _watch,
           slash="watch"),
    Action("ledger", "Ledger", "What drafting saved since specchat was started.", _ledger, slash="saved"),
)  # fmt: skip
