"""Ollama's folder: manifests by name, which point to blobs, one of them a GGUF file.

Layout: github.com/ollama/ollama, manifest/ and server/modelpath.go.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.files import found, read, read_json
from specchat.engine.foreign import Foreign
from specchat.models.about import About, about_gguf

VERSION = 2
"""`schemaVersion` of the manifests that are read."""
KIND = "application/vnd.ollama.image."
_DIGEST = re.compile("sha256:([0-9a-f]{64})")
_LICENCE_LETTERS = 4000
LONGEST_MANIFEST = 1 << 20


class _Layer(Foreign):
    mediaType: str = ""
    digest: str = ""


class _Manifest(Foreign):
    schemaVersion: int = Field(description="a whole number")
    layers: list[_Layer] = Field([], max_length=1024, description="a list of layers")


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
        except Exception as error:  # whatever it is, it does not hide the other models
            yield f"Ollama's {name}: {path} cannot be read: {one_line(f'{type(error).__name__}: {error}')}."


def parameters(blob: Path) -> dict[str, Any]:
    """The parameters that Ollama keeps for the model in its file `blob`; empty for any other file."""
    root = blob.parent.parent
    if blob.parent.name != "blobs" or not (root / "manifests").is_dir():
        return {}
    for path in sorted(path for path in (root / "manifests").rglob("*") if path.is_file()):
        with suppress(ModelError):  # of another model, whose list of models says so
            layers = _layers(root, read(path, _Manifest, LONGEST_MANIFEST))
            if layers.get("model") == blob and "params" in layers:
                return read_json(layers["params"], LONGEST_MANIFEST)
    return {}


def _name(path: Path) -> str:
    """`llama3.2:1b`, as Ollama lists it: without the registry and owner that are its own."""
    *owner, model, tag = path.parts if len(path.parts) > 1 else ("", *path.parts)
    owner = [part for part in owner if part not in ("registry.ollama.ai", "library")]
    return one_line("/".join([*owner, f"{model}:{tag}"]), 80)


def _model(folder: Path, path: Path, name: str) -> About:
    manifest = read(path, _Manifest, LONGEST_MANIFEST)
    if manifest.schemaVersion != VERSION:
        raise ModelError(f"{path} is a manifest of version {manifest.schemaVersion}, and only {VERSION} is read.")
    layers = _layers(folder, manifest)
    if "model" not in layers:
        raise ModelError(f"{path} names no weights. Pull the model again.")
    if "adapter" in layers:
        raise ModelError(f"{path} is an adapter over another model, which is not read.")
    about = about_gguf(layers["model"], name)
    licence = about.licence or (_licence(layers["license"]) if "license" in layers else "")
    return replace(about, licence=licence)


def _layers(folder: Path, manifest: _Manifest) -> dict[str, Path]:
    return {
        layer.mediaType.removeprefix(KIND): folder / "blobs" / f"sha256-{digest[1]}"
        for layer in manifest.layers
        if (digest := _DIGEST.fullmatch(layer.digest))
    }


def _licence(blob: Path) -> str:
    try:
        if not found(blob):
            return ""
        with open(blob, encoding="utf-8", errors="replace") as file:
            lines = file.read(_LICENCE_LETTERS).splitlines()
    except (OSError, ModelError):  # the model runs without it
        return ""
    return one_line(next((line for line in lines if line.strip()), ""), 40)
