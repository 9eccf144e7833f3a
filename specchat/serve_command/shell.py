"""Commands as a shell takes them, and the pair to paste."""

import json
import shlex
from typing import Any

import tomlkit

from specchat.engine.protocol.options import Sampling
from specchat.serve_command.plan import ServedBy, ServePlan

WIDTH = 110


def as_json(value: Any) -> str:
    """JSON on one line."""
    return json.dumps(value, separators=(",", ":"))


def as_shell(command: tuple[str, ...]) -> str:
    """A command line, an option a line where it is long."""
    words = [shlex.quote(word) for word in command]
    whole = " ".join(words)
    if len(whole) <= WIDTH:
        return whole
    lines = [words[0]]
    for word in words[1:]:
        if word.startswith("-"):
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return " \\\n  ".join(lines)


def as_pair(plan: ServePlan, served: ServedBy) -> str:
    """The `[[pair]]` of the server."""
    pair, drafts = plan.pair, plan.strategy is not None
    table = tomlkit.table()
    table["id"] = f"{pair.id}-{served.keys['kind']}{'' if drafts else '-plain'}".replace(".", "")
    table["name"] = f"{pair.name} by {served.keys['kind']}{'' if drafts else ', without drafting'}"
    table["backend"] = "remote"
    table["url"] = f"http://127.0.0.1:{served.port}"
    for key, value in served.keys.items():
        table[key] = value
    if pair.spec.template:
        table["template"] = _inline(pair.spec.template)
    usual = Sampling()
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
    changed = {
        name: getattr(pair.sampling, name) for name in names if getattr(pair.sampling, name) != getattr(usual, name)
    }
    if changed:
        table["sampling"] = _inline(changed)
    pairs = tomlkit.aot()
    pairs.append(table)
    document = tomlkit.document()
    document["pair"] = pairs
    return tomlkit.dumps(document)


def _inline(values: Any) -> Any:
    table = tomlkit.inline_table()
    table.update(values)
    return table
