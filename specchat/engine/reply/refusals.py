"""Requests that a loaded pair refuses before anything is computed."""

from collections.abc import Sequence

from specchat.engine.errors import ContextError, EngineError
from specchat.engine.protocol.options import Message, Speculation
from specchat.engine.protocol.pair_info import PairInfo
from specchat.engine.protocol.raw_prompt import text_of
from specchat.engine.protocol.requests import Count, Generate


def refuse_strategy(info: PairInfo, speculation: Speculation) -> None:
    """Raises EngineError: "request", for a strategy that there is not or that the pair cannot use."""
    status = next((one for one in info.strategies if one.name == speculation.strategy), None)
    if status is None:
        known = ", ".join(one.name for one in info.strategies)
        raise EngineError("request", f"There is no strategy {speculation.strategy!r}; there are {known}.")
    if not status.available:
        raise EngineError("request", f"Strategy {status.name!r} cannot be used with {info.name}: {status.reason}.")


def refuse_length(info: PairInfo, characters: int, request: Generate | Count) -> None:
    """Refuse a text that cannot fit, before it is split into tokens: megabytes take seconds.

    Args:
        characters: of the longest token; 0 if unknown.

    Raises:
        ContextError: it does not fit.
    """
    sent = request.messages if request.limits.context == "refuse" else request.messages[-1:]
    whole = len(text_of(request.raw)) + sum(len(message.content) for message in sent)
    least = whole // characters if characters else 0
    if least >= info.context:
        raise too_long(info, "This chat", f"at least {least:,}", request)


def too_long(info: PairInfo, what: str, tokens: str, request: Generate | Count) -> ContextError:
    """The refusal of a text of so many tokens, with what to shorten."""
    return ContextError(
        f"{what} takes {tokens} tokens and {info.name} holds {info.context:,}. "
        f"Shorten the {_longest(request.messages)} or start a new chat."
    )


def _longest(messages: Sequence[Message]) -> str:
    """The longest of what is never dropped, in words: the system prompt or the last message."""
    system = sum(len(message.content) for message in messages if message.role == "system")
    return "system prompt" if messages and system > len(messages[-1].content) else "message"
