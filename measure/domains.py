"""Writes prompts of narrow domains, to train drafts on: `python -m measure.domains FOLDER [--spec-bench FILE]`.

`code.jsonl` asks to explain or change functions of Python's standard library, `logs.jsonl` and `json.jsonl` hold
made-up log lines and objects. With Spec-Bench's questions `translation.jsonl` and `word-problems.jsonl` come too.
"""

import ast
import importlib
import inspect
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import click

COUNT = 200
SEED = 11
MODULES = (
    "bisect", "calendar", "colorsys", "copy", "fnmatch", "fractions", "functools", "glob", "gzip", "heapq", "html",
    "inspect", "keyword", "linecache", "mimetypes", "nturl2path", "operator", "os", "pathlib", "posixpath", "pprint",
    "quopri", "random", "reprlib", "shlex", "shutil", "statistics", "string", "tempfile", "textwrap", "tokenize",
    "types", "uuid", "zipfile",
)  # fmt: skip
CODE_LENGTHS = range(60, 500)
"""Characters of a function."""
CHANGES = (
    "Explain what this function does.", "Rename the first parameter to value.", "Add a docstring to this function.",
    "What does this return?", "Write this function with type hints.",
)  # fmt: skip
SERVICES = ("nginx", "sshd", "cron", "kernel", "postgres", "redis", "dhclient", "systemd")
LEVELS = ("INFO", "WARN", "ERROR", "DEBUG")
EVENTS = (
    "connection from {ip} closed", "request took {n} ms", "user {name} logged in", "disk usage at {p} percent",
    "retry {p} of 100 for job {n}", "cache miss for key {name}:{n}", "timeout after {n} ms to {ip}",
)  # fmt: skip
LOG_TASKS = (
    "Which of these lines are errors?", "Repeat these lines without the time.", "Summarise this log.",
    "Sort these lines by service.",
)  # fmt: skip
NAMES = ("anna", "boris", "carla", "deniz", "emil", "fatima", "george", "hana")
JSON_TASKS = (
    "Convert this JSON to YAML.", "Convert this JSON to a table.", "Rename the key id to number.",
    "Which keys does this object have?",
)  # fmt: skip


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--spec-bench", type=click.Path(exists=True, path_type=Path), help="Spec-Bench's question.jsonl.")
def main(folder: Path, spec_bench: Path | None) -> None:
    """Write a file a domain."""
    folder.mkdir(parents=True, exist_ok=True)
    random = Random(SEED)
    _put(folder / "code.jsonl", [f"{random.choice(CHANGES)}\n{each}" for each in random.sample(functions(), COUNT)])
    _put(folder / "logs.jsonl", [f"{random.choice(LOG_TASKS)}\n{log(random)}" for _ in range(COUNT)])
    _put(folder / "json.jsonl", [f"{random.choice(JSON_TASKS)}\n{json.dumps(made(random))}" for _ in range(COUNT)])
    if spec_bench is not None:
        asked = [json.loads(line) for line in spec_bench.read_text(encoding="utf-8").splitlines()]
        for name, category in (("translation", "translation"), ("word-problems", "math_reasoning")):
            _put(folder / f"{name}.jsonl", [each["turns"][0] for each in asked if each["category"] == category])


def functions() -> list[str]:
    """Short functions of the standard library, as they are written there."""

    def short(module: str) -> Iterator[str]:
        source = inspect.getsource(importlib.import_module(module))
        for node in ast.parse(source).body:
            found = ast.get_source_segment(source, node) if isinstance(node, ast.FunctionDef) else None
            if found is not None and len(found) in CODE_LENGTHS:
                yield found

    return [each for module in MODULES for each in short(module)]


def log(random: Random) -> str:
    """A few lines of a log."""
    second, lines = random.randrange(80_000), []
    for _ in range(random.randint(2, 4)):
        second += random.randint(1, 90)
        ip = ".".join(str(random.randint(1, 254)) for _ in range(4))
        event = random.choice(EVENTS).format(
            ip=ip, n=random.randint(2, 900), p=random.randint(1, 99), name=random.choice(NAMES)
        )
        at = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
        lines.append(
            f"2026-11-{random.randint(1, 9):02} {at} {random.choice(LEVELS)} {random.choice(SERVICES)}: {event}"
        )
    return "\n".join(lines)


def made(random: Random) -> dict[str, object]:
    """An object of a few keys."""
    every: dict[str, object] = {
        "id": random.randint(1, 9_999), "name": random.choice(NAMES), "active": random.random() < 0.5,
        "tags": random.sample(("new", "paid", "late", "large", "home"), 2), "price": random.randint(100, 99_900) / 100,
        "address": {"street": f"{random.randint(1, 99)} Mill Lane", "city": random.choice(("Bonn", "Leeds", "Turin"))},
        "visits": [random.randint(1, 30) for _ in range(3)], "note": random.choice((None, "call back", "fragile")),
    }  # fmt: skip
    kept = random.sample([*every], random.randint(3, 6))
    return {key: value for key, value in every.items() if key in kept}


def _put(path: Path, prompts: Sequence[str]) -> None:
    path.write_text("".join(json.dumps({"turns": [each]}) + "\n" for each in prompts), encoding="utf-8")
    click.echo(f"{path}: {len(prompts)} prompts")


if __name__ == "__main__":
    main()
