"""The messages across the process boundary: requests to the engine, events and statistics from it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from specchat.engine.backends import DEFAULT_BACKEND
from specchat.engine.errors import ErrorKind
from specchat.engine.strategies import STRATEGIES

Role = Literal["system", "user", "assistant"]
Acceptance = Literal["coupled", "ratio", "block"]
FinishReason = Literal["stop", "length", "context", "cancelled"]
Quant = Literal["nf4", "fp4", "int8"]
"""How the matrices of a model's layers are kept. nf4 and fp4 have blocks of 64 with
double-quantised scales (QLoRA), int8 one scale a row (the weights of LLM.int8, without its activations)."""
Wanted = Quant | Literal["none"]
"""What may be asked for; "none" takes the weights as they are stored."""
Device = Literal["auto", "cpu", "cuda"]
CacheType = Literal["f32", "f16", "q8_0"]
"""What llama.cpp keeps an entry of the cache as."""
ContextPolicy = Literal["refuse", "drop-oldest", "keep-ends"]
"""Ways to deal with a chat that does not fit the context. "drop-oldest" leaves out the oldest turns, "keep-ends" those
after the first; a turn is a user's message and what was answered, and system messages and the last turn always stay."""

GREEDY_BELOW = 1e-5
"""Logits divided by a temperature under this may be infinite."""
QUANTS: tuple[Quant, ...] = ("nf4", "fp4", "int8")
CACHE_TYPES: tuple[CacheType, ...] = ("f32", "f16", "q8_0")
ACCEPTANCES: tuple[Acceptance, ...] = ("coupled", "ratio", "block")
CONTEXT_POLICIES: tuple[ContextPolicy, ...] = ("refuse", "drop-oldest", "keep-ends")


@dataclass(frozen=True)
class Message:
    """One turn of a chat."""

    role: Role
    content: str


@dataclass(frozen=True)
class Sampling:
    """How the target's next token is chosen. Processors apply in the order of the fields after `seed`.

    `repetition_penalty` divides positive and multiplies negative logits of seen tokens (CTRL, Keskar et al. 2019);
    presence and frequency penalties are subtracted from the logits of seen tokens, once and per occurrence.
    `top_k` 0, `top_p` 1 and `min_p` 0 are off.
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

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken and none is drawn."""
        return self.temperature < GREEDY_BELOW


@dataclass(frozen=True)
class Limits:
    """Where a reply ends, and what happens when there is no room for it: `max_tokens` None means until the context is
    full. Stop strings are looked for in what is generated, not in a prefill."""

    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    context: ContextPolicy = "drop-oldest"


@dataclass(frozen=True)
class Speculation:
    """How tokens are drafted and judged; every field may change in the middle of a reply."""

    strategy: str = "plain"
    draft_length: int = 0
    acceptance: Acceptance = "coupled"

    @classmethod
    def of(cls, strategy: str, draft_length: int | None = None, acceptance: Acceptance = "coupled") -> "Speculation":
        """A speculation with the strategy's own default draft length where none is given."""
        length = STRATEGIES[strategy].draft_length if draft_length is None else draft_length
        return cls(strategy, 0 if strategy == "plain" else length, acceptance)


def is_gguf(name: str) -> bool:
    """Whether this is the name of a GGUF file."""
    return name.lower().endswith(".gguf")


@dataclass(frozen=True)
class GgufOptions:
    """How llama.cpp runs a model. `gpu_layers` None: all where it can; `threads` None: the fastest of a few numbers."""

    gpu_layers: int | None = None
    threads: int | None = None
    cache: CacheType = "f16"
    flash_attention: bool = False


@dataclass(frozen=True)
class ModelSource:
    """Where a model's files are, a local folder (`path`) or a Hugging Face repository (`repo`), and how it is to run.

    A GGUF file is a `path` by itself, or a `file` of a repository. `quant` quantises an unquantised checkpoint while it
    is loaded. None takes the weights as they are stored, but for a draft on a GPU, for which the plan chooses.
    """

    path: str | None = None
    repo: str | None = None
    revision: str | None = None
    quant: Wanted | None = None
    device: Device = "auto"
    file: str | None = None
    gguf: GgufOptions = GgufOptions()

    @property
    def label(self) -> str:
        return self.path or "/".join(part for part in (self.repo, self.file) if part) or "?"

    @property
    def is_gguf(self) -> bool:
        """Whether it is a GGUF file by its name, or by being a file at all: Ollama's have other names."""
        return is_gguf(self.file or self.path or "") or os.path.isfile(os.path.expanduser(self.path or ""))


@dataclass(frozen=True)
class PairSpec:
    """A target with an optional draft, as the engine loads it.

    `draft_vocabulary` is the path of a file with the tokens that the draft may propose (model/draft_vocabulary.py).
    With `trust_remote_code` programs that come with the checkpoints are run, by the backend `hf` alone.
    """

    id: str
    name: str
    target: ModelSource
    draft: ModelSource | None = None
    backend: str = DEFAULT_BACKEND
    context: int | None = None
    draft_vocabulary: str | None = None
    trust_remote_code: bool = False


