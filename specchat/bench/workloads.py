"""The prompts that come with the program."""

from pathlib import Path

GENERAL = Path(__file__).parent / "prompts.jsonl"
"""Chat, code, summarise, edit, translation, story: for models that can do them; the demo pair has its own."""
