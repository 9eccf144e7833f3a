"""The words in the header and status rows."""

from textual.content import Content

from specchat.chat.record import speculation_label
from specchat.chat.reply import Reply
from specchat.clean import one_line
from specchat.engine.api import Loading
from specchat.tui import figures
from specchat.tui.session import Session
from specchat.tui.text.lines import EMPTY, styled

_RUNNING = {
    "queued": "waiting for the model",
    "reading": "reading the prompt",
    "writing": "writing; esc stops",
}


def header_sides(session: Session) -> tuple[Content, Content]:
    """Title; pair, strategy, temperature and seed."""
    settings, reply = session.settings, session.last_reply
    seed = settings.seed if settings.seed is not None else reply.seed if reply else None
    parts = [
        one_line(session.pair.spec.name, 40) if session.pair else "no model",
        speculation_label(settings.speculation),
        f"T {settings.sampling.temperature:g}",
        f"seed {seed}" if seed is not None else "new seed each reply",
    ]
    title = styled("specchat", ".strong") + "   " + session.conversation.title
    return title, styled(" · ".join(parts), ".quiet")


def loading_words(loading: Loading | None) -> str:
    """What loading does, with its share done where that is known."""
    if loading is None:
        return ""
    if loading.fraction is None:
        return loading.what
    filled, rest = figures.bar(loading.fraction, 16)
    return f"{loading.what} {filled}{rest} {100 * loading.fraction:.0f} %"


def status_sides(session: Session, typed: str, message: str, warning: str) -> tuple[Content, Content]:
    """What happens now, or a message; the prompt's tokens and what enter does."""
    if warning:
        left = styled(warning, ".bad")
    elif message:
        left = styled(message, ".strong")
    elif session.chat.saving.problem:
        left = styled(session.chat.saving.problem, ".bad")
    elif session.chat.editing is not None:
        left = styled("editing an earlier prompt: enter sends it as a branch, esc leaves it", ".strong")
    elif session.loading is not None:
        left = styled(loading_words(session.loading), ".quiet")
    elif session.reply is not None:
        left = styled("stopping" if session.stopping else _running(session.reply), ".quiet")
    elif session.load_error:
        left = styled(f"{session.load_error}; f3 shows other models", ".bad")
    else:
        left = EMPTY
    return left, _prompt_side(session, typed)


def _running(reply: Reply) -> str:
    return _RUNNING.get(reply.state, "")


def _prompt_side(session: Session, typed: str) -> Content:
    if not typed.strip():
        return EMPTY
    enter = "enter sends" if session.reply is None else "kept until the reply ends"
    counted = session.counted
    if counted is None or session.reply is not None:
        return styled(enter, ".quiet")
    tokens = f"{figures.count(counted.tokens)} / {figures.count(counted.context)} tokens"
    if counted.tokens >= counted.context:
        return styled(f"{tokens}: too long", ".bad")
    return styled(f"{tokens} · {enter}", ".quiet")
