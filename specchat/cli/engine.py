"""`specchat engine`: the engine that this user's windows and commands share."""

import json
from contextlib import suppress
from typing import Any

import click

from specchat.clean import one_line
from specchat.cli.output import Output, reports_errors


@click.group()
def engine() -> None:
    """See or stop the engine that windows and commands share, or have it forget what it read.

    The first program that needs an engine starts it, others join. It stays loaded for a while after the last one
    ends: `engine_minutes` in config.toml or SPECCHAT_ENGINE_MINUTES, 5 unless told otherwise. While windows are open
    it holds a GPU's memory until `gpu_minutes` or SPECCHAT_GPU_MINUTES, 15, have gone by without a request. What
    it has read stays in main memory, `keep_read` or SPECCHAT_KEEP_READ of it, and long texts on disk,
    `keep_read_on_disk` or SPECCHAT_KEEP_READ_ON_DISK.
    """


@engine.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list with an object for each engine.")
@reports_errors
def status(as_json: bool) -> None:
    """Say what is loaded, and who uses it."""
    found = _answers("status")
    if as_json:
        Output().write(json.dumps(found) + "\n")
        return
    lines = [line for answer in found for line in _lines(answer)] or ["No engine is running."]
    Output().write("".join(f"{line}\n" for line in lines) + _on_disk())


@engine.command()
@reports_errors
def stop() -> None:
    """End it, with what it is writing. Open windows start it again when they need it."""
    stopped = len(_answers("stop"))
    Output().write("Stopped.\n" if stopped else "No engine is running.\n")


@engine.command()
@reports_errors
def forget() -> None:
    """Remove the texts that it holds of what it has read, from main memory and from disk."""
    from specchat.config.paths import user_paths
    from specchat.engine.prefixes.on_disk import remove_all

    _answers("forget")
    count, size = remove_all(user_paths().read)
    Output().write(f"Removed {count} file{'s' * (count != 1)} ({_mib(size)}).\n")


def _on_disk() -> str:
    """A line on the files of read texts; empty without any."""
    from specchat.config.paths import user_paths

    folder, size = user_paths().read, 0
    with suppress(OSError):  # an engine may remove some
        size = sum(path.stat().st_size for path in folder.iterdir())
    return f"Read texts on disk: {_mib(size)} in {folder}\n" if size else ""


def _mib(size: float) -> str:
    return f"{size / (1 << 20):,.0f} MiB"


def _answers(want: str) -> list[dict[str, Any]]:
    from specchat.config.paths import user_paths
    from specchat.resident.control import engines

    return list(engines(user_paths().runtime, want))


def _lines(answer: dict[str, Any]) -> list[str]:
    """An engine's answer in lines; it may be of another version."""
    from specchat.resident.handshake import number, text

    lines = [f"specchat {one_line(text(answer, 'version'), 20)}, process {number(answer, 'pid'):.0f}"]
    for worker in _dicts(answer, "workers"):
        pair, device = one_line(text(worker, "pair"), 60), one_line(text(worker, "device"), 120)
        loaded = f"{pair} on {device}" if pair and device else pair or "no pair"
        clients = [
            f"{one_line(text(client, 'name'), 20)} (process {number(client, 'pid'):.0f})"
            for client in _dicts(worker, "clients")
        ]
        read = number(worker, "read_bytes")
        texts = f", holds {_mib(read)} of read texts" if read else ""
        together = number(worker, "replies_a_pass")
        texts += f", {together:.1f} replies in a pass of its last one" if together > 1 else ""
        used = f"used by {', '.join(clients)}" if clients else f"unused, ends {_after(number(answer, 'linger_s'))}"
        lines.append(f"  {loaded}: {one_line(text(worker, 'state'), 20)}, {used}{texts}")
    return lines


def _after(seconds: float) -> str:
    return f"{seconds / 60:.0f} min after its last use" if seconds >= 60 else "soon"


def _dicts(found: dict[str, Any], name: str) -> list[dict[str, Any]]:
    value = found.get(name)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
