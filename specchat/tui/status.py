"""The words in the header and status rows."""

from time import monotonic

from textual.content import Content

from specchat import figures
from specchat.chat.record import speculation_label
from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply
from specchat.clean import one_line
from specchat.config.personas import persona_name
from specchat.engine.protocol.events import Loading
from specchat.service.calls import CallRound
from specchat.tui.composing import slash
from specchat.tui.keys import Keys
from specchat.tui.session import AppSession
from specchat.tui.text.bars import bar
from specchat.tui.text.lines import EMPTY, styled

_RUNNING = {
    "queued": "waiting for the model",
    "preparing": "starting the servers of the tools",
    "writing": "writing",
}


def header_sides(session: AppSession) -> tuple[Content, ...]:
    """Title; pair, persona, strategy, temperature and seed, and the same without the last ones, for narrow windows."""
    title = styled("specchat", ".strong") + "   " + session.conversation.title
    if session.loaded.pair is None and not session.wanted:  # one is about to be requested
        return title, EMPTY
    settings = session.settings
    parts = [
        f"{session.wanted_name}, loaded when you write" if session.wanted else session.loaded.name,
        one_line(persona_name(session.conversation.system, session.launch.service.personas), 30),
        _drafting(session),
        "tools on" * session.tools.of(session.conversation.key).on,
        f"temperature {settings.sampling.shown('temperature')}",
        "" if settings.seed is None else f"seed {settings.seed}",
    ]
    said = [part for part in parts if part]
    return title, *(styled(" · ".join(said[:count]), ".quiet") for count in range(len(said), 0, -1))


def _drafting(session: AppSession) -> str:
    """The speculation that is set; a server decides by itself."""
    info = session.loaded.info
    server = info.server.name if info is not None else ""
    return server or speculation_label(session.settings.speculation)


def loading_words(loading: Loading | None) -> str:
    """The progress of loading, with its share done where that is known."""
    if loading is None:
        return ""
    if loading.fraction is None:
        return loading.what
    filled, rest = bar(loading.fraction, 16)
    return f"{loading.what} {filled}{rest} {100 * loading.fraction:.0f} %"


def status_sides(
    session: AppSession, keys: Keys, typed: str, message: str, warning: str, files: str, choosing: bool
) -> tuple[Content, Content]:
    """The work under way, or a message; the prompt's `files`, in words, its tokens and what enter does.

    While `choosing` it takes what is marked in the list above the prompt.
    """
    stop, models = keys.named("stop"), keys.named("models")
    if warning:
        left = styled(warning, ".bad")
    elif message:
        left = styled(message, ".strong")
    elif session.chat.saving.problem:
        left = styled(session.chat.saving.problem, ".bad")
    elif session.chat.editing is not None:
        left = styled(f"editing a prompt; {stop} gives it up", ".strong")
    elif session.loaded.loading is not None:
        back = session.loaded.before
        way = f" · {stop} goes back to {back}" if back and session.reply is None else ""
        left = styled(loading_words(session.loaded.loading) + way + _next(session), ".quiet")
    elif session.reply is not None:
        left = styled(_running(session, session.reply, stop) + _next(session) + _beside(session), ".quiet")
    elif (calling := session.calling) is not None:
        left = styled(_calling(calling, stop) + _next(session), ".quiet")
    elif (other := session.others.now) is not None:
        left = styled(f"the engine answers {other.client}; /watch shows it", ".quiet")
    elif session.elsewhere is not None:
        left = styled(f"writing in {_title(session.elsewhere)}", ".quiet")
    elif session.fetching.busy:
        left = styled(f"{session.fetching} · {models}, then ctrl+x, stops it", ".quiet")
    elif beside := str(session.tuning) or str(session.recommending):
        left = styled(beside, ".quiet")
    elif session.tuning.outcome and not session.loaded.error:
        left = styled(session.tuning.outcome, ".strong")
    elif session.loaded.error:
        left = styled(f"{session.loaded.error.rstrip('.')}; {models} shows other models", ".bad")
    elif session.next_prefill:
        left = styled(f"the reply will begin with: {one_line(session.next_prefill, 60)}", ".quiet")
    else:
        left = EMPTY
    return left, _prompt_side(session, keys, typed, files, choosing)


def _running(session: AppSession, reply: Reply, stop: str) -> str:
    if session.stopping:
        return f"stopping; {stop} again restarts the engine"
    from specchat.insight.footer import reading  # the app starts sooner without

    before = session.elsewhere
    if before is not None and reply.state == "waiting":
        return f"waits for {_title(before)} to be answered; {stop} stops"
    sharing = f", in turn with {other.client}, which /watch shows" if (other := session.others.now) is not None else ""
    if state := reading(reply):
        return f"{state}{sharing}; {stop} stops"
    if session.running is not None and session.running.repeats:
        return f"the reply repeats itself; {stop} stops it"
    return _RUNNING.get(reply.state, "") + f"{sharing}; {stop} stops" * (reply.state == "writing")


def _calling(calling: CallRound, stop: str) -> str:
    """The tool that is called, or asked for."""
    if (asked := calling.asked) is not None:
        return f"call {one_line(asked.tool.name, 40)}? waiting for you"
    if not calling.pending:
        return "calling"
    names = ", ".join(one_line(pending.tool.name, 40) for pending in calling.pending)
    seconds = int(monotonic() - min(pending.began for pending in calling.pending))
    return f"calling {names}{f', {seconds} s' if seconds else ''}; {stop} stops"


def _next(session: AppSession) -> str:
    """The prompts that are sent when the reply has ended."""
    waiting = session.waiting
    if not waiting:
        return ""
    return f" · next: “{one_line(waiting[0].text, 30)}”" + f" and {len(waiting) - 1} more" * (len(waiting) > 1)


def _beside(session: AppSession) -> str:
    """A download's progress and a tune that waits, in a few words."""
    download = f" · download {session.fetching.share}" if session.fetching.busy else ""
    return download + " · tune waits" * session.tuning.busy


def _title(chat: Conversation) -> str:
    return f"“{one_line(chat.title, 30)}”"


def _prompt_side(session: AppSession, keys: Keys, typed: str, files: str, choosing: bool) -> Content:
    if not typed.strip():
        return EMPTY
    if typed.startswith("/") and not isinstance(slash.parse(typed, keys.by_slash), str):
        return styled("enter takes it" if choosing else "enter runs it", ".quiet")
    enter = "enter takes it" if choosing else "enter sends it next" if session.at_work else "enter sends"
    named = [files] if files and ("@" in typed or session.chat.editing is not None) else []
    if session.prompt_count.outdated:
        return styled(" · ".join([*named, "counting tokens", enter]), ".quiet")
    counted = session.prompt_count.counted
    if counted is None or session.replies:
        return styled(" · ".join([*named, enter]), ".quiet")
    tokens = f"{figures.count(counted.tokens)} / {figures.count(counted.context)} tokens"
    if counted.tokens >= counted.context:
        return styled(" · ".join([*named, f"{tokens}: too long"]), ".bad")
    left = f"{figures.count(counted.context - counted.tokens)} left"
    messages = f"{counted.dropped} earlier message{'s' * (counted.dropped > 1)}"
    without = [f"without {messages}"] if counted.dropped else []
    return styled(" · ".join([*named, f"{tokens}, {left}", *without, enter]), ".quiet")
