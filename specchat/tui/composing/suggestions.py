"""First prompts, for those who do not know what to ask."""

SUGGESTIONS = (
    "Tell me a story about a fox and a lamp.",
    "How does speculative decoding work?",
    "Write a Python function to reverse a string.",
)
"""The built-in pair answers these well."""


def suggestion_after(typed: str) -> str:
    """The next prompt, the first one again after the last; empty where something else was typed."""
    if typed and typed not in SUGGESTIONS:
        return ""
    following = SUGGESTIONS.index(typed) + 1 if typed else 0
    return SUGGESTIONS[following % len(SUGGESTIONS)]
