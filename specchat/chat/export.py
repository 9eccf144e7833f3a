"""Chats as documents."""

from specchat.chat.tree import Conversation
from specchat.clean import one_line


def as_markdown(conversation: Conversation) -> str:
    """The path that is shown, for people to read."""
    parts = [f"# {conversation.title}\n"]
    for turn in conversation.turns:
        parts.append(f"## You\n\n{turn.content}\n")
        if turn.reply is not None:
            parts.append(f"## {one_line(turn.reply.name)}\n\n{turn.reply.text}\n")
    return "\n".join(parts)