# Requests: client -> worker


@dataclass(frozen=True)
class Load:
    """Load a pair in the place of the one before, which is kept where files are missing or do not fit together.

    `failed` says how the GPU failed while a worker before loaded the pair: this one is to load it on the CPU.
    """

    pair: PairSpec
    failed: str = ""


@dataclass(frozen=True)
class Generate:
    """Answer `messages`; `id` comes back in every event of this reply.

    The reply begins with `prefill`, best ended with a word: models expect a space to begin the next one. A `cold` reply
    starts with empty caches and drafters that remember nothing, so that two of them compare fairly, and is not
    remembered itself. Others are, under the key of their `chat`.
    """

    id: int
    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    limits: Limits = Limits()
    speculation: Speculation = Speculation()
    prefill: str = ""
    cold: bool = False
    chat: str = ""


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
class StrategyStatus:
    """Whether a strategy works for the loaded pair, and in words why not."""

    name: str
    available: bool
    reason: str = ""


@dataclass(frozen=True)
class PairInfo:
    """The loaded pair. `memory` in bytes; plain speeds were measured at load on this machine."""

    id: str
    name: str
    device: str
    context: int
    vocab_size: int
    target_parameters: int
    draft_parameters: int
    memory: int
    strategies: tuple[StrategyStatus, ...]
    plain_tokens_per_second: float
    draft_cost: float | None
    """Draft step time over target step time, measured at load."""
    load_seconds: float
    exactness: str
    """How equality with plain decoding is ensured here, in words."""
    note: str
    """Why a pair is run otherwise than expected, such as on the CPU where there is a GPU, in words; "" if it is not."""
    plain_sampled_tokens_per_second: float = 0.0
    """Plain speed where tokens are drawn, which costs a small model much of a step; 0 where it was not measured."""
    gpu: str = ""
    """The UUID of the GPU that the target runs on, as NVML names it; empty on the CPU."""
    draft_tokens: int | None = None
    """How many tokens the draft may propose, where a draft vocabulary leaves some out."""
    warning: str = ""
    """What the pair asks for and does not get, in sentences; empty otherwise."""

    def plain_speed(self, sampling: Sampling) -> float:
        """The plain speed that a reply with these options is compared with, in tokens per second."""
        drawn = self.plain_sampled_tokens_per_second if not sampling.greedy else 0.0
        return drawn or self.plain_tokens_per_second

    def strategy(self, name: str) -> StrategyStatus:
        return next(s for s in self.strategies if s.name == name)


@dataclass(frozen=True)
class Loaded:
    info: PairInfo


@dataclass(frozen=True)
class Piece:
    """A run of whole graphemes and where its last token came from (one of `strategies.SOURCES`)."""

    text: str
    source: str


@dataclass(frozen=True)
class Started:
    """The prompt is in the cache: `reused` of its tokens were there already.

    The reply begins with the text `prefill`, whose tokens count as the prompt's; no step brings it. `dropped` messages
    of the chat were left out, as the context policy says; reading it took `prompt_ms` milliseconds.
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
    resolves it.
    """

    text: str
    probability: float | None = None
    parent: int | None = None


@dataclass(frozen=True)
class Step:
    """One verify step. Times in milliseconds, taken in the engine.

    `drafted` tokens were proposed, in a chain or a tree. `accepted` of them were kept; `tested` places were judged,
    one more than that where all candidates for the next place were refused. `emitted` tokens were added to the reply.
    `drafts` are the proposed tokens: the first `accepted` of them are in the reply, in order, the rest are not and
    stand as they were drafted, parents before children. `again` counts choices that were too close to be made among
    several rows and were made by one row alone.
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

    @property
    def milliseconds(self) -> float:
        return self.draft_ms + self.verify_ms + self.other_ms


@dataclass(frozen=True)
class Changed:
    """A change of speculation took effect after `tokens` reply tokens."""

    id: int
    speculation: Speculation
    tokens: int


@dataclass(frozen=True)
class Stats:
    """A reply's figures; the names are vLLM's where it has one.

    Over the steps that had a draft, `mean_acceptance_length` is one more than the accepted tokens a step: those that
    the target adds count, also where the reply ended before them. `draft_acceptance_rate` is the share of the drafted
    tokens that were accepted, `tested_acceptance_rate` that of the places that were judged: a draft is up to its first
    refusal. `acceptance_histogram[j]` counts the steps that accepted exactly j drafted tokens. `num_choices_again` is
    the sum of `Step.again`.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    completion_tokens: int = 0
    ttft_ms: float = 0.0
    tokens_per_second: float = 0.0
    speedup_vs_plain: float | None = None
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
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    other_ms: float = 0.0


@dataclass(frozen=True)
class Finished:
    """A reply is over. `text` is all of it, the prefill too; `token_ids` are the generated tokens alone."""

    id: int
    reason: FinishReason
    text: str
    token_ids: tuple[int, ...]
    stats: Stats


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
