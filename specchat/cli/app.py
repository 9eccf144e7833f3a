"""`specchat` without a command: the app in the terminal."""

import gc
import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import click

from specchat.cli.chat_store import closing, find_chat, opened_store, store_or_memory
from specchat.cli.exit_codes import ExitCode
from specchat.cli.output import Problem, reports_errors
from specchat.cli.wishes import Wishes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specchat.cli.prepare import Prepared
    from specchat.config.paths import Paths
    from specchat.engine.protocol.port import EnginePort
    from specchat.mcp_tools.servers import ToolServers
    from specchat.models.declare import DeclaredPair, Named
    from specchat.tui.launch import Launch
    from specchat.tune.beside import BesideCommand


@reports_errors
def run_app(wishes: Wishes, theme: str | None, chat: str | None = None) -> None:
    """Check the terminal and the configuration, then hand over to the app, with the chat called `chat` open."""
    if not _terminal():
        raise Problem(
            f"The app needs a terminal {'that can draw, and TERM is dumb' if _dumb() else 'for input and output'}. "
            "In scripts and pipes use: specchat ask TEXT, or specchat --plain for a chat by lines.",
            ExitCode.NO_TERMINAL,
        )
    gc.disable()  # until the app is warm: looking for garbage among what is imported is an eighth of the start
    from specchat.cli.prepare import engine_for, keeps_state, prepare

    prepared = prepare(wishes, otherwise=True)
    keeps = keeps_state(prepared.paths)
    engine = engine_for(prepared, "app")
    engine.start()  # it imports torch while the app is imported here
    try:
        code = _run(engine, prepared, _launch(prepared, theme, keeps, wishes), chat)
    finally:
        engine.close()
    if code:
        raise click.exceptions.Exit(code)


def _run(engine: "EnginePort", prepared: "Prepared", launch: "Launch", chat: str | None) -> int | None:
    """Show the app until it is left; gives its return code."""
    from specchat.tui.app import SpecchatApp

    with closing(launch.store):
        if chat is not None:
            launch = _going_on(launch, prepared, find_chat(launch.store, chat).key)
        folder = prepared.settings.sync_folder if launch.store.path is not None else None
        if folder is not None:
            Thread(target=_sync, args=(folder,), daemon=True).start()
        app = SpecchatApp(engine, prepared.catalog, launch)
        app.run()
    if folder is not None and (problem := _sync(folder)):
        click.echo(problem, err=True)
    return app.return_code


def _sync(folder: str) -> str:
    """Sync the chats with a folder, beside the app; gives what went wrong."""
    from specchat.chat.sync import sync
    from specchat.config.paths import user_paths
    from specchat.resident.control import forget_chat

    try:
        with opened_store() as store:
            outcome = sync(store, Path(folder).expanduser(), user_paths().synced)
        for key in outcome.deleted:
            forget_chat(user_paths().runtime, key)
        return " ".join(outcome.problems)
    except Problem as error:
        return error.message


def _going_on(launch: "Launch", prepared: "Prepared", key: str) -> "Launch":
    """`launch` with a saved chat open, whose own pair is loaded at once unless the command line names another."""
    from specchat.cli.going_on import pair_of_chat
    from specchat.config.errors import ConfigError

    row = launch.store.row(key)
    declared = pair_of_chat(row.view) if row is not None and not launch.named else ""
    launch = replace(launch, chat=key, again=False)
    with suppress(ConfigError):  # the app says so where something is written in the chat
        return replace(launch, pair=prepared.named(declared)) if declared else launch
    return launch


BUILT_IN = "demo"
"""The pair that comes with specchat: it can always be loaded."""


def _terminal() -> bool:
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams) and not _dumb()


def _dumb() -> bool:
    return os.environ.get("TERM") == "dumb"


def _add(paths: "Paths", models: Path | None, target: "Named", draft: "Named | None") -> "DeclaredPair":
    """Look at a pair and declare it; imported when the app asks, as the tokenizers are."""
    from specchat.config.catalog import read_catalog
    from specchat.engine.fetch.source import usual_hub
    from specchat.models.check import add
    from specchat.models.machine import this_machine

    taken = read_catalog(paths, models)
    return add(usual_hub(), models or paths.models_file, taken, target, draft, this_machine())


