"""`specchat doctor`: what works on this machine, what does not, and what to do about it."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specchat.cli.exit_codes import ExitCode
from specchat.cli.interrupt import Interrupt
from specchat.cli.options import PAIR_OPTIONS, with_options
from specchat.cli.output import Output, Problem, ProgressLine, reports_errors
from specchat.cli.wishes import Wishes

if TYPE_CHECKING:
    from specchat.config.catalog import Pair
    from specchat.config.paths import Paths
    from specchat.doctor.finding import Finding
    from specchat.doctor.gpu_checks import GpuCheck
    from specchat.doctor.gpu_report import Outcome

REPORT = "specchat-gpu.zip"


@click.command()
@with_options(PAIR_OPTIONS)
@click.option("--engine", "with_engine", is_flag=True, help="Also load the pair in the engine process and measure it.")
@click.option("--gpu", "of_gpu", is_flag=True, help="Check the GPU path instead, for minutes, and write a report.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"With --gpu, the zip to write instead of {REPORT} here.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@reports_errors
def doctor(with_engine: bool, of_gpu: bool, report: Path | None, as_json: bool, **options: Any) -> None:
    """Look at versions, terminal, folders, configuration and GPU, and say what is wrong.

    Uses no network and changes nothing; but --gpu writes its report, and remembers whether the card can be used. Ends
    with code 3 when something keeps specchat from working, or a check of the GPU path goes wrong.
    """
    if of_gpu:
        if with_engine:
            raise click.UsageError("--gpu and --engine are two runs: leave one out.")
        _gpu(report or Path(REPORT), as_json)
        return
    if report is not None:
        raise click.UsageError("--report is for --gpu.")
    from specchat.config.paths import user_paths
    from specchat.doctor.chats import chats
    from specchat.doctor.folders import folders, model_cache
    from specchat.doctor.gpu import gpus, resting
    from specchat.doctor.terminal import clipboard, terminal, window
    from specchat.doctor.versions import versions

    paths = user_paths()
    configured, pair = _configuration(paths, Wishes.of(options))
    findings = [
        *versions(),
        *terminal(os.environ, window()),
        clipboard(os.environ),
        *folders(paths),
        chats(paths.chats),
        model_cache(),
        *configured,
        *_own_models(options["models"]),
        *gpus(),
        *resting(),
    ]
    if with_engine and pair is not None:
        findings += _engine(pair, paths)
    usable = all(finding.status != "problem" for finding in findings)
    if as_json:
        found = {"usable": usable, "findings": [asdict(finding) for finding in findings]}
        Output().write_json(found)
    else:
        Output().write(_as_text(findings, usable))
    if not usable:
        raise click.exceptions.Exit(ExitCode.UNUSABLE)


def _configuration(paths: "Paths", wishes: Wishes) -> "tuple[list[Finding], Pair | None]":
    """Findings on the user's files, and the pair that would be loaded if they can be used."""
    from specchat.cli.pairs import named_pair
    from specchat.cli.prepare import prepare
    from specchat.config.catalog import read_catalog
    from specchat.config.errors import ConfigError
    from specchat.doctor import configuration
    from specchat.doctor.finding import note, ok, problem

    def unsupported(name: str) -> str:
        try:
            named_pair(name, wishes.models)
        except ConfigError as error:
            return error.message
        return ""

    findings = [configuration.settings(paths.settings_file)]
    own = wishes.models or (paths.models_file if os.path.lexists(paths.models_file) else None)
    pair = None
    try:
        catalog = read_catalog(paths, wishes.models)
        findings.append(configuration.pairs(catalog, own))
    except ConfigError as error:
        findings.append(problem("models", error.message))
    if all(finding.status == "ok" for finding in findings):
        try:
            prepared = prepare(wishes, otherwise=True)
            pair = prepared.pair
            findings.append(note("pair", prepared.lost) if prepared.lost else ok("pair", f"{pair.id}: {pair.name}"))
        except ConfigError as error:
            findings.append(problem("pair", error.message))
    findings += [*configuration.themes(paths, os.environ), _keys(paths.keys_file)]
    findings += [configuration.personas(paths.personas_file, unsupported), configuration.presets(paths.presets_file)]
    return [*findings, configuration.tools(paths.tools_file, os.environ)], pair


