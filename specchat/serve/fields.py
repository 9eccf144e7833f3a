"""Fields of requests that all endpoints share, and the engine's options that they become."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from specchat.config.catalog import Pair
from specchat.engine.protocol.options import Acceptance, Limits, Message, Sampling, Speculation, Written
from specchat.engine.protocol.ranges import SAMPLING
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import MAX_DRAFT_LENGTH
from specchat.serve.errors import ApiError
from specchat.serve.lenient import Lenient, TokenLimit, TopK
from specchat.serve.reasoning import ReasoningFields
from specchat.serve.structured import GrammarFields
from specchat.serve.tools import NO_TOOLS, ToolUse, with_names
from specchat.service.settings import new_seed

_BILLED = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n*")
MAX_STOPS, MAX_STOP_CHARACTERS = 32, 1000
MAX_MESSAGES = 10_000


class ContentPart(Lenient):
    """A part of a message's content."""

    type: str
    text: str = ""
    image_url: Any = None
    source: Any = None


TEXTS = ("text", "input_text", "output_text")
MEDIA = ("image", "image_url", "input_image", "document", "file", "input_file", "input_audio", "audio_url", "video_url")
LEFT_OUT = "[{kind} left out: it cannot be read here]"
"""Stands for a part that the model cannot read."""


def text_of(content: str | Sequence[ContentPart] | None, where: str, *, earlier: bool = False) -> str:
    """The text of a content; pictures and the like of `earlier` messages, and of results, are named in it instead.

    So agents and chats go on after one.

    Raises:
        ApiError: a part is no text.
    """
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content:
        if part.type not in TEXTS and not (earlier and part.type in MEDIA):
            raise ApiError(400, f"{where}: parts of type {part.type} cannot be read: the model takes text.", where)
        texts.append(part.text if part.type in TEXTS else LEFT_OUT.format(kind=part.type))
    return "\n".join(texts)


def last_asked(roles: Sequence[str]) -> int:
    """The number of the user's last message; -1 if there is none."""
    return max((number for number, role in enumerate(roles) if role == "user"), default=-1)


OTHER_NAMES = {
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "n_predict": "max_tokens",
    "num_predict": "max_tokens",
    "repeat_penalty": "repetition_penalty",
    "stop_sequences": "stop",
}
"""Names that some APIs have for a field, the first ones before others."""


def system_text(content: str | Sequence[ContentPart] | None, where: str) -> str:
    """The text of a system message, without a line for the provider's bill.

    That differs from chat to chat at the front of Claude Code's prompts, so that none could be reused.

    Raises:
        ApiError: a part is no text.
    """
    parts = [ContentPart(type="text", text=content)] if isinstance(content, str) else content or ()
    texts = [part.model_copy(update={"text": _BILLED.sub("", part.text)}) for part in parts]
    return text_of([part for part, before in zip(texts, parts, strict=True) if part.text or not before.text], where)


class SamplingFields(Lenient):
    """Options of sampling."""

    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: TopK = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None

    @field_validator(*SAMPLING)
    @classmethod
    def _in_range(cls, value: float | None, info: Any) -> float | None:
        span = SAMPLING[info.field_name]
        if value is not None and value not in span:
            raise ValueError(f"has to be {span.words}")
        return value

    def sampling(self, usual: Sampling) -> Sampling:
        """The sampling of a reply; what is not given is as `usual`, and a seed is drawn."""
        chosen = {name: value for name in SAMPLING if (value := getattr(self, name)) is not None}
        seed = new_seed() if self.seed is None else self.seed % 2**63
        bias = self.logit_bias if self.logit_bias is not None else usual.logit_bias
        return replace(usual, seed=seed, logit_bias=bias).given(**chosen)


class ReplyFields(SamplingFields, GrammarFields, ReasoningFields):
    """Options of decoding, with specchat's own `strategy`, `draft_length` and `acceptance`."""

    model: str = ""
    stream: bool = False
    max_tokens: TokenLimit = None
    stop: str | list[str] | None = None
    ignore_eos: bool = False
    strategy: str | None = None
    draft_length: Annotated[int | None, Field(ge=1, le=MAX_DRAFT_LENGTH)] = None
    acceptance: Acceptance | None = None

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        others = {new: value[old] for old, new in reversed(OTHER_NAMES.items()) if value.get(old) is not None}
        return {**value, **others}

    def speculation(self, pair: Pair, usual: Speculation) -> Speculation:
        """The speculation of a reply.

        Raises:
            ApiError: there is no such strategy.
        """
        if self.strategy is not None and self.strategy not in STRATEGIES:
            raise ApiError(400, f"There is no strategy {self.strategy}; there are {', '.join(STRATEGIES)}.", "strategy")
        strategy = self.strategy or usual.strategy
        length = self.draft_length or (usual.draft_length if strategy == usual.strategy else pair.lengths.get(strategy))
        return Speculation.of(strategy, length or None, self.acceptance or usual.acceptance)

    def limits(self) -> Limits:
        """The limits of a reply; a prompt that does not fit is refused.

        Raises:
            ApiError: too many or too long stop strings.
        """
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(stop) > MAX_STOPS or any(len(text) > MAX_STOP_CHARACTERS for text in stop):
            words = f"at most {MAX_STOPS} strings of {MAX_STOP_CHARACTERS:,} characters can be given."
            raise ApiError(400, f"stop: {words}", "stop")
        return Limits(self.max_tokens, tuple(text for text in stop if text), "refuse", self.ignore_eos)


@dataclass(frozen=True)
class Chat:
    """Messages for the engine, the start of the reply if the last message was an assistant's, and tools."""

    messages: tuple[Message, ...]
    prefill: str = ""
    use: ToolUse = NO_TOOLS

    @classmethod
    def of(cls, messages: list[Message], use: ToolUse = NO_TOOLS) -> "Chat":
        """Raises ApiError where there is nothing to answer."""
        if len(messages) > MAX_MESSAGES:
            raise ApiError(400, f"messages: at most {MAX_MESSAGES:,} can be given.", "messages")
        last = messages[-1] if messages else None
        if last is not None and last.tool_calls:
            raise ApiError(400, "messages: the last one calls tools; their results have to follow.", "messages")
        prefill = last.content if last is not None and last.role == "assistant" else None
        answered = tuple(messages if prefill is None else messages[:-1])
        if not any(message.role == "user" for message in answered):
            raise ApiError(400, "messages: there is no message of the user to answer.", "messages")
        return cls(tuple(with_names(answered)), prefill or "", use)

    def answer(self, written: Written) -> str:
        """The answer of a reply without the start that a request gave; one with reasoning has none."""
        return written.answer if written.reasoning else written.answer[len(self.prefill) :]