def _beside(arguments: "Sequence[str]") -> "BesideCommand":
    """Run a command beside the app; imported when the app asks."""
    from specchat.tune.beside import BesideCommand

    return BesideCommand(arguments)


def _tool_servers(file: Path, seconds: int | None) -> "tuple[ToolServers, list[str]]":
    """The servers of tools that the user has, none of which runs yet, and a sentence where the file is wrong."""
    from specchat.config.errors import ConfigError
    from specchat.mcp_tools.servers import CALL_S, ToolServers
    from specchat.mcp_tools.servers_file import read_servers

    try:
        return ToolServers(read_servers(file), CALL_S if seconds is None else seconds), []
    except ConfigError as error:
        return ToolServers(()), [f"{error} No tools can be used."]


def _launch(prepared: "Prepared", theme: str | None, keeps: bool, wishes: Wishes) -> "Launch":
    from specchat.config.keymap import read_keymap
    from specchat.config.live import LiveFiles
    from specchat.config.paths import shipped
    from specchat.config.personas import load_personas
    from specchat.config.presets import load_presets
    from specchat.config.saved_prompts import SavedPrompts
    from specchat.config.settings import save_setting
    from specchat.config.themes import load_themes, unknown_theme
    from specchat.service.state import ServiceOptions
    from specchat.tui.actions.table import ACTIONS
    from specchat.tui.launch import Launch, ModelsHere, UserConfig
    from specchat.tune.beside_work import TuningPlaces

    paths, settings, models = prepared.paths, prepared.settings, wishes.models
    themes, warnings = load_themes([shipped("themes"), paths.themes])
    personas, bad_personas = load_personas([shipped("personas.toml"), paths.personas_file])
    presets, bad_presets = load_presets([shipped("presets.toml"), paths.presets_file])
    warnings += [*bad_personas, *bad_presets, *([prepared.lost] if prepared.lost else [])]
    if not keeps:
        warnings.append(f"The folder {paths.state} cannot be made: prompts and the engine's log are not kept.")
    store, problem = store_or_memory(paths.chats)
    warnings += problem
    keymap, bad_keys = read_keymap(paths.keys_file, [action.id for action in ACTIONS])
    warnings += bad_keys
    servers, bad_servers = _tool_servers(paths.tools_file, settings.tool_seconds)
    warnings += bad_servers
    wanted = theme or settings.theme
    if wanted is not None and (sentence := unknown_theme(wanted, themes)):
        if theme is not None:
            raise Problem(sentence, ExitCode.USAGE)
        warnings.append(sentence)
    return Launch(
        pair=prepared.pair,
        named=bool(wishes.pair or wishes.target),
        again=prepared.again,
        preferences=prepared.preferences,
        store=store,
        service=ServiceOptions(
            fallback=next((pair for pair in prepared.catalog.pairs if pair.id == BUILT_IN), None),
            personas=personas,
            copies_saved=settings.copy_saved_chats is not False,
            servers=servers,
            uses_tools=settings.tools is True,
            used=prepared.used,
        ),
        config=UserConfig(
            theme=wanted,
            themes=themes,
            presets=presets,
            keymap=keymap,
            settings_file=paths.settings_file,
            tools_file=paths.tools_file,
            live=LiveFiles(paths, models),
            remember=lambda key, value: save_setting(paths.settings_file, key, value),
            notify=settings.notify or "auto",
            prompts=SavedPrompts(paths.prompts),
            warnings=tuple(warnings),
        ),
        history=paths.prompt_history if keeps else None,
        unsent=paths.draft if keeps else None,
        pasted=paths.pasted,
        models=ModelsHere(lambda: prepared.places, lambda target, draft: _add(paths, models, target, draft)),
        tuning=TuningPlaces(
            shelf=paths.tuned,
            order=paths.data / "tune" / "order.json",
            toml=models or paths.models_file,
            run=_beside,
            options=("--models", str(models.absolute())) if models else (),
        ),
    )
