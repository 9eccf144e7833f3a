"""The messages across the process boundary: requests to the engine, events and statistics from it."""

from dataclasses import dataclass
from typing import Literal

from specchat.engine.errors import ErrorKind
from specchat.engine.options import NOTHING_WRITTEN, Limits, Message, Ranges, Sampling, Speculation, Written
from specchat.engine.pair import PairInfo, PairSpec

FinishReason = Literal["stop", "length", "context", "cancelled"]

# Requests: client -> worker


@dataclass(frozen=True)
class Load:
    """Load a pair in the place of the one before, which is kept where files are missing or do not fit together.

    `failed` says how the GPU failed while a worker before loaded the pair: this one is to load it on the CPU, or as it
    finds right where that is `remembered`.
    """

    pair: PairSpec
    failed: str = ""
    remembered: bool = False


@dataclass(frozen=True)
class Generate:
    """Answer `messages`; `id` comes back in every event of this reply.

    The answer begins with `prefill`, best ended with a word: models expect a space to begin the next one. In its place
    a reply that was `begun` goes on: from its tokens where these say what its text does, else from the text.
    A `cold` reply starts with empty caches and drafters that remember nothing, so that two of them compare fairly, and
    is not remembered itself. Others are, under the key of their `chat`.
    """

    id: int
    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    limits: Limits = Limits()
    speculation: Speculation = Speculation()
    prefill: str = ""
    begun: Written = NOTHING_WRITTEN
    cold: bool = False
    chat: str = ""

    @property
    def beginning(self) -> Written:
        """What the reply begins with."""
        return self.begun if self.begun.text else Written(self.prefill)


@dataclass(frozen=True)
class Change:
    """From the next step on, draft like this."""

    id: int
    speculation: Speculation


@dataclass(frozen=True)
class Cancel:
    """Stop reply `id` at the next step; its text so far is kept."""

    id: int


@dataclass(frozen=True)
class Count:
    """How many tokens would a `Generate` with the same fields take as a prompt, and what would it leave out?"""

    id: int
    messages: tuple[Message, ...]
    limits: Limits = Limits()
    prefill: str = ""


@dataclass(frozen=True)
class Remember:
    """Replies of a saved chat, which drafts may copy from; a chat that something is known of is left as it is.

    The newest first, and newest chats first: what is too much is left out. Nothing is answered.
    """

    chat: str
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Forget:
    """Copy no more from a chat, or with None from whatever `Remember` told. Nothing is answered."""

    chat: str | None


@dataclass(frozen=True)
class Shutdown:
    """End the worker."""


Request = Load | Generate | Change | Cancel | Count | Remember | Forget | Shutdown


# Events: worker -> client


@dataclass(frozen=True)
class Loading:
    """The progress of loading; `fraction` in 0..1, None where it cannot be known."""

    what: str
    fraction: float | None = None


@dataclass(frozen=True)
class Loaded:
    info: PairInfo


@dataclass(frozen=True)
class Piece:
    """A run of whole graphemes and where its last token came from (one of `strategies.SOURCES`).

    `reasoning` is text that is no part of the answer.
    """

    text: str
    source: str
    reasoning: bool = False


@dataclass(frozen=True)
class Started:
    """The prompt is in the cache: `reused` of its tokens were there already.

    The reply begins with the text `prefill`, whose tokens count as the prompt's, as those of a reply that was begun do;
    no step brings it. `dropped` messages of the chat were left out, as the context policy says; reading it took
    `prompt_ms` milliseconds.
    """

    id: int
    prompt_tokens: int
    reused: int
    seed: int
    speculation: Speculation
    prefill: str = ""
    dropped: int = 0
    prompt_ms: float = 0.0


@dataclass(frozen=True)
class Drafted:
    """A drafted token: its text alone, and the probability that the drafter gave it, None where it has none to tell.

    Bytes that are no whole character show as U+FFFD, special tokens by their names. The probability is that after the
    sampling options. `parent` is the draft of the same step that it follows, an index into `Step.drafts`, -1 for the
    token that was pending when the step began; None for the draft before it, as in a chain. `step_tree.StepTree`
    resolves it. A `mark` is a token that no text shows: one around reasoning, or a special one.
    """

    text: str
    probability: float | None = None
    parent: int | None = None
    mark: bool = False


@dataclass(frozen=True)
class Speedup:
    """Times as fast as plain decoding, and the bounds between which that lies with a chance of 95 %."""

    times: float
    low: float
    high: float


