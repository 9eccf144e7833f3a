"""Files of prompts: a JSON object a line, as chats or in the form of MT-Bench and Spec-Bench."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from specchat.bench import DEMO_PROMPTS, GENERAL_PROMPTS
from specchat.engine.errors import EngineError
from specchat.engine.protocol.options import Message, Role
from specchat.reading import read_text


@dataclass(frozen=True)
class ChatPrompt:
    """A chat to answer; `category` is empty where the file names none."""

    id: str
    category: str
    messages: tuple[Message, ...]


ROLES = ("system", "user", "assistant")
DEMO = "demo"
"""The pair that comes with prompts of its own."""


def shipped_prompts(pair: str, general: bool = False) -> Path:
    """The prompts that come with the program for a pair: in the demo pair's reach, or for real models (`general`)."""
    return GENERAL_PROMPTS if general or pair != DEMO else DEMO_PROMPTS


def read_prompts(path: Path) -> list[ChatPrompt]:
    """The prompts of a file: `messages` as in a chat, or `turns`, of which the first is asked.

    Raises:
        EngineError: the file cannot be read or holds something else, with the line.
    """
    try:
        lines = read_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise EngineError("request", f"{path} cannot be read ({reason}). Check the path.") from None
    prompts = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            turns = data.get("messages") or [{"role": "user", "content": data["turns"][0]}]
            name = str(data.get("id") or data.get("question_id") or number)
            messages = tuple(_message(turn["role"], turn["content"]) for turn in turns)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise EngineError(
                "request", f'{path}, line {number}: expected a JSON object with "messages" or "turns", texts in them.'
            ) from None
        prompts.append(ChatPrompt(name, str(data.get("category") or ""), messages))
    if not prompts:
        raise EngineError("request", f"{path} holds no prompts.")
    return prompts


def _message(role: object, content: object) -> Message:
    """A message of a chat, whose last one is answered.

    Raises:
        ValueError: a role that has no place in a prompt, or a content that is no text.
    """
    if not isinstance(content, str) or role not in ROLES:
        raise ValueError(role, content)
    return Message(cast(Role, role), content)


def spread(prompts: list[ChatPrompt], limit: int) -> list[ChatPrompt]:
    """At most `limit` prompts, evenly over the list: files are often sorted by category."""
    count = min(limit, len(prompts))
    return [prompts[i * len(prompts) // count] for i in range(count)]
