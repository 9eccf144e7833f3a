"""Events across the process boundary, from the engine's worker to its client."""

from typing import Literal

from specchat.dataclass import dataclass
from specchat.engine.errors import ErrorKind
from specchat.engine.protocol.options import CallDelta, CutCalls, Ranges, Speculation, ToolCall, Written
from specchat.engine.protocol.pair_info import PairInfo, ReadTexts
from specchat.engine.protocol.requests import Generate
from specchat.engine.protocol.stats import Stats, StepTimes

FinishReason = Literal["stop", "length", "context", "cancelled"]


@dataclass(frozen=True)
class Loading:
    """The progress of loading; `fraction` from 0 to 1, or None if unknown."""

    what: str
    fraction: float | None = None


@dataclass(frozen=True)
class Loaded:
    info: PairInfo


@dataclass(frozen=True)
class Piece:
    """Text of a step, of whole graphemes.

    Attributes:
        source: source of the token that completes it, one of `strategies.SOURCES`.
        reasoning: True for text that is no part of the answer.
        position: index of that token among the step's emitted ones: below `Step.accepted` it is an accepted draft. None
            for text that was held back since an earlier step, or if unknown, as in older records.
    """

    text: str
    source: str
    reasoning: bool = False
    position: int | None = None


@dataclass(frozen=True)
class Started:
    """The prompt is in the KV cache.

    Attributes:
        prompt_tokens: tokens of the prompt, with those of `prefill` or of a reply that continues.
        reused: prompt tokens that were in the cache before.
        prefill: start of the reply, which no step repeats.
        dropped: messages left out by the context policy.
        prompt_ms: milliseconds of reading the prompt.
        logprobs: of the prompt's tokens, if they were asked for.
    """

    id: int
    prompt_tokens: int
    reused: int
    seed: int
    speculation: Speculation
    prefill: str = ""
    dropped: int = 0
    prompt_ms: float = 0.0
    logprobs: "tuple[TokenLogprob, ...]" = ()


@dataclass(frozen=True)
class Drafted:
    """A draft token.

    Attributes:
        text: its own text. Incomplete characters show as U+FFFD, special tokens by name.
        probability: from the drafter, after the sampling options; None if it has none.
        parent: index in `Step.drafts` of the draft that it follows, or -1 for the pending token. None means the draft
            before it, as in a chain. `step_tree.StepTree` resolves it.
        mark: True for a token that no text shows: a special one, or one around reasoning.
    """

    text: str
    probability: float | None = None
    parent: int | None = None
    mark: bool = False


@dataclass(frozen=True)
class TokenLogprob:
    """A token of a reply with its log-probability by the target's own logits, before all sampling options.

    Attributes:
        utf8: its own text, which may be a part of a character; the name of a special token.
        logprob: None for the first token of a prompt.
        top: texts and log-probabilities of the likeliest tokens of its place, the likeliest first.
        shown: False if a reply's text leaves it out, as special tokens.
    """

    utf8: bytes
    logprob: float | None
    top: tuple[tuple[bytes, float], ...] = ()
    shown: bool = True


@dataclass(frozen=True)
class PlainKnown:
    """Load-corrected milliseconds of a plain token beside the drafts of a `strategy`, with their relative error."""

    strategy: str
    token_ms: float
    error: float


