"""Options of a reply: messages, sampling, limits and speculation."""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise, zip_longest
from typing import Literal

from specchat.dataclass import dataclass
from specchat.engine.strategies import STRATEGIES

Role = Literal["system", "user", "assistant", "tool"]
Acceptance = Literal["coupled", "ratio", "block"]
GrammarKind = Literal["json_schema", "json_object", "regex", "lark"]
ContextPolicy = Literal["refuse", "drop-oldest", "keep-ends"]
"""Policies for a full context: "drop-oldest" drops the oldest turns, "keep-ends" those after the first.
A turn is a user's message with its answer; system messages and the last turn always stay."""

GREEDY_BELOW = 1e-5
"""Below this temperature divided logits may be infinite, so decoding is greedy."""
ACCEPTANCES: tuple[Acceptance, ...] = ("coupled", "ratio", "block")
CONTEXT_POLICIES: tuple[ContextPolicy, ...] = ("refuse", "drop-oldest", "keep-ends")


@dataclass(frozen=True)
class Tool:
    """A function that a model may call.

    Attributes:
        parameters: a JSON schema as text, which arguments have to fit if the function is `strict`.
    """

    name: str
    description: str = ""
    parameters: str = "{}"
    strict: bool = False


@dataclass(frozen=True)
class ToolCall:
    """A call that a reply makes; `arguments` is a JSON object as text."""

    id: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True)
class CallDelta:
    """A part of a call that is being written; those of one `id` in order make its arguments."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class CutCalls:
    """Calls between two marks where a reply was cut, with what was written of their arguments.

    Attributes:
        before: those before the last one.
        last: the last one; None where its arguments cannot be followed.
        text: the text of the last one with its opening mark, or text that may have become a call.
    """

    before: tuple[ToolCall, ...] = ()
    last: ToolCall | None = None
    text: str = ""


PLACE = "\ufffc"
"""Marks the place of a picture in a message's text."""


@dataclass(frozen=True)
class Picture:
    """A picture of a message: the bytes of its file."""

    data: bytes = field(repr=False)

    @cached_property
    def digest(self) -> str:
        """Stands for the bytes."""
        return blake2b(self.data, digest_size=16).hexdigest()


@dataclass(frozen=True)
class Message:
    """A message of a chat.

    Attributes:
        reasoning: an assistant's, before its `content`.
        tool_calls: an assistant's, after its `content`.
        tool_call_id: the call that a message of role "tool" answers; `tool_name` is its function.
        pictures: a user's, before its `content` unless that has a PLACE for each.
    """

    role: Role
    content: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    tool_name: str = ""
    pictures: tuple[Picture, ...] = ()

    def joined(self, other: "Message") -> "Message":
        """This message and the next one of the same role as one."""
        content = "\n\n".join(filter(None, (self._placed, other._placed)))
        thoughts = "\n".join(filter(None, (self.reasoning, other.reasoning)))
        pictures = self.pictures + other.pictures
        return Message(self.role, content, thoughts, self.tool_calls + other.tool_calls, pictures=pictures)

    @property
    def parts(self) -> list[str | Picture]:
        """Its text and its pictures in order, without empty texts."""
        texts, pictures = self.content.split(PLACE), self.pictures
        if len(texts) != len(pictures) + 1:
            texts = [*[""] * len(pictures), self.content]
        found = (part for pair in zip_longest(texts, pictures, fillvalue="") for part in pair)
        return [part for part in found if part != ""]

    @property
    def _placed(self) -> str:
        """Its content with a PLACE for each picture."""
        places = len(self.pictures)
        return self.content if self.content.count(PLACE) == places else PLACE * places + self.content


ToolChoice = str
"""Rule for the calls of a reply: "auto", "required", "none", or the name of the function that it has to call."""


Arguments = tuple[tuple[str, str | bool], ...]
"""Arguments of a chat template, as names and values."""
Span = tuple[str, bool]
"""A run of text, and True if it is reasoning."""
Ranges = tuple[tuple[int, int], ...]
"""Start and end of runs in a text, in characters."""


def all_reasoning(spans: Iterable[Span]) -> list[Span]:
    """The spans of a text that a closing mark after it made reasoning."""
    return [(text, True) for text, _ in spans]


