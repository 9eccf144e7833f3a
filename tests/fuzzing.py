"""Damaged configs, heads, GGUF headers and manifests by the thousand: each is read, or refused in a sentence.

    python -m tests.fuzzing [--files 5000] [--seed 1]

Nothing but an EngineError may come of one, within SECONDS and MEMORY, and nothing is written outside its folder.
"""

import argparse
import json
import random
import resource
import shutil
import signal
import struct
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

from specchat.config.catalog import load_catalog
from specchat.engine.decoding.cached import CachedModel
from specchat.engine.errors import EngineError
from specchat.engine.fetch.source import Hub
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.recipe import need
from specchat.engine.hf.files import HfFiles
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.strategies import HEADS
from specchat.engine.strategy import Head, resolved
from specchat.engine.text.tokenizer import Tokenizer
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.models.about import about_folder, about_gguf
from specchat.models.library import ModelPlaces, look
from specchat.models.machine import FreeMemory
from specchat.models.offers import offers
from tests.engine import published_blocks, published_heads
from tests.engine.tiny import FAMILY, checkpoint
from tests.models.made import gguf, ollama

SECONDS, MEMORY = 5.0, 1 << 30
"""Of the processor, as others may use it too, and bytes."""
PATIENCE_S = 60.0
"""Until something that only waits counts as hanging."""
CONTEXT = 64
HOSTILE: tuple[Callable[[random.Random], Any], ...] = (
    lambda _: None, lambda _: True, lambda _: False, lambda _: [], lambda _: {}, lambda _: "", lambda _: float("nan"),
    lambda _: float("inf"), lambda _: -1, lambda _: 0, lambda _: 1, lambda _: 2**31, lambda _: 10**400, lambda _: 0.5,
    lambda _: "x" * 100_000, lambda _: "\ud800", lambda _: "a\0b", lambda _: "../../../etc/passwd", lambda _: ["llama"],
    lambda _: {"a": 1}, lambda _: [1, "a", None], lambda _: [0] * 100_000, lambda _: "\x1b[2J\u202e",
    lambda _: {"": {}},
    lambda dice: dice.randrange(-(2**40), 2**40), lambda dice: dice.random() * 1e9, lambda dice: dice.randrange(300),
    lambda _: _deep(400), lambda _: {f"k{n}": n for n in range(5_000)},
)  # fmt: skip


class Hang(BaseException):
    """It took more than SECONDS."""


@dataclass
class Report:
    """What came of the files; `faults` are those that a user would meet."""

    read: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest_s: float = 0.0


