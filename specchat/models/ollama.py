"""Ollama's folder: manifests by name, which point to blobs, one of them a GGUF file.

Layout: github.com/ollama/ollama, manifest/ and server/modelpath.go.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.model.files import read_json
from specchat.models.about import About, about_gguf

VERSION = 2
"""`schemaVersion` of the manifests that are read."""
KIND = "application/vnd.ollama.image."
_DIGEST = re.compile("sha256:([0-9a-f]{64})")
_LICENCE_LETTERS = 4000


def ollama_models(folder: Path) -> Iterator[About | str]:
    """The models in Ollama's `folder`, or sentences about those that cannot be read."""
    manifests = folder / "manifests"
    try:
        paths = sorted(path for path in manifests.rglob("*") if path.is_file() and not path.name.startswith("."))
    except OSError as error:
        yield f"{manifests} cannot be read ({error.strerror})."
        return
    for path in paths:
        name = _name(path.relative_to(manifests))
        try:
            yield _model(folder, path, name)
        except ModelError as error:
            yield f"Ollama's {name}: {error.message}"
        except OSError as error:
            yield f"Ollama's {name}: {path} cannot be read ({error.strerror})."


def _name(path: Path) -> str:
    """`llama3.2:1b`, as Ollama lists it: without the registry and owner that are its own."""
    *owner, model, tag = path.parts if len(path.parts) > 1 else ("", *path.parts)
    owner = [part for part in owner if part not in ("registry.ollama.ai", "library")]
    return one_line("/".join([*owner, f"{model}:{tag}"]), 80)


def _model(folder: Path, path: Path, name: str) -> About:
    manifest = read_json(path)
    version = manifest.get("schemaVersion")
    if version != VERSION:
        raise ModelError(f"{path} is a manifest of version {one_line(repr(version), 20)}, and only {VERSION} is read.")
    layers = {kind: blob for layer in _layers(manifest) if (blob := _blob(folder, layer)) and (kind := _kind(layer))}
    if "model" not in layers:
        raise ModelError(f"{path} names no weights. Pull the model again.")
    if "adapter" in layers:
        raise ModelError(f"{path} is an adapter over another model, which is not read.")
    about = about_gguf(layers["model"], name)
    licence = about.licence or (_licence(layers["license"]) if "license" in layers else "")
    return replace(about, licence=licence)


def _layers(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    layers = manifest.get("layers")
    yield from (layer for layer in layers if isinstance(layer, dict)) if isinstance(layers, list) else ()


def _kind(layer: dict[str, Any]) -> str:
    return str(layer.get("mediaType", "")).removeprefix(KIND)


def _blob(folder: Path, layer: dict[str, Any]) -> Path | None:
    digest = _DIGEST.fullmatch(str(layer.get("digest", "")))
    return folder / "blobs" / f"sha256-{digest[1]}" if digest else None


def _licence(blob: Path) -> str:
    """The title of a licence's text."""
    try:
        with open(blob, encoding="utf-8", errors="replace") as file:
            lines = file.read(_LICENCE_LETTERS).splitlines()
    except OSError:
        return ""
    return one_line(next((line for line in lines if line.strip()), ""), 40)
