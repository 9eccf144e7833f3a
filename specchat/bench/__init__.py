"""Measures our strategies and other programs on the same weights, prompts and machine, in one run."""

from pathlib import Path

GENERAL_PROMPTS = Path(__file__).parent / "prompts.jsonl"
"""Chat, code, summarise, edit, translation, story: for models that can do them; the demo pair has its own."""
DEMO_PROMPTS = Path(__file__).parents[1] / "demo" / "prompts.jsonl"
"""Prompts that the demo pair learnt to answer."""
