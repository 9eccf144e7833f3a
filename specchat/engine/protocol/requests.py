"""Requests across the process boundary, from the client to the engine's worker."""

from specchat.dataclass import dataclass
from specchat.engine.protocol.options import (
    NOTHING_WRITTEN,
    Arguments,
    Grammar,
    Limits,
    Message,
    Sampling,
    Speculation,
    Tool,
    ToolChoice,
    Written,
)
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.raw_prompt import RawPrompt


@dataclass(frozen=True)
class Load:
    """Load a pair and release the one before, unless the new one's files are missing or do not match.

    `failed` describes how the GPU failed while an earlier worker loaded the pair. This worker then loads on the CPU, or
    chooses by its own record of the failure if that is `remembered`.
    """

    pair: PairSpec
    failed: str = ""
    remembered: bool = False


@dataclass(frozen=True)
class Generate:
    """Answer `messages`; every event of this reply carries `id`.

    Attributes:
        prefill: start of the answer. It should end with a whole word, because models expect a space before the next.
        begun: a reply to continue instead of `prefill`, from its tokens if they decode to its text, else from the text.
        cold: start with empty caches and reset drafters, so that replies compare fairly, and do not enter the
            cross-chat n-gram cache.
        chat: key of the chat in that cache.
        template: arguments of the chat template, before those of the pair; those that it does not take are left out.
        raw: a prompt in place of `messages`, without the chat template.
        tools: functions that the reply may call, as `tool_choice` says.
        grammar: holds the answer; None leaves it free.
        undrafted: of a pair on a server, write the reply without drafting, see `PlainFacts.server`.
        logprobs: has steps tell log-probabilities of their tokens, and of as many of the likeliest ones of each place.
        scored: has `Started` tell them of the prompt's tokens too, and the last step that of the token that ends it.
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
    template: Arguments = ()
    raw: RawPrompt = ""
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    grammar: Grammar | None = None
    undrafted: bool = False
    logprobs: int | None = None
    scored: bool = False

    @property
    def beginning(self) -> Written:
        """Start of the reply."""
        return self.begun if self.begun.text else Written(self.prefill)


@dataclass(frozen=True)
class Change:
    """Change how reply `id` is drafted from the next step on."""

    id: int
    speculation: Speculation


@dataclass(frozen=True)
class Cancel:
    """Stop reply `id` at the next step; its text stays."""

    id: int


@dataclass(frozen=True)
class Count:
    """Count the prompt tokens of a `Generate` with the same fields, and the messages that it would drop.

    `tokens` asks for the tokens themselves, and for their text.
    """

    id: int
    messages: tuple[Message, ...]
    limits: Limits = Limits()
    prefill: str = ""
    template: Arguments = ()
    raw: RawPrompt = ""
    tokens: bool = False
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"


@dataclass(frozen=True)
class Remember:
    """Add the replies of a saved chat to the cross-chat n-gram cache, unless the chat is in it. No event answers.

    Send the newest replies and chats first: a full cache takes no more.
    """

    chat: str
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Forget:
    """Remove a chat from the cross-chat n-gram cache, and what was read for it alone. No event answers.

    With None all remembered ones are removed from that cache, and nothing that was read.
    """

    chat: str | None


@dataclass(frozen=True)
class ForgetRead:
    """Remove what was read of all texts, from main memory and disk. No event answers."""


@dataclass(frozen=True)
class Watch:
    """Have the replies of other clients told: their starts and ends, with `steps` all of them. An engine that is not
    shared has none.
    """

    steps: bool = False


@dataclass(frozen=True)
class Shutdown:
    """End the worker."""


Request = Load | Generate | Change | Cancel | Count | Remember | Forget | ForgetRead | Watch | Shutdown