@dataclass(frozen=True)
class Step:
    """One verify step. Times in milliseconds, taken in the engine. `waited_ms` were spent waiting for a processor that
    other programs had, and are in no other part.

    `drafted` tokens were proposed, in a chain or a tree. `accepted` of them were kept; `tested` places were judged,
    one more than that where all candidates for the next place were refused. `emitted` tokens were added to the reply.
    `drafts` are the proposed tokens: the first `accepted` of them are in the reply, in order, the rest are not and
    stand as they were drafted, parents before children. `again` counts choices that were too close for how
    their rows are rounded, and were made again. `usual_ms` is what the step takes where the machine is not slow,
    `plain_ms` what plain decoding takes there for its tokens, of which `plain_error` is unsure; 0 where they are
    unknown. A step that `turned` the reply found that all of its text before was reasoning, which nothing had opened.
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

    @property
    def ran_ms(self) -> float:
        return self.draft_ms + self.verify_ms + self.other_ms

    @property
    def milliseconds(self) -> float:
        return self.ran_ms + self.waited_ms


@dataclass(frozen=True)
class Changed:
    """A change of speculation took effect after `tokens` reply tokens."""

    id: int
    speculation: Speculation
    tokens: int


@dataclass(frozen=True)
class Stats:
    """A reply's figures; the names are vLLM's where it has one.

    `mean_acceptance_length` is one more than the accepted tokens a step, over all verify steps, with a draft or
    without: the token that the target adds to a step counts, also where the reply ended before it.
    `draft_acceptance_rate` is the share of the drafted tokens that were accepted, `tested_acceptance_rate` that of the
    places that were judged: a draft is up to its first rejection. `acceptance_histogram[j]` counts the steps that
    accepted exactly j drafted tokens, `num_spec_steps` those that had a draft. `num_choices_again` is the sum of
    `Step.again`. So many tokens as `num_repeated_tokens` at the beginning are those of an earlier reply, where most of
    them were copied.

    `speedup_vs_plain` is None while too little is known to tell it. Its 95 % bounds are `speedup_interval`.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    completion_tokens: int = 0
    ttft_ms: float = 0.0
    tokens_per_second: float = 0.0
    speedup_vs_plain: float | None = None
    speedup_interval: tuple[float, float] | None = None
    num_steps: int = 0
    num_spec_steps: int = 0
    num_draft_tokens: int = 0
    num_tested_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    mean_acceptance_length: float = 1.0
    draft_acceptance_rate: float = 0.0
    tested_acceptance_rate: float = 0.0
    acceptance_histogram: tuple[int, ...] = ()
    per_step_accepted: tuple[int, ...] = ()
    num_choices_again: int = 0
    num_repeated_tokens: int = 0
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    other_ms: float = 0.0
    waited_ms: float = 0.0

    @property
    def length(self) -> int:
        """Tokens of prompt and reply."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def ran_ms(self) -> float:
        return self.draft_ms + self.verify_ms + self.other_ms

    @property
    def milliseconds(self) -> float:
        """Of all steps: a draft model's reading of the prompt is in it, the target's is not."""
        return self.ran_ms + self.waited_ms


@dataclass(frozen=True)
class Finished:
    """A reply is over. `text` is all of it, what it began with too; `token_ids` are the generated tokens alone.

    The ranges `reasoning` of the text are no answer; `thinking` says that the last of them was not closed.
    """

    id: int
    reason: FinishReason
    text: str
    token_ids: tuple[int, ...]
    stats: Stats
    reasoning: Ranges = ()
    thinking: bool = False

    @classmethod
    def unbegun(cls, request: Generate) -> "Finished":
        """The end of a reply that was cancelled before its prompt was read."""
        return cls.of(request.id, "cancelled", request.beginning, (), Stats())

    @classmethod
    def of(
        cls, reply: int, reason: FinishReason, written: Written, token_ids: tuple[int, ...], stats: Stats
    ) -> "Finished":
        """The end of a reply that says what was `written`; `token_ids` are those generated."""
        return cls(reply, reason, written.text, token_ids, stats, written.reasoning, written.thinking)

    @property
    def written(self) -> Written:
        return Written(self.text, self.reasoning, self.thinking, self.token_ids)


@dataclass(frozen=True)
class Counted:
    """The prompt would take `tokens` of the `context`, after `dropped` messages were left out.

    It would be refused where `tokens` reach `context`.
    """

    id: int
    tokens: int
    context: int
    dropped: int = 0


@dataclass(frozen=True)
class Failed:
    """A request could not be done; the engine is still usable unless `kind` is "died".

    `id` is the reply that failed, None for loading. "died" is made by the client when the worker is gone, or
    sent by a worker that ends itself.
    """

    id: int | None
    kind: ErrorKind
    message: str


Event = Loading | Loaded | Started | Step | Changed | Finished | Counted | Failed
