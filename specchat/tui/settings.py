"""The settings panel's fields, and how they read numbers."""

from collections.abc import Callable
from dataclasses import replace

from specchat.dataclass import dataclass
from specchat.engine.protocol.options import CONTEXT_POLICIES, Sampling
from specchat.engine.protocol.ranges import DRAFT_LENGTHS, MAX_SEED, MAX_TOKENS, SAMPLING, SEEDS, Range
from specchat.engine.strategies import STRATEGIES
from specchat.service.settings import ChatSettings


class InvalidValue(ValueError):
    """A field's text that cannot be used; the message says what is expected."""


@dataclass(frozen=True)
class Field:
    """One line of text in the panel. `store` raises InvalidValue; `nudge` is what up and down add, 0 for none."""

    key: str
    label: str
    help: str
    show: Callable[[ChatSettings], str]
    store: Callable[[ChatSettings, str], ChatSettings]
    nudge: float = 0.0
    live: bool = False
    """True if it takes effect in a running reply."""
    moot: Callable[[ChatSettings], str] = lambda _: ""
    """Why the value has no effect beside the other settings; empty where it has."""
    span: Range | None = None
    """The numbers it takes, where it takes numbers."""

    def note(self, settings: ChatSettings) -> str:
        """The purpose of the field, or the reason why its value has no effect."""
        return "empty: the server's own" if self.key in settings.sampling.unset else self.moot(settings) or self.help


def _shown(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{round(value, 6):.10g}"


def _number(text: str, span: Range) -> float:
    if (value := span.read(text)) is None:
        raise InvalidValue(f"needs {span.number}")
    return value


def _greedy(key: str) -> Callable[[ChatSettings], str]:
    """At temperature 0 nothing is drawn, so a value other than the usual one does nothing."""
    usual = getattr(Sampling(), key)

    def moot(settings: ChatSettings) -> str:
        on = settings.sampling.greedy and getattr(settings.sampling, key) != usual
        return "no effect at temperature 0" if on else ""

    return moot


def _sampling_field(key: str, label: str, help: str, nudge: float) -> Field:
    def store(settings: ChatSettings, text: str) -> ChatSettings:
        if not text and key in settings.sampling.unset:
            return settings
        return replace(settings, sampling=settings.sampling.given(**{key: _number(text, SAMPLING[key])}))

    def show(settings: ChatSettings) -> str:
        return "" if key in settings.sampling.unset else _shown(getattr(settings.sampling, key))

    moot = _greedy(key) if key in ("top_k", "top_p", "min_p") else Field.moot
    return Field(key, label, help, show, store, nudge, moot=moot, span=SAMPLING[key])


def _undrafted(settings: ChatSettings) -> str:
    return "no effect: plain decoding drafts nothing" if settings.strategy == "plain" else ""


def _store_draft_length(settings: ChatSettings, text: str) -> ChatSettings:
    if not text:
        return replace(settings, draft_length=None)
    return replace(settings, draft_length=int(_number(text, DRAFT_LENGTHS)))


def _show_draft_length(settings: ChatSettings) -> str:
    length = STRATEGIES[settings.strategy].draft_length if settings.draft_length is None else settings.draft_length
    return str(length) if length else ""


def _store_seed(settings: ChatSettings, text: str) -> ChatSettings:
    if not text:
        return replace(settings, seed=None)
    try:
        seed = int(text)
    except ValueError:
        raise InvalidValue("needs a whole number, or nothing for a new one each reply") from None
    if seed not in SEEDS:
        raise InvalidValue(f"needs a whole number from 0 to {MAX_SEED}")
    return replace(settings, seed=seed)


def _store_max_tokens(settings: ChatSettings, text: str) -> ChatSettings:
    tokens = int(_number(text, MAX_TOKENS)) if text else None
    return replace(settings, limits=replace(settings.limits, max_tokens=tokens))


def _store_context(settings: ChatSettings, text: str) -> ChatSettings:
    policy = next((policy for policy in CONTEXT_POLICIES if policy == text), None)
    if policy is None:
        raise InvalidValue(f"needs one of {', '.join(CONTEXT_POLICIES)}")
    return replace(settings, limits=replace(settings.limits, context=policy))


def _store_stop(settings: ChatSettings, text: str) -> ChatSettings:
    stops = tuple(part.replace("\\n", "\n").replace("\\t", "\t") for part in text.split("|") if part.strip(" "))
    return replace(settings, limits=replace(settings.limits, stop=stops))


def _show_stop(settings: ChatSettings) -> str:
    return "|".join(part.replace("\n", "\\n").replace("\t", "\\t") for part in settings.limits.stop)


FIELDS: tuple[Field, ...] = (
    _sampling_field("temperature", "temperature", "0: always the likeliest; higher varies more", 0.1),
    _sampling_field("top_k", "top-k", "0 is off; else only the k likeliest tokens", 10),
    _sampling_field("top_p", "top-p", "1 is off; the likeliest adding up to this", 0.05),
    _sampling_field("min_p", "min-p", "0 is off; none below this share of the best", 0.01),
    _sampling_field("repetition_penalty", "repetition", "1 is off; above it words repeat less", 0.05),
    _sampling_field("presence_penalty", "presence", "0 is off; above it avoids what was said", 0.1),
    _sampling_field("frequency_penalty", "frequency", "0 is off; the same, more for each use", 0.1),
    Field(
        "seed",
        "seed",
        "empty: always new; a number repeats a reply",
        lambda s: "" if s.seed is None else str(s.seed),
        _store_seed,
        1,
        span=SEEDS,
    ),
    Field(
        "max_tokens",
        "max tokens",
        "empty: no limit; else of a reply, at most",
        lambda s: "" if s.limits.max_tokens is None else str(s.limits.max_tokens),
        _store_max_tokens,
        50,
        span=MAX_TOKENS,
    ),
    Field(
        "context",
        "context",
        "refuse, drop-oldest or keep-ends",
        lambda s: s.limits.context,
        _store_context,
    ),
    Field("stop", "stop at", "ends a reply before any; separate with |", _show_stop, _store_stop),
    Field(
        "draft_length",
        "draft length",
        "tokens drafted a step",
        _show_draft_length,
        _store_draft_length,
        1,
        live=True,
        moot=_undrafted,
        span=DRAFT_LENGTHS,
    ),
)


def nudged(field: Field, text: str, steps: int) -> str:
    """`text` moved by `steps` of the field's nudge, as far as its numbers go; `text` where it is no such number."""
    try:
        value = int(text or 0) if float(field.nudge).is_integer() else float(text or 0)
    except ValueError:
        return text
    moved = value + steps * (int(field.nudge) if isinstance(value, int) else field.nudge)
    span = field.span
    if span is None or round(moved, 6) in span:
        return _shown(moved)
    end = span.high if steps > 0 else None if span.above else span.low
    return text if end is None or not text else _shown(end)
