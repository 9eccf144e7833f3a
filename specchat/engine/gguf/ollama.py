"""Ollama's folder: manifests by name, each with the blobs of a model, such as its GGUF file, projector and parameters.

Layout: github.com/ollama/ollama, manifest/ and server/modelpath.go.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import Field

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.files import read
from specchat.engine.foreign import Foreign
from specchat.engine.gguf.go_syntax import Untranslated
from specchat.engine.gguf.go_template import as_jinja
from specchat.engine.text.template import TemplateSource

KIND = "application/vnd.ollama.image."
LONGEST_MANIFEST, LONGEST_TEMPLATE = 1 << 20, 1 << 16
_DIGEST = re.compile("sha256:([0-9a-f]{64})")


class _Layer(Foreign):
    mediaType: str = ""
    digest: str = ""


class Manifest(Foreign):
    """A model's list of blobs."""

    schemaVersion: int = Field(description="a whole number")
    layers: list[_Layer] = Field([], max_length=1024, description="a list of layers")


def manifest_files(root: Path) -> Iterator[Path]:
    """The manifests in Ollama's folder, in order of their names; none where there is no folder.

    Raises:
        OSError: a folder of it cannot be read; after the others' manifests.
    """
    errors = list[OSError]()
    walked = os.walk(root / "manifests", onerror=errors.append)
    files = [Path(here, name) for here, _, names in walked for name in names if not name.startswith(".")]
    yield from sorted(path for path in files if path.is_file())
    for error in errors:
        if not isinstance(error, FileNotFoundError):
            raise error


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
        with suppress(OSError):  # which the list of models says
            for path in manifest_files(root):
                with suppress(ModelError, OSError):  # of another model
                    found = blobs(root, read_manifest(path))
                    if found.get("model") == model:
                        return found
    return {}


def chat_template(model: Path, bos: str) -> TemplateSource:
    """The chat template that Ollama keeps for the file `model`, where the file has none; a prompt begins with `bos`."""
    if (blob := blobs_with(model).get("template")) is None:
        return TemplateSource(None, model, "this file has no chat template")
    try:
        if blob.stat().st_size > LONGEST_TEMPLATE:
            raise Untranslated(f"it has more than {LONGEST_TEMPLATE} bytes")
        return TemplateSource(as_jinja(blob.read_text("utf-8"), bos), blob)
    except (OSError, UnicodeError) as error:
        return TemplateSource(None, model, f"{blob}, its chat template, cannot be read ({type(error).__name__})")
    except Untranslated as error:
        reason = one_line(str(error), 80)
        return TemplateSource(None, model, f"Ollama's chat template of this file is not understood here ({reason})")
