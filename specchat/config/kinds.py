"""The configuration files by kind, and the name that none of their entries may have."""

from typing import Literal

Kind = Literal["settings", "models", "theme", "personas", "presets"]

NO_PERSONA = "none"
"""Stands for no persona where one is chosen by its name."""
