"""Models in Ollama's folder."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.files import found, read_json
from specchat.engine.gguf.ollama import LONGEST_MANIFEST, blobs, blobs_with, manifest_files, read_manifest
from specchat.models.about import About, about_gguf

VERSION = 2
"""`schemaVersion` of the manifests that are read."""
_LICENCE_LETTERS = 4000


def ollama_models(folder: Path) -> Iterator[About | str]:
    """The models in Ollama's `folder`, or sentences about those that cannot be read."""
    try:
        for path in manifest_files(folder):
            yield _outcome(folder, path)
    except OSError as error:
        yield f"{error.filename} cannot be read ({error.strerror})."


def _outcome(folder: Path, path: Path) -> About | str:
    name = _name(path.relative_to(folder / "manifests"))
    try:
        return _model(folder, path, name)
    except ModelError as error:
        return f"Ollama's {name}: {error.message}"
    except OSError as error:
        return f"Ollama's {name}: {path} cannot be read ({error.strerror})."
    except Exception as error:  # whatever it is, it does not hide the other models
        return f"Ollama's {name}: {path} cannot be read: {one_line(f'{type(error).__name__}: {error}')}."


def parameters(blob: Path) -> dict[str, Any]:
    """The parameters that Ollama keeps for the model in its file `blob`; empty for any other file."""
    params = blobs_with(blob).get("params")
    return {} if params is None else read_json(params, LONGEST_MANIFEST)


def _name(path: Path) -> str:
    """`llama3.2:1b`, as Ollama lists it: without the registry and owner that are its own."""
    *owner, model, tag = path.parts if len(path.parts) > 1 else ("", *path.parts)
    owner = [part for part in owner if part not in ("registry.ollama.ai", "library")]
    return one_line("/".join([*owner, f"{model}:{tag}"]), 80)


def _model(folder: Path, path: Path, name: str) -> About:
    manifest = read_manifest(path)
    if manifest.schemaVersion != VERSION:
        raise ModelError(f"{path} is a manifest of version {manifest.schemaVersion}, and only {VERSION} is read.")
    layers = blobs(folder, manifest)
    if "model" not in layers:
        raise ModelError(f"{path} names no weights. Pull the model again.")
    if "adapter" in layers:
        raise ModelError(f"{path} is an adapter over another model, which is not read.")
    about = about_gguf(layers["model"], name)
    licence = about.licence or (_licence(layers["license"]) if "license" in layers else "")
    return replace(about, licence=licence)


def _licence(blob: Path) -> str:
    try:
        if not found(blob):
            return ""
        with open(blob, encoding="utf-8", errors="replace") as file:
            lines = file.read(_LICENCE_LETTERS).splitlines()
    except (OSError, ModelError):  # the model runs without it
        return ""
    return one_line(next((line for line in lines if line.strip()), ""), 40)
