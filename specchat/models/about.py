"""Facts about a model, from its headers alone."""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from specchat.clean import one_line
from specchat.engine.errors import ForeignModel, ModelError
from specchat.engine.fetch.cached import INDEX, is_complete, weights
from specchat.engine.files import StoredTensors, found, missing, read_json, stored_tensors
from specchat.engine.foreign import Foreign, MaybeCount, checked
from specchat.engine.formats import recognised
from specchat.engine.formats.format import Format as WeightFormat
from specchat.engine.formats.settings import Quantised
from specchat.engine.gguf.files import GgufFiles, file_parts
from specchat.engine.gguf.mmproj import projector, whole_type
from specchat.engine.gguf.token_lists import check_kind
from specchat.engine.hf.known import unsupported
from specchat.engine.pictures.kinds import described
from specchat.engine.weights.config import ModelConfig, parse_config
from specchat.engine.weights.gguf import GgufCheckpoint
from specchat.engine.weights.written import StoredWeights, stored_format

Format = Literal["safetensors", "GGUF"]
_SIXTEEN = ("float16", "bfloat16", "fp8")


@dataclass(frozen=True)
class About:
    """A model on the disk. `place` is a folder of safetensors or a GGUF file; `size` counts bytes of weights.

    Unknown values are empty, None or 0. `stored` is the format of the matrices in safetensors, and `left` are the names
    of those that are dense all the same. `config` is set if specchat's decoder runs the model, and `foreign` if
    transformers does; for any other model `why_not` has the reason. `tokens` tells vocabularies of GGUF files apart.
    `pictures` says how specchat's decoder reads them, empty where the model has no part that does.
    """

    name: str
    place: Path
    format: Format
    size: int
    architecture: str = ""
    parameters: int = 0
    quant: str = ""
    licence: str = ""
    context: int = 0
    layers: int = 0
    config: ModelConfig | None = None
    stored: WeightFormat | None = None
    left: frozenset[tuple[str, ...]] = frozenset()
    half: bool = False
    foreign: str = ""
    why_not: str = ""
    tokens: str = ""
    pictures: str = ""


def about_folder(folder: Path, name: str) -> About:
    """The checkpoint in `folder`, to be called `name`.

    Raises:
        ModelError: files are missing, damaged or cut short, or lack layers that config.json states.
    """
    path = folder / "config.json"
    if not found(path):
        raise missing(path) if folder.is_dir() else ModelError(f"There is no folder {folder}.")
    if not is_complete(folder):
        what = (
            "not all weights that its index names"
            if found(folder / INDEX)
            else "no model.safetensors, nor an index of its parts"
        )
        raise ModelError(f"{folder} has {what}. Download the rest of it.")
    raw = read_json(path)
    files = weights(folder)
    stored = [_stored(file, file.stat().st_mtime_ns, file.stat().st_size) for file in files]
    config, why_not, foreign = None, "", ""
    try:
        config = parse_config(folder, raw)
    except ForeignModel as error:
        why_not = unsupported(raw)
        foreign = "" if why_not else error.reason
    except ModelError as error:
        why_not = error.message.removeprefix(f"{path}: ")
    held = max(one.layers for one in stored)
    if config is not None and 0 < held < config.layers:
        raise ModelError(
            f"{folder} has weights of {held} layers, and its config.json states {config.layers}. "
            "Download the checkpoint again."
        )
    written = checked(_ConfigFile, raw, str(path))
    method, inner = written.quantization_config, written.text_config or written
    kind = None
    try:
        if config is not None and method is not None:
            kind = stored_format(path, method)
            if kind is None or (kind.of_experts and not any(one.packed for one in stored)):
                method = kind = None  # a 16-bit derivative, whose settings still name one
    except ForeignModel as error:
        why_not, config = unsupported(raw), None
        foreign = "" if why_not else error.reason
    quant = _method(method) if method else one_line(written.dtype or written.torch_dtype or "", 20)
    return About(
        name=name,
        place=folder,
        format="safetensors",
        size=sum(path.stat().st_size for path in files),
        architecture=one_line(written.model_type or "", 40),
        parameters=config.parameters() if config else sum(one.values for one in stored),
        quant=quant,
        context=config.context if config else written.max_position_embeddings or inner.max_position_embeddings or 0,
        layers=config.layers if config else written.num_hidden_layers or inner.num_hidden_layers or 0,
        config=config,
        stored=kind,
        left=_left(config, stored) if config and kind and kind.renames else frozenset(),
        half=quant in _SIXTEEN or (kind is not None and kind.of_experts),
        foreign=foreign,
        why_not=why_not,
        pictures=described(written.model_type) or "not read here yet" if config and config.sees else "",
    )