@dataclass(frozen=True)
class Step(StepTimes):
    """One verify step. Times are milliseconds measured in the engine.

    Attributes:
        drafted: tokens proposed, in a chain or a tree.
        accepted: draft tokens accepted.
        tested: positions verified: one more than `accepted` if all candidates for the next position were rejected.
        emitted: tokens added to the reply.
        drafts: the proposed tokens. The first `accepted` are in the reply, in order; the rest follow as drafted,
            parents before children.
        again: choices too close for the rounding of their rows, which were made again.
        usual_ms: load-corrected time of the step; 0 if unknown.
        plain_ms: load-corrected time of plain decoding for its tokens; 0 if unknown.
        plain_error: relative error of `plain_ms`.
        turned: True if this step revealed that all text before was reasoning, without an opening mark.
        waited_ms: time waiting for a processor that other programs used; no other time includes it.
        call_pieces: text of a call as it is written, marks included. It is in no `pieces`, unless the call turns out to
            be unreadable: then all of it comes there.
        plain_known: what was measured of plain decoding after the last step of a reply, for the steps before it too.
        tool_calls: calls that this step completed.
        call_deltas: parts of calls whose arguments can be told while they are written, in order.
        logprobs: of the tokens that it added, if they were asked for; one that ends the reply has none.
        together: replies whose tokens its pass read; those that share a pass wait for all of it.
    """

    id: int
    pieces: tuple[Piece, ...]
    drafted: int
    tested: int
    accepted: int
    emitted: int
    draft_ms: float
    verify_ms: float
    other_ms: float
    context_used: int
    strategy: str
    drafts: tuple[Drafted, ...] = ()
    again: int = 0
    usual_ms: float = 0.0
    plain_ms: float = 0.0
    plain_error: float = 0.0
    turned: bool = False
    waited_ms: float = 0.0
    call_pieces: tuple[Piece, ...] = ()
    plain_known: tuple[PlainKnown, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    call_deltas: tuple[CallDelta, ...] = ()
    together: int = 1


@dataclass(frozen=True)
class PromptProgress:
    """A prompt is being read: `read` of its `tokens` are in the cache, `reused` were before."""

    id: int
    read: int
    tokens: int
    reused: int = 0


@dataclass(frozen=True)
class Changed:
    """A change of speculation took effect after `tokens` reply tokens."""

    id: int
    speculation: Speculation
    tokens: int


@dataclass(frozen=True)
class Finished:
    """The end of a reply.

    Attributes:
        text: the whole reply, with the start that it was given.
        token_ids: the generated tokens.
        reasoning: ranges of `text` that are no answer.
        thinking: True if the last of them was not closed.
        tool_calls: the calls that the reply makes; `reason` is then "stop".
        unreadable_calls: calls that could not be read, and that are text of the answer.
        cut_calls: calls in which a limit or the user ended it.
        stopped_by: the stop string of the request that ended the reply, if one did.
        read: bytes that read texts take.
    """

    id: int
    reason: FinishReason
    text: str
    token_ids: tuple[int, ...]
    stats: Stats
    reasoning: Ranges = ()
    thinking: bool = False
    tool_calls: tuple[ToolCall, ...] = ()
    unreadable_calls: int = 0
    cut_calls: CutCalls = CutCalls()
    stopped_by: str = ""
    read: ReadTexts = ReadTexts()

    @classmethod
    def unbegun(cls, request: Generate) -> "Finished":
        """The end of a reply that was cancelled before its prompt was read."""
        return cls.of(request.id, "cancelled", request.beginning, (), Stats())

    @classmethod
    def of(
        cls, reply: int, reason: FinishReason, written: Written, token_ids: tuple[int, ...], stats: Stats
    ) -> "Finished":
        """The end of a reply `written` so far; `token_ids` are the generated tokens."""
        return cls(
            reply, reason, written.text, token_ids, stats, written.reasoning, written.thinking, written.tool_calls
        )

    @property
    def written(self) -> Written:
        return Written(self.text, self.reasoning, self.thinking, self.token_ids, self.tool_calls)


@dataclass(frozen=True)
class AwaitingServer:
    """A reply waits for a server elsewhere, or comes from another model than was asked; `why` is a sentence."""

    id: int
    why: str


@dataclass(frozen=True)
class AwaitingClient:
    """A reply waits until the engine has answered another client; `client` names it, `pid` is its process."""

    id: int
    client: str
    pid: int


@dataclass(frozen=True)
class OtherClient:
    """The reply `id` begins, which another client asked for with `prompt`, shortened; `pid` is its process."""

    id: int
    client: str
    pid: int
    prompt: str


@dataclass(frozen=True)
class Elsewhere:
    """An event of another client's reply, see `requests.Watch`; an `OtherClient` comes first."""

    event: "OtherClient | Started | Step | Changed | Finished | Failed"

    @property
    def id(self) -> int | None:
        return self.event.id


@dataclass(frozen=True)
class Counted:
    """A prompt of `tokens`, after `dropped` messages were left out; it is refused if that reaches `context`.

    `token_ids`, and their `text` with special tokens by name, are there if the request asked for them.
    """

    id: int
    tokens: int
    context: int
    dropped: int = 0
    token_ids: tuple[int, ...] = ()
    text: str = ""


@dataclass(frozen=True)
class Failed:
    """A request failed; the engine stays usable unless `kind` is "died".

    `id` is the reply, None for loading. "died" comes from a worker that exits, or from the client if it is gone.
    """

    id: int | None
    kind: ErrorKind
    message: str


Event = (
    Loading
    | Loaded
    | Started
    | PromptProgress
    | Step
    | Changed
    | Finished
    | Counted
    | AwaitingServer
    | AwaitingClient
    | OtherClient
    | Elsewhere
    | Failed
)