@dataclass(frozen=True)
class Written:
    """A reply's text without marks.

    Attributes:
        reasoning: ranges of the text that are no answer.
        thinking: True if the last range was not closed.
        token_ids: the model's tokens, if known.
        tool_calls: the calls it makes; their text is no part of `text`.
    """

    text: str = ""
    reasoning: Ranges = ()
    thinking: bool = False
    token_ids: tuple[int, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()

    @classmethod
    def of(cls, spans: Iterable[Span], *, thinking: bool = False, token_ids: tuple[int, ...] = ()) -> "Written":
        """Join consecutive spans; `thinking` applies only if the last one is reasoning."""
        texts: list[str] = []
        found: list[tuple[int, int]] = []
        at = 0
        for text, reasoning in spans:
            texts.append(text)
            start, at = at, at + len(text)
            if reasoning and text:
                found.append((found.pop()[0] if found and found[-1][1] == start else start, at))
        thinking = thinking and bool(found) and found[-1][1] == at
        return cls("".join(texts), tuple(found), thinking, token_ids)

    @property
    def spans(self) -> tuple[Span, ...]:
        """The text as runs of reasoning and answer."""
        edges = (0, *(at for each in self.reasoning for at in each), len(self.text))
        runs = [(self.text[begin:end], bool(n % 2)) for n, (begin, end) in enumerate(pairwise(edges))]
        return tuple((text, reasoning) for text, reasoning in runs if text)

    @property
    def thoughts(self) -> str:
        """The reasoning alone."""
        return "".join(text for text, reasoning in self.spans if reasoning)

    @property
    def answer(self) -> str:
        """The answer alone; beside reasoning, without surrounding empty lines."""
        answer = "".join(text for text, reasoning in self.spans if not reasoning)
        return answer.strip("\n") if self.reasoning else answer

    @property
    def message(self) -> Message:
        """The reply as a message of the next prompt."""
        return Message("assistant", self.answer, self.thoughts.strip("\n"), self.tool_calls)


NOTHING_WRITTEN = Written()


@dataclass(frozen=True)
class Beginning:
    """The beginning that a reply is given.

    Attributes:
        prefill: start of the answer.
        begun: the reply that it goes on from, instead of `prefill`.
    """

    prefill: str = ""
    begun: Written = NOTHING_WRITTEN

    @property
    def written(self) -> Written:
        return self.begun if self.begun.text else Written(self.prefill)


NO_BEGINNING = Beginning()


@dataclass(frozen=True)
class Sampling:
    """Options for choosing the target's next token. Processors apply in the order of the fields after `seed`.

    `repetition_penalty` divides positive and multiplies negative logits of seen tokens (CTRL, Keskar et al. 2019);
    presence and frequency penalties are subtracted from the logits of seen tokens, once and per occurrence.
    `top_k` 0, `top_p` 1 and `min_p` 0 are off. `unset` names options that a server elsewhere chooses itself.
    """

    seed: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    unset: tuple[str, ...] = ()

    def given(self, **options: float) -> "Sampling":
        """The same with these options set."""
        left = tuple(name for name in self.unset if name not in options)
        return replace(self, unset=left, **options)  # type: ignore[arg-type]

    def shown(self, name: str) -> str:
        """The value of an option in words."""
        return "the server's" if name in self.unset else f"{getattr(self, name):g}"

    @property
    def greedy(self) -> bool:
        """True if the likeliest token is chosen instead of drawing."""
        return self.temperature < GREEDY_BELOW


@dataclass(frozen=True)
class Limits:
    """Limits of a reply, and the policy for a full context.

    `max_tokens` None means up to the context. Stop strings apply to generated text, not to a prefill. With `ignore_eos`
    the tokens that end a reply are tokens as others, as benchmarks want it.
    """

    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    context: ContextPolicy = "drop-oldest"
    ignore_eos: bool = False


@dataclass(frozen=True)
class Grammar:
    """A grammar that holds the answer of a reply, not its reasoning.

    `text` is a JSON schema, a regular expression for the whole answer, or a Lark grammar as llguidance reads it; the
    kind "json_object", any JSON object, has none.
    """

    kind: GrammarKind
    text: str = ""


@dataclass(frozen=True)
class Speculation:
    """Strategy, draft length and acceptance test; each may change during a reply."""

    strategy: str = "plain"
    draft_length: int = 0
    acceptance: Acceptance = "coupled"

    @classmethod
    def of(cls, strategy: str, draft_length: int | None = None, acceptance: Acceptance = "coupled") -> "Speculation":
        """A speculation; `draft_length` None means the strategy's default."""
        length = STRATEGIES[strategy].draft_length if draft_length is None else draft_length
        return cls(strategy, 0 if strategy == "plain" else length, acceptance)