class Bases:
    """Sound files, made once, of which damaged copies are made."""

    def __init__(self, folder: Path) -> None:
        self.models = [checkpoint(folder / name, **settings) for name, settings in FAMILY.items()]
        for model in self.models:
            (model / "generation_config.json").write_text('{"eos_token_id": [256, 257]}')
            (model / "tokenizer_config.json").write_text('{"eos_token": {"content": "<|end|>"}, "chat_template": "x"}')
            names = {"model.norm.weight": "model.safetensors"}
            (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
        self.target = checkpoint(folder / "target", num_hidden_layers=6, num_key_value_heads=2)
        makers = {**vars(published_heads), **vars(published_blocks)}
        self.heads: dict[Head, Path] = {head: makers[head.replace("-", "_")](folder / f"head-{head}") for head in HEADS}
        self.gguf = gguf(folder / "sound.gguf", llama__rope__freq_base=1e4, general__file_type=7)
        self.ollama = folder / "ollama"
        self.manifest = ollama(self.ollama, "tiny:1b", self.gguf, licence="MIT").relative_to(self.ollama)
        self.decoder = ReferenceDecoder(Checkpoint.open(self.target), CONTEXT)


def _deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def damaged_json(data: Any, dice: random.Random) -> str:
    """The text of a JSON value with some values, keys or letters of it changed."""
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        place, key = _place(data, dice)
        if dice.random() < 0.15:
            place.pop(key)
        else:
            place[key] = dice.choice(HOSTILE)(dice)
    text = json.dumps(data)
    if dice.random() < 0.15:
        at = dice.randrange(len(text))
        text = dice.choice((text[:at], text[:at] + dice.choice('{}[]",:\0é9e') + text[at + 1 :], text * 2, f"[{text}]"))
    return text


def _place(data: Any, dice: random.Random) -> tuple[Any, Any]:
    """Somewhere in it: an object with a key, or a list with a position."""
    while True:
        keys = list(data) if isinstance(data, dict) else list(range(len(data)))
        if not keys:
            data = {"model_type": 1}
            continue
        key = dice.choice(keys)
        inner = data[key]
        if not isinstance(inner, dict | list) or not inner or dice.random() < 0.5:
            return data, key
        data = inner


def damaged_bytes(data: bytes, dice: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.choice((1, 2, 8))):
        at = dice.randrange(4, min(len(changed), 900))
        match dice.randrange(4):
            case 0:
                changed[at] = dice.randrange(256)
            case 1:
                changed[at : at + 8] = struct.pack("<Q", dice.choice((1 << 62, 1 << 32, 1 << 24, 10**8, 0, 255)))
            case 2:
                changed[at : at + 4] = struct.pack("<f", dice.choice((float("nan"), float("inf"), -0.0)))
            case _:
                del changed[at : at + dice.randrange(1, 30)]
    return bytes(changed)


def _model(bases: Bases, folder: Path, dice: random.Random) -> None:
    shutil.copytree(dice.choice(bases.models), folder)
    names = ("config.json",) * 5 + ("generation_config.json", "tokenizer_config.json", "model.safetensors.index.json")
    file = folder / dice.choice(names)
    file.write_text(damaged_json(json.loads(file.read_text()), dice))
    if file.name != "model.safetensors.index.json":
        (folder / "model.safetensors.index.json").unlink()
    _each(
        lambda: about_folder(folder, "x"),
        lambda: Tokenizer.read(folder),
        lambda: ReferenceDecoder(Checkpoint.open(folder), CONTEXT),
        *((lambda: HfFiles.open(folder, False).tokenizer(),) if dice.random() < 0.2 else ()),
    )


def _head(bases: Bases, folder: Path, dice: random.Random) -> None:
    head = dice.choice(list(bases.heads))
    shutil.copytree(bases.heads[head], folder)
    file = folder / "config.json"
    file.write_text(damaged_json(json.loads(file.read_text()), dice))
    _each(
        lambda: need(head, HeadFiles.open(folder), bases.decoder.config, CONTEXT, "cpu"),
        lambda: resolved(HEADS[head].reads)(HeadFiles.open(folder), CachedModel(bases.decoder)),
    )


def _gguf(bases: Bases, folder: Path, dice: random.Random) -> None:
    folder.mkdir()
    file = folder / "m.gguf"
    file.write_bytes(damaged_bytes(bases.gguf.read_bytes(), dice))
    _each(lambda: about_gguf(file))


def _manifest(bases: Bases, folder: Path, dice: random.Random) -> None:
    shutil.copytree(bases.ollama, folder)
    file = folder / bases.manifest
    file.write_text(damaged_json(json.loads(file.read_text()), dice))
    library = look(ModelPlaces(Hub("http://127.0.0.1:1", folder / "hub"), ollama=(folder,)))
    if not library.models:
        raise EngineError("model", library.problems[0])


KINDS = {"model": (_model, 8), "head": (_head, 5), "GGUF header": (_gguf, 5), "manifest": (_manifest, 2)}


def _each(*reads: Callable[[], object]) -> None:
    """Do all of it, and be refused if one is."""
    refused: EngineError | None = None
    for read in reads:
        try:
            read()
        except EngineError as error:
            refused = error
    if refused is not None:
        raise refused


@contextmanager
def bounded() -> Iterator[None]:
    def hang(*_: object) -> None:
        raise Hang

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, SECONDS), signal.SIGALRM: (signal.ITIMER_REAL, PATIENCE_S)}
    before = {number: signal.signal(number, hang) for number in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for timer, _ in timers.values():
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def fuzz(files: int, seed: int, root: Path) -> Report:
    """Damage and read so many files below `root`."""
    report, bases = Report(), Bases(root / "bases")
    kinds = [kind for kind, (_, share) in KINDS.items() for _ in range(share)]
    sound = _state(root)
    for number in range(files):
        dice = random.Random(f"{seed}-{number}")
        kind, folder = kinds[number % len(kinds)], root / "damaged" / str(number)
        folder.parent.mkdir(exist_ok=True)
        begun, peak = process_time(), _peak()
        try:
            with bounded():
                KINDS[kind][0](bases, folder, dice)
            report.read[kind] += 1
        except EngineError as error:
            report.refused[kind] += 1
            if len(error.message) > 2_000 or not error.message.replace("\n", "").isprintable():
                report.faults.append(f"{kind} {number}: no sentence: {error.message[:200]!r}")
        except (Exception, Hang):
            report.faults.append(f"{kind} {number}: {traceback.format_exc(limit=-4)}")
        report.slowest_s = max(report.slowest_s, process_time() - begun)
        if _peak() - peak > MEMORY:
            report.faults.append(f"{kind} {number}: {(_peak() - peak) >> 20} MiB")
        if number % 100 == 99:  # a whole folder of broken models still has a list
            places = ModelPlaces(Hub("http://127.0.0.1:1", root / "hub"), own=(root / "damaged",))
            offers(load_catalog(None), look(places), FreeMemory(None, 8 << 30))
        if number % 100 == 99 or number == files - 1:
            shutil.rmtree(root / "damaged")
    if _state(root) != sound:
        report.faults.append("something was written outside")
    return report


def _state(root: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


def _peak() -> int:
    """Bytes of memory at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with TemporaryDirectory() as folder:
        report = fuzz(asked.files, asked.seed, Path(folder))
    for kind in KINDS:
        print(f"{kind:<12} {report.read[kind]:>6} read {report.refused[kind]:>6} refused")
    print(f"slowest {report.slowest_s:.2f} s, memory at most {_peak() >> 20} MiB, {len(report.faults)} faults")
    for fault in report.faults[:20]:
        print(fault)


if __name__ == "__main__":
    main()
