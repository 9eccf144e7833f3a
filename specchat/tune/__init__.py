"""Trains what drafts for a target, on the target's own replies."""

from specchat.engine.strategy import Head

TUNED: tuple[Head, ...] = ("dflash", "eagle3", "medusa")
"""The families that can be trained, told without importing torch; `families.FAMILIES` has how."""
BEGUN_WITH = ".chats.json"
"""The file in the folder of an unfinished tune with the prompts of saved chats that it began with."""
