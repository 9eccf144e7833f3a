"""Tuning the loaded pair beside the chat: asked for, followed, and what comes of it taken into the chat."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from specchat.clean import one_line
from specchat.config.catalog import Pair, load_catalog
from specchat.config.errors import ConfigError
from specchat.engine.backends import DEFAULT_BACKEND
from specchat.figures import interval
from specchat.tui.action import Action
from specchat.tui.screens.chat import ChatScreen
from specchat.tune.beside_tune import TuneEnd
from specchat.tune.beside_work import TuningPlaces

LOOK_EVERY = 0.4
"""Seconds between looks at a tune."""


def tune(chat: ChatScreen, argument: str) -> None:
    """Ask whether to tune the loaded pair on the saved chats, or show how far that is; "stop" ends it."""
    from specchat.tui.screens.tune import TuneScreen

    tuning = chat.session.tuning
    if argument == "stop":
        chat.say("the tune is stopping" if tuning.busy else "nothing is tuned")
        tuning.stop()
        return
    if argument:
        chat.say(f"/tune takes stop or nothing, not {one_line(argument, 40)}", bad=True)
        return
    screen = TuneScreen(chat.session, tunable(chat))

    def answered(agreed: bool | None) -> None:
        if agreed:
            plan = screen.plan
            _started(chat, tuning.begin(chat.session.loaded.id, plan, on_cpu=screen.on_cpu))

    chat.app.push_screen(screen, answered)


def tunable(chat: ChatScreen) -> str:
    """A sentence where the loaded pair cannot be tuned, whatever is known of it once loaded; else empty."""
    session = chat.session
    if session.recommending.busy:
        return "What is fastest is being measured. /recommend stop ends that."
    pair = session.loaded.pair
    if pair is not None and pair.spec.backend != DEFAULT_BACKEND:
        return f"{pair.spec.backend} runs this pair, and only those that specchat's own decoder runs are tuned."
    return _declared(chat)


def _declared(chat: ChatScreen) -> str:
    """A sentence where the loaded pair is none that models.toml has as it is; else empty."""
    session, pair = chat.session, chat.session.loaded.pair
    if session.tuning.places is None:
        return "There is no folder for it here."
    if pair is None:
        return ""
    if session.loaded.info is not None and session.loaded.info.server.name:
        return "A server runs this pair, and drafts as it was started."
    known = next((each for each in chat.catalog.pairs if each.id == pair.id), None)
    if known is None:
        return f"It takes a pair of models.toml: in {chat.keys.named('models')}, ctrl+s saves this one."
    if known.spec != pair.spec:
        return f"It takes the pair as models.toml has it: /model {known.id} loads that."
    return ""


def recommend(chat: ChatScreen, argument: str) -> None:
    """Ask whether to measure what is fastest, show how far that is, or the table and whether to write it."""
    from specchat.tui.screens.recommend import RecommendScreen

    session, recommending = chat.session, chat.session.recommending
    if argument == "stop":
        chat.say("the measurement is stopping" if recommending.busy else "nothing is measured")
        recommending.stop()
        return
    if argument:
        chat.say(f"/recommend takes stop or nothing, not {one_line(argument, 40)}", bad=True)
        return
    problem = _declared(chat) or ("A tune runs. /tune stop ends it." if session.tuning.busy else "")
    screen = RecommendScreen(session, problem, partial(_look, chat))

    def answered(answer: str | None) -> None:
        if answer == "begin":
            recommending.begin(session.loaded.id, screen.from_chats)
            _started(chat, recommending.error)
        elif answer == "write":
            _write(chat)

    chat.app.push_screen(screen, answered)


def _write(chat: ChatScreen) -> None:
    """Write what was recommended, and draft like that from the next step on."""
    session, recommending = chat.session, chat.session.recommending
    choice = recommending.choice
    if refusal := recommending.write():
        chat.say(refusal, bad=True)
        return
    assert choice is not None
    strategy, length = choice
    session.change(replace(session.settings, strategy=strategy, draft_length=length))
    session.tuning.changed.add(recommending.pair)
    _watch(chat)
    _look(chat)
    chat.say(f"{strategy}{f' x{length}' if length else ''} is written to models.toml, and used from now on")


def go_on(chat: ChatScreen) -> None:
    """Go on with the tune that was under way when the app was left."""
    tuning = chat.session.tuning
    pair, on_cpu = tuning.ordered()
    if not pair or tuning.busy:
        return
    if any(each.id == pair for each in chat.catalog.pairs):
        _started(chat, tuning.begin(pair, on_cpu=on_cpu))


def tuned(chat: ChatScreen, _: str) -> None:
    """List what was tuned, to use, give up or delete it."""
    from specchat.tui.screens.tuned import TunedScreen

    tuning = chat.session.tuning
    if tuning.places is None:
        chat.say("there is no folder for what is tuned", bad=True)
        return

    def changed(pairs: Sequence[str]) -> None:
        tuning.changed.update(pairs)
        _watch(chat)
        _look(chat)

    chat.app.push_screen(TunedScreen(tuning.places, changed))


def _started(chat: ChatScreen, refusal: str) -> None:
    if refusal:
        chat.say(refusal, bad=True)
        return
    _watch(chat)
    chat.draw_rows()


def _watch(chat: ChatScreen) -> None:
    chat.run_worker(_follow(chat), group="tune", exclusive=True)


async def _follow(chat: ChatScreen) -> None:
    tuning, recommending = chat.session.tuning, chat.session.recommending
    while tuning.job is not None or recommending.job is not None or tuning.changed:
        await asyncio.sleep(LOOK_EVERY)
        _look(chat)


def _look(chat: ChatScreen) -> None:
    """Let it wait while a reply is written, draw its progress, and take what it brought."""
    session, tuning, recommending = chat.session, chat.session.tuning, chat.session.recommending
    session.make_way()
    if recommending.ended():
        if recommending.error:
            chat.say(recommending.error, bad=True)
        elif recommending.result is not None:
            tuning.outcome = "measured: /recommend shows the table"
    if not session.writes:
        if (end := tuning.ended()) is not None:
            _ended(chat, end)
        if tuning.changed:
            _take_in(chat, tuning.places)
    chat.draw_rows()


def _ended(chat: ChatScreen, end: TuneEnd) -> None:
    """Say what came of it; the pair is loaded anew where it has another draft."""
    tuning = chat.session.tuning
    if end.result is None:
        kept = "What was learnt so far is kept; /tune goes on with it."
        chat.say(f"{end.error} {kept}" if end.error else f"The tune is stopped. {kept}", bad=bool(end.error))
        return
    figures = _speed(end.result.get("times"))
    if not end.result.get("taken"):
        again = " The machine was busy: try /tune again when less runs." if end.result.get("busy") else ""
        tuning.outcome = f"The tuned draft brings no sure gain ({figures}), so the draft stays as it was.{again}"
        return
    before, after = (_share(end.result.get(name)) for name in ("before", "after"))
    tuning.outcome = f"The draft tuned on your chats is used: {before} accepted before, {after} now; {figures}."
    tuning.changed.add(end.pair)


def _take_in(chat: ChatScreen, places: TuningPlaces | None) -> None:
    """Read models.toml again; the loaded pair is loaded anew if it changed, with chat and settings as they are."""
    session, changed = chat.session, chat.session.tuning.changed
    ids = set(changed)
    changed.clear()
    if places is None:
        return
    try:
        chat.catalog = load_catalog(places.toml)
    except ConfigError as error:
        chat.say(error.message, bad=True)
        return
    pair = next((each for each in chat.catalog.pairs if each.id in ids and each.id == session.loaded.id), None)
    if pair is not None and _differs(pair, session.loaded.pair):
        session.load(pair, session.settings)
        chat.redraw()
    elif pair is not None:
        session.loaded.pair = pair


def _differs(pair: Pair, loaded: Pair | None) -> bool:
    return loaded is None or pair.spec != loaded.spec


def _share(figures: object) -> str:
    share = figures.get("accepted") if isinstance(figures, dict) else None
    return f"{share:.0%}" if isinstance(share, float) else "–"


def _speed(times: object) -> str:
    """A factor with the ends of its interval."""
    match times:
        case [float(mean), float(low), float() | None as high]:
            return f"{mean:.2f}x as fast, {interval(low, high, ' to ')}"
    return "not measured"


TUNING: tuple[Action[ChatScreen], ...] = (
    Action("tune", "Tune on my chats", "Train the draft on replies to your prompts, beside the chat.", tune,
           slash="tune", argument="stop", values=lambda _: [("stop", "end the tune that runs")]),
    Action("recommend", "What is fastest here", "Measure strategies and lengths, show the table, set the best.",
           recommend, slash="recommend", argument="stop", values=lambda _: [("stop", "end the measurement")]),
    Action("tuned", "What was tuned", "Drafts trained by /tune: use or delete.", tuned, slash="tuned"),
)  # fmt: skip