def about_gguf(file: Path, name: str = "") -> About:
    """The model in a GGUF file, of a split one its first; called as it calls itself unless `name` is given.

    Raises:
        ModelError: a part is missing, or the file is damaged.
    """
    if not found(file):
        raise ModelError(f"{file} is missing, or a link that leads nowhere.")
    paths = file_parts(file)
    files = _files(file, tuple((path.stat().st_mtime_ns, path.stat().st_size) for path in paths if found(path)))
    first, own, foreign, why_not = files.headers[0], None, "", ""
    types = Counter[str]()
    for header in files.headers:
        types.update(header.types)
    try:
        own = GgufCheckpoint.of(files)
        check_kind(first)
    except ForeignModel as error:
        foreign = error.reason
    except ModelError as error:
        why_not = error.message.removeprefix(f"{files.path}: ").rstrip(".")
    return About(
        name=name or one_line(str(first.values.get("general.name", "")), 60) or file.stem,
        place=file,
        format="GGUF",
        size=sum(path.stat().st_size for path in paths),
        architecture=one_line(first.architecture, 40),
        parameters=sum(types.values()),
        quant=types.most_common(1)[0][0] if types else "",
        licence=one_line(str(first.values.get("general.license", "")), 40),
        context=first.integer("context_length") or 0,
        layers=first.integer("block_count") or 0,
        config=own.config if own and not why_not else None,
        stored=own.format if own else None,
        half=own is not None and own.dense != "F32",
        foreign=foreign,
        why_not=why_not,
        tokens=first.tokens,
        pictures=_by_tower(own),
    )


def _by_tower(model: GgufCheckpoint | None) -> str:
    """How a GGUF model reads pictures, with the file of its tower."""
    if model is None or model.mmproj is None:
        return ""
    words = described(whole_type(model.files, model.mmproj))
    name = one_line(model.mmproj.path.name, 60)
    unread = f"not read: {one_line(projector(model.mmproj), 40)}, the projector of {name}, is unknown here"
    return (words if model.mmproj is model.files else f"{words}, by {name}") if words else unread


@lru_cache(maxsize=2048)
def _stored(path: Path, changed: int, size: int) -> StoredTensors:
    """Read once until the file changes."""
    del changed, size
    return stored_tensors(path)


@lru_cache(maxsize=512)
def _files(file: Path, states: tuple[tuple[int, int], ...]) -> GgufFiles:
    """Read once until a file changes: a large vocabulary takes a tenth of a second."""
    del states
    return GgufFiles.open(file)


def _left(config: ModelConfig, stored: list[StoredTensors]) -> frozenset[tuple[str, ...]]:
    """The names of the layers' matrices that are stored dense, at least in part, as `weights.left_dense`."""
    dense = frozenset[str]().union(*(one.matrices for one in stored))
    forms = (matrix for matrix, _ in config.recipe.forms)
    return frozenset(matrix.names for matrix in forms if not dense.isdisjoint(matrix.of(0).names))


def _method(settings: Quantised) -> str:
    known = recognised(settings)
    return known.name if known else one_line(settings.bitsandbytes or settings.quant_method, 20)


class _Sizes(Foreign):
    max_position_embeddings: MaybeCount = None
    num_hidden_layers: MaybeCount = None


class _ConfigFile(StoredWeights, _Sizes):
    """Settings of a checkpoint that our own decoder may not run."""

    model_type: str | None = Field(None, description="a text")
    text_config: _Sizes | None = Field(None, description="an object")
