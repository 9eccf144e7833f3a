"""The user's files: settings, pairs, themes and keys."""

import os
from pathlib import Path

from specchat.config.catalog import Catalog
from specchat.config.errors import ConfigError
from specchat.config.keymap import read_keymap
from specchat.config.paths import Paths, shipped
from specchat.config.settings import load_settings
from specchat.config.themes import load_themes
from specchat.doctor.finding import Finding, note, ok, problem


def settings(path: Path) -> Finding:
    try:
        given = load_settings(path).model_dump(exclude_none=True)
    except ConfigError as error:
        return problem("settings", error.message)
    if not os.path.exists(path):
        return ok("settings", f"no {path}: all as shipped")
    return ok("settings", f"{path}: {', '.join(given) or 'nothing set'}")


def pairs(catalog: Catalog, own: Path | None) -> Finding:
    """What a catalog holds that was read with the user's file `own`."""
    count = f"{len(catalog.pairs)} pairs, of which {catalog.default} is the default"
    return ok("models", f"{count}; with those of {own}" if own else count)


def themes(paths: Paths) -> list[Finding]:
    found, problems = load_themes([shipped("themes"), paths.themes])
    names = ", ".join(theme.name for theme in found)
    return [ok("themes", names), *(note("themes", f"{told} It is left out.") for told in problems)]


def keys(path: Path) -> Finding:
    """How keys.toml is written; the ids of actions are known to the app only."""
    try:
        changed = read_keymap(path)
    except ConfigError as error:
        return note("keymap", f"{error.message} All actions keep their keys.")
    return ok("keymap", f"{path}: {', '.join(changed) or 'nothing changed'}" if os.path.exists(path) else "as shipped")
