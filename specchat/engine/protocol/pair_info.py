"""A loaded pair: facts of its models, strategies, template and server."""

from specchat.dataclass import dataclass
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.pair import Activations
from specchat.engine.strategies import STRATEGIES


@dataclass(frozen=True)
class StrategyStatus:
    """Availability of a strategy for the loaded pair, with the reason if it is not supported."""

    name: str
    available: bool
    reason: str = ""


NO_TOOLS = "This model's chat template shows no tools, or no form of calls: take another model, or ask without tools."
NO_SYSTEM_ROLE = "This model's chat template has no system role: the system prompt goes before the first message."

TemplateChoices = tuple[tuple[str, tuple[str | bool, ...]], ...]
"""Arguments of a chat template, by name, with the values to choose from."""


@dataclass(frozen=True)
class TargetFacts:
    """Weights of a model, of its embeddings and head among them, and its tokens; 0 if unknown."""

    parameters: int = 0
    tables: int = 0
    vocabulary: int = 0


@dataclass(frozen=True)
class DraftFacts(TargetFacts):
    """The weights of a draft, and what limits it.

    Attributes:
        cost: time of its step over that of a target step, measured at load.
        tokens: how many it may propose, if not all.
        context: its context, if the target's is larger.
    """

    cost: float | None = None
    tokens: int | None = None
    context: int | None = None


@dataclass(frozen=True)
class PlainFacts:
    """Speed of plain decoding, measured at load; 0 if not measured. Sampling costs a small model much of a step.

    `server` is the one where the same model writes without drafting, in words; empty if there is none.
    """

    tokens_per_second: float = 0.0
    sampled_tokens_per_second: float = 0.0
    server: str = ""


@dataclass(frozen=True)
class TemplateFacts:
    """Properties of a chat template.

    Attributes:
        habits: names and descriptions.
        choices: arguments that users choose, with their values.
        system_role: False without one: a system prompt then precedes the first message.
        tools: True if it shows tools, and calls that can be read.
    """

    habits: tuple[tuple[str, str], ...] = ()
    choices: TemplateChoices = ()
    system_role: bool = True
    tools: bool = False


@dataclass(frozen=True)
class ReadTexts:
    """Bytes that entries of read texts take, or may take: in main memory, and on disk in `folder`."""

    memory: int = 0
    disk: int = 0
    folder: str = ""


@dataclass(frozen=True)
class LoadFacts:
    """Device and cost of a loaded pair.

    Attributes:
        device: in words.
        gpu: NVML's UUID of the target's GPU; empty on the CPU.
        memory: bytes.
        second_memory: bytes on a second GPU.
        seconds: duration of the load.
        read: most that read texts take.
        forms: forms of rows that the target's matrices take on a CPU, the one in use first; else empty.
    """

    device: str
    gpu: str = ""
    memory: int = 0
    seconds: float = 0.0
    read: ReadTexts = ReadTexts()
    forms: tuple[Activations, ...] = ()
    second_memory: int = 0

    @property
    def held(self) -> str:
        """The memory in words, of each GPU by itself."""
        second = f", and {self.second_memory >> 20:,} MiB on the second GPU" if self.second_memory else ""
        return f"{self.memory >> 20:,} MiB{second}"


@dataclass(frozen=True)
class PairNotes:
    """Sentences about a loaded pair.

    Attributes:
        exactness: the guarantee of equality with plain decoding.
        note: the reason if a pair runs differently than expected, such as on the CPU beside a GPU; else empty.
        warning: settings of the pair that do not take effect; else empty.
    """

    exactness: str
    note: str = ""
    warning: str = ""


@dataclass(frozen=True)
class PairServer:
    """The server that runs a pair and drafts as it was started.

    Attributes:
        name: in words; empty for a pair of this machine.
        continues: False if it cannot go on from the beginning of a reply.
        tells_sight: False if it does not say whether its model reads pictures.
    """

    name: str = ""
    continues: bool = True
    tells_sight: bool = True


@dataclass(frozen=True)
class PairInfo:
    """The loaded pair; one that `sees` takes messages with pictures, and a server may refuse them all the same."""

    id: str
    name: str
    context: int
    strategies: tuple[StrategyStatus, ...]
    load: LoadFacts
    notes: PairNotes
    target: TargetFacts = TargetFacts()
    draft: DraftFacts = DraftFacts()
    plain: PlainFacts = PlainFacts()
    template: TemplateFacts = TemplateFacts()
    server: PairServer = PairServer()
    sees: bool = False

    def plain_speed(self, sampling: Sampling) -> float:
        """The plain speed with these options, in tokens per second."""
        drawn = self.plain.sampled_tokens_per_second if not sampling.greedy else 0.0
        return drawn or self.plain.tokens_per_second

    def undrafted(self, strategy: str, tokens: int) -> str:
        """A warning if a chat of `tokens` is too long for the draft of a `strategy`; else ""."""
        if self.draft.context is None or tokens < self.draft.context:
            return ""
        if strategy != "auto" and not STRATEGIES[strategy].needs_draft:
            return ""
        return f"the draft model holds {self.draft.context:,} tokens: in a longer chat it drafts nothing"

    def strategy(self, name: str) -> StrategyStatus:
        return next(s for s in self.strategies if s.name == name)
