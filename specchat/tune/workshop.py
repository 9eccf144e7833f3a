"""The folder of a training: its subject, the replies, the state so far, and the finished files."""

import shutil
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import torch

from specchat.engine.errors import ModelError
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.tune.files import encoded, put_json, put_tensors
from specchat.tune.trainee import Published

HASHED = 16 << 20
"""Bytes of a file of weights that are looked at: another training changes all of them."""
FORMAT = 1


@dataclass(frozen=True)
class Workshop:
    """A folder that is there."""

    folder: Path

    @property
    def learnt(self) -> Path:
        """The replies to learn from."""
        return self.folder / "learnt"

    @property
    def judged(self) -> Path:
        """The replies to be judged by."""
        return self.folder / "held-out"

    @property
    def state(self) -> Path:
        return self.folder / "training.safetensors"

    @property
    def finished(self) -> Path:
        """The trained model or heads, as files that the engine loads."""
        return self.folder / "finished"

    def prepare(self, family: str, target: str, asked: object) -> bool:
        """Make it the folder of a family, for a target by its `fingerprint`, with what is asked of that.

        Returns True if it was another training's, which is thrown away.

        Raises:
            OSError: it cannot be written.
        """
        file = self.folder / "about.json"
        about = {
            "format": FORMAT,
            "family": family,
            "target": target,
            "asked": sha256(repr(asked).encode()).hexdigest(),
        }
        try:
            before = file.read_bytes()
        except FileNotFoundError:
            before = b""
        same = before == encoded(about)
        if not same:
            for old in (self.learnt, self.judged, self.finished):
                shutil.rmtree(old, ignore_errors=True)
            for old in self.folder.glob("[!.]*.*"):
                old.unlink()
        for folder in (self.learnt, self.judged, self.finished):
            folder.mkdir(exist_ok=True)
        put_json(file, about)
        return bool(before) and not same


def fingerprint(target: Checkpoint) -> str:
    """The same for checkpoints whose shapes and weights are the same."""
    seen = sha256(repr(target.config).encode())
    for shard in target.shards:
        with open(shard, "rb") as file:
            seen.update(f"{shard.name} {shard.stat().st_size}".encode())
            seen.update(file.read(HASHED))
    return seen.hexdigest()


def put_heads(folder: Path, heads: Published) -> None:
    """Write heads, their matrices as float16, so that `engine.heads` reads them.

    Raises:
        ModelError: they hold values that float16 has no numbers for.
        OSError: they cannot be written.
    """
    tensors = {name: part.half() if part.is_floating_point() else part for name, part in heads.tensors.items()}
    for name, part in tensors.items():
        if part.is_floating_point() and not bool(part.isfinite().all()):
            raise ModelError(f"The training went astray: {name} holds values that are no numbers. Begin anew.")
    put_tensors(folder / f"{heads.name}.safetensors", tensors, {"format": "pt"})
    put_json(folder / "config.json", {**heads.settings, "torch_dtype": str(torch.float16).removeprefix("torch.")})