def _own_models(models: Path | None) -> "list[Finding]":
    """The models that were found on this machine, and what those need that cannot be loaded as it is."""
    from specchat.cli.pairs import Configured
    from specchat.config.errors import ConfigError
    from specchat.doctor.finding import note, ok
    from specchat.models.library import look
    from specchat.models.machine import missing_packages, unable
    from specchat.models.offers import found_pairs

    try:
        library = look(Configured.read(models).places)
    except ConfigError:  # told where the files are looked at
        return []
    pairs, missing = [*found_pairs(library).values()], missing_packages()
    reasons = [reason for pair in pairs if (reason := pair.unsupported or unable(pair.spec, missing, foreign=True))]
    found = f"{len(pairs)} found on this machine; specchat models lists them"
    if reasons:
        return [note("found models", f"{found}. {len(reasons)} cannot be loaded. The first: {reasons[0]}")]
    return [ok("found models", found)]


def _keys(path: Path) -> "Finding":
    from specchat.doctor import configuration

    if not os.path.lexists(path):
        return configuration.keys(path, (), ())
    from specchat.config.keymap import read_keymap
    from specchat.tui.actions.table import ACTIONS
    from specchat.tui.keys import Keys

    keymap, mistakes = read_keymap(path, [action.id for action in ACTIONS])
    keys = Keys(ACTIONS, keymap)
    return configuration.keys(path, keys.changed, [*mistakes, *keys.problems])


def _engine(pair: "Pair", paths: "Paths") -> "list[Finding]":
    from specchat.cli.prepare import keeps_state
    from specchat.doctor.engine import engine
    from specchat.engine.process.client import EngineClient
    from specchat.service.loading import Stopped

    os.environ["HF_HUB_OFFLINE"] = "1"  # the engine process takes it over: looking must not download
    progress = ProgressLine()
    client = EngineClient(paths.engine_log if keeps_state(paths) else None)
    with Interrupt() as interrupt:
        try:
            return engine(client, pair, progress.show, lambda: interrupt.pressed)
        except Stopped:
            raise click.Abort from None
        finally:
            progress.clear()
            client.close()


def _gpu(path: Path, as_json: bool) -> None:
    from specchat.config.paths import demo_model, user_paths
    from specchat.doctor.gpu_checks import CHECKS
    from specchat.doctor.gpu_report import GpuReport, Listener, run_all
    from specchat.doctor.gpu_verdict import remember

    try:
        report = GpuReport(path.absolute(), user_paths().engine_log)
    except OSError as error:
        raise Problem(
            f"{path} cannot be written ({error.strerror}). Name another with --report.", ExitCode.USAGE
        ) from None
    progress, output = ProgressLine(), Output()

    def begins(number: int, check: "GpuCheck") -> None:
        progress.show(f"{check.name}: {check.about}", number / len(CHECKS))

    def ended(check: "GpuCheck", outcome: "Outcome") -> None:
        progress.clear()
        if not as_json:
            output.write(_line(check, outcome))

    try:
        run_all(CHECKS, report, demo_model("target").parent, Listener(begins, ended))
    finally:
        progress.clear()
    remember(CHECKS, report)
    sentence = report.finish()
    summary = {**report.summary(), "report": str(report.path)}
    output.write(json.dumps(summary, indent=2) + "\n" if as_json else f"\n{sentence}\n")
    if report.bad:
        raise click.exceptions.Exit(ExitCode.UNUSABLE)


def _line(check: "GpuCheck", outcome: "Outcome") -> str:
    words = f": {outcome.words}" if outcome.words else ""
    return f"{outcome.state:<11}  {check.name:<11}  {outcome.seconds:>3.0f} s  {check.about}{words}\n"


def _as_text(findings: "list[Finding]", usable: bool) -> str:
    from specchat.clean import one_line

    width = max(len(finding.name) for finding in findings)
    lines = [f"{f.status:<7}  {f.name:<{width}}  {one_line(f.text, 1000)}" for f in findings]
    end = "specchat can be used." if usable else "specchat cannot be used before the problems above are solved."
    return "\n".join([*lines, "", end, ""])
