"""The user's files: settings, pairs, themes, keys, personas, presets and servers of tools."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from specchat.config.catalog import Catalog
from specchat.config.errors import ConfigError
from specchat.config.paths import Paths, shipped
from specchat.config.personas import load_personas
from specchat.config.presets import load_presets
from specchat.config.settings import load_settings
from specchat.config.themes import load_themes, unknown_theme
from specchat.doctor.finding import Finding, note, ok, problem
from specchat.mcp_tools.servers import ToolServers
from specchat.mcp_tools.servers_file import read_servers

THEME = "SPECCHAT_THEME"


def settings(path: Path) -> Finding:
    try:
        given = [key for key, value in asdict(load_settings(path)).items() if value is not None]
    except ConfigError as error:
        return problem("settings", error.message)
    if not os.path.exists(path):
        return ok("settings", f"no {path}: all as shipped")
    return ok("settings", f"{path}: {', '.join(given) or 'nothing set'}")


def pairs(catalog: Catalog, own: Path | None, environ: Mapping[str, str] = os.environ) -> Finding:
    """The contents of a catalog that was read with the user's file `own`."""
    servers = {pair.id: pair.spec.target.server for pair in catalog.pairs if pair.spec.target.server is not None}
    count = f"{len(catalog.pairs)} pairs, of which {catalog.default} is the default"
    count += f" and {', '.join(servers)} {'run' if len(servers) > 1 else 'runs'} on a server" if servers else ""
    for name, server in servers.items():
        if server.key_env and not server.keyring and not environ.get(server.key_env):
            return note("models", f"{count}. Pair {name} cannot be loaded: its key_env {server.key_env} is not set.")
    return ok("models", f"{count}; with those of {own}" if own else count)


def themes(paths: Paths, environ: Mapping[str, str]) -> list[Finding]:
    """The themes there are, and whether the one that is wanted is among them."""
    found, problems = load_themes([shipped("themes"), paths.themes])
    findings = [
        ok("themes", ", ".join(theme.name for theme in found)),
        *(note("themes", f"{words} It is left out.") for words in problems),
    ]
    wanted = environ.get(THEME)
    if wanted and (unknown := unknown_theme(wanted, found)):
        findings.append(problem("theme", f"{THEME}: {unknown} The app does not start with it."))
    with suppress(ConfigError):  # `settings` reports it
        wanted = load_settings(paths.settings_file).theme
        if wanted and (unknown := unknown_theme(wanted, found)):
            findings.append(note("theme", f"{paths.settings_file}: {unknown} The app shows its own instead."))
    return findings


def personas(path: Path, unsupported: Callable[[str], str]) -> Finding:
    """The user's personas; `unsupported` gives a sentence for the name of a pair that cannot be loaded."""
    found, problems = load_personas([path])
    wrong = [(one.name, why) for one in found if one.pair is not None and (why := unsupported(one.pair))]
    problems += [f'{path}: persona "{name}" goes without its pair: {why}' for name, why in wrong]
    return _named("personas", path, [persona.name for persona in found], problems)


def presets(path: Path) -> Finding:
    """The user's presets."""
    found, problems = load_presets([path])
    return _named("presets", path, [preset.name for preset in found], problems)


def _named(name: str, path: Path, found: Sequence[str], problems: Sequence[str]) -> Finding:
    if problems:
        return note(name, " ".join(problems) + " The file is left out." * (not found))
    return ok(name, f"{path}: {', '.join(found) or 'none'}" if os.path.exists(path) else "as shipped")


def tools(path: Path, environ: Mapping[str, str]) -> Finding:
    """The servers of tools that mcp.json names. None is started."""
    try:
        statuses = ToolServers(read_servers(path)).statuses
    except ConfigError as error:
        return note("tools", f"{error.message} No tools can be used.")
    if not statuses:
        return ok("tools", f"no servers in {path}" if os.path.exists(path) else f"no {path}: no servers")
    for name, status in statuses.items():
        words = "" if status.entry.disabled else status.problem
        try:
            status.entry.resolved(environ)
        except ConfigError as error:
            words = words or error.message
        if words:
            return note("tools", f"{path}: {name} cannot be used. {words}")
    return ok("tools", f"{path}: {', '.join(statuses)}")


def keys(path: Path, changed: Sequence[str], problems: Sequence[str]) -> Finding:
    """The user's keys: the ids of actions that have others, and what is wrong with the rest."""
    return _named("keymap", path, changed, problems)
