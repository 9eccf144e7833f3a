"""`specchat` without a command: the app in the terminal."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from specchat.cli.exit_codes import ExitCode
from specchat.cli.options import Asked
from specchat.cli.output import Problem, told

if TYPE_CHECKING:
    from specchat.cli.prepare import Prepared
    from specchat.tui.launch import Launch


@told
def run_app(asked: Asked, theme: str | None) -> None:
    """Check the terminal and the configuration, then hand over to the app."""
    if not _terminal():
        raise Problem(
            "The app needs a terminal for input and output. In scripts and pipes use: specchat ask TEXT",
            ExitCode.NO_TERMINAL,
        )
    from specchat.cli.prepare import prepare
    from specchat.engine.client import EngineClient
    from specchat.tui.app import SpecchatApp

    prepared = prepare(asked)
    warnings: list[str] = []
    state = _state(prepared, warnings)
    launch = _launch(prepared, theme, state, warnings)
    engine = EngineClient(state / prepared.paths.engine_log.name if state else None)
    try:
        SpecchatApp(engine, prepared.catalog, launch).run()
    finally:
        engine.close()


def _terminal() -> bool:
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams) and os.environ.get("TERM") != "dumb"


def _state(prepared: "Prepared", warnings: list[str]) -> Path | None:
    from specchat.config.errors import ConfigError
    from specchat.config.paths import private_folder

    try:
        return private_folder(prepared.paths.state)
    except ConfigError as error:
        warnings.append(f"{error.message} Prompts and the engine's log are not kept.")
        return None


def _launch(prepared: "Prepared", theme: str | None, state: Path | None, warnings: list[str]) -> "Launch":
    from textual.theme import BUILTIN_THEMES

    from specchat.config.errors import nearest
    from specchat.config.paths import shipped
    from specchat.config.settings import save_setting
    from specchat.config.themes import load_themes
    from specchat.tui.launch import Launch

    paths, settings = prepared.paths, prepared.settings
    themes, problems = load_themes([shipped("themes"), paths.themes])
    warnings += problems
    wanted = theme or settings.theme
    known = [*(theme.name for theme in themes), *BUILTIN_THEMES]
    if wanted is not None and wanted not in known:
        sentence = f'There is no theme "{wanted}".{nearest(wanted, known)}'
        if theme is not None:
            raise Problem(sentence, ExitCode.USAGE)
        warnings.append(sentence)
    return Launch(
        pair=prepared.pair,
        strategy=prepared.strategy,
        draft_length=prepared.draft_length,
        acceptance=prepared.acceptance,
        sampling=prepared.sampling,
        seed=prepared.seed,
        limits=prepared.limits,
        system=prepared.system,
        theme=wanted,
        themes=themes,
        history=state / paths.prompt_history.name if state else None,
        remember=lambda key, value: save_setting(paths.settings_file, key, value),
        warnings=tuple(warnings),
    )
