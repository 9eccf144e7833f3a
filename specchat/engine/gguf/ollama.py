"""Ollama's folder: manifests by name, each with the blobs of a model, such as its GGUF file, projector and parameters.

Layout: github.com/ollama/ollama, manifest/ and server/modelpath.go.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import Field

from specchat.engine.errors import ModelError
from specchat.engine.files import read
from specchat.engine.foreign import Foreign

KIND = "application/vnd.ollama.image."
LONGEST_MANIFEST = 1 << 20
_DIGEST = re.compile("sha256:([0-9a-f]{64})")


class _Layer(Foreign):
    mediaType: str = ""
    digest: str = ""


class Manifest(Foreign):
    """A model's list of blobs."""

    schemaVersion: int = Field(description="a whole number")
    layers: list[_Layer] = Field([], max_length=1024, description="a list of layers")


def manifest_files(root: Path) -> Iterator[Path]:
    """The manifests in Ollama's folder, in order of their names."""
    files = (path for path in (root / "manifests").rglob("*") if path.is_file())
    yield from sorted(path for path in files if not path.name.startswith("."))


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        ModelError: it is damaged, or too large.
    """
    return read(path, Manifest, LONGEST_MANIFEST)


def blobs(root: Path, manifest: Manifest) -> dict[str, Path]:
    """The blobs of a manifest by their kinds, such as `model`."""
    return {
        layer.mediaType.removeprefix(KIND): root / "blobs" / f"sha256-{digest[1]}"
        for layer in manifest.layers
        if (digest := _DIGEST.fullmatch(layer.digest))
    }


def blobs_with(model: Path) -> dict[str, Path]:
    """The blobs of the first manifest whose model is the file `model`; empty for files of other programs."""
    root = model.parent.parent
    if model.parent.name == "blobs":
        for path in manifest_files(root):
            with suppress(ModelError, OSError):  # of another model, whose list of models says so
                found = blobs(root, read_manifest(path))
                if found.get("model") == model:
                    return found
    return {}
