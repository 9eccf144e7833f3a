"""Small model files of every kind, written by hand."""

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

import pytest

from specchat.engine.fetch.source import Hub
from specchat.engine.gguf.header import TENSOR_TYPES

Value = int | float | bool | str | Sequence[str]
ARCHITECTURE = "mpt"
TOKENS = ("<s>", "a", "b", "ab")


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Value) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))


def gguf(
    path: Path,
    tensors: Mapping[str, tuple[tuple[int, ...], int]] | None = None,
    tokens: Sequence[str] = TOKENS,
    version: int = 3,
    **keys: Value,
) -> Path:
    """A GGUF file, by default of an architecture that only llama.cpp runs.

    `tensors` are shapes and numbers of types by name, and their data are zeros.
    """
    values: dict[str, Value] = {
        "general.architecture": ARCHITECTURE,
        "general.name": "Tiny",
        "general.license": "mit",
        f"{ARCHITECTURE}.block_count": 2,
        f"{ARCHITECTURE}.context_length": 512,
        "tokenizer.ggml.tokens": list(tokens),
        **{key.replace("__", "."): value for key, value in keys.items()},
    }
    shapes = (
        tensors if tensors is not None else {"token_embd.weight": ((64, 32), 1), "blk.0.attn_q.weight": ((64, 64), 8)}
    )
    head = b"GGUF" + struct.pack("<IQQ", version, len(shapes), len(values))
    head += b"".join(_text(key) + _value(value) for key, value in values.items())
    offset = 0
    for name, (shape, kind) in shapes.items():
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
        of = TENSOR_TYPES[kind]
        offset += -(-(prod(shape) // of.values * of.bytes) // 4096) * 4096
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + bytes(-len(head) % 32 + offset))
    return path


def ollama(
    root: Path,
    name: str,
    model: Path,
    *,
    version: int = 2,
    licence: str = "",
    kind: str = "model",
    params: Mapping[str, float] | None = None,
    projector: Path | None = None,
    template: str = "",
) -> Path:
    """Put a GGUF file into Ollama's folder as its blob, perhaps with one of its tower; gives the manifest."""
    (root / "blobs").mkdir(parents=True, exist_ok=True)
    layers = []
    settings = json.dumps(params).encode() if params else b""
    tower = projector.read_bytes() if projector else b""
    texts = (("license", licence.encode()), ("template", template.encode()))
    parts = ((kind, model.read_bytes()), *texts, ("params", settings), ("projector", tower))
    for media, data in parts:
        digest = hashlib.sha256(data).hexdigest()
        if data:
            (root / "blobs" / f"sha256-{digest}").write_bytes(data)
            media_type = f"application/vnd.ollama.image.{media}"
            layers.append({"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)})
    model_name, _, tag = name.partition(":")
    manifest = root / "manifests" / "registry.ollama.ai" / "library" / model_name / tag
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"schemaVersion": version, "layers": layers}))
    return manifest


def in_cache(hub: Hub, repo: str, made: Path) -> Path:
    """Move a checkpoint into the Hugging Face cache, by links as there; gives its snapshot."""
    folder = hub.folder(repo)
    snapshot, blobs = folder / "snapshots" / ("0" * 40), folder / "blobs"
    for each in (snapshot, blobs, folder / "refs"):
        each.mkdir(parents=True)
    (folder / "refs" / "main").write_text("0" * 40)
    for file in sorted(made.iterdir()):
        file.rename(blobs / file.name)
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    made.rmdir()
    return snapshot


def own_ollama(home: Path) -> dict[str, str]:
    """The environment in which Ollama's models are those of a user alone, where this machine's service has some too."""
    return {"OLLAMA_MODELS": str(home / ".ollama" / "models")}


def no_home(patch: pytest.MonkeyPatch, home: Path) -> None:
    """A user without any models."""
    for name, value in ({"HOME": str(home), "USERPROFILE": str(home)} | own_ollama(home)).items():
        patch.setenv(name, value)
