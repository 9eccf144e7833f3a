"""What a repository has: its files with sizes and hashes, and which of them a model needs."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat.engine.errors import ModelError
from specchat.engine.fetch.failures import failure
from specchat.engine.fetch.source import Hub

PATIENCE_S = 10.0
"""Seconds that a hub has to answer."""
SETTINGS = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|chat_template)\.json"
    r"|model\.safetensors\.index\.json|merges\.txt|tokenizer\.model|[\w.-]+\.jinja"
)
"""Files beside the weights that say how a model is built and talks; none of them is code."""
WHOLE = ("model.safetensors", "medusa_lm_head.safetensors")
"""Names of weights in one file; the second is that of Medusa's heads."""
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
LIKED = ("Q4_K_M", "Q4_0", "Q8_0")
"""Quantisations in the order in which one is taken where a repository has many and none is asked for."""
_DIGEST = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository, by its path there. `digest` is its SHA-256, or git's SHA-1 of it (40 digits)."""

    name: str
    size: int
    digest: str


@dataclass(frozen=True)
class Listing:
    """A repository at one commit. `revision` is as it was asked for, `licence` as the card says, "" where it does not.

    `gated` tells that its owner wants terms accepted first.
    """

    repo: str
    revision: str | None
    commit: str
    files: tuple[RemoteFile, ...]
    licence: str
    gated: bool


def look_up(hub: Hub, repo: str, revision: str | None = None) -> Listing:
    """Ask the hub about `repo`.

    Raises:
        EngineError: "download": it is not there, not for this user, or the hub cannot be reached.
    """
    from huggingface_hub import HfApi

    try:
        info = HfApi(endpoint=hub.endpoint).model_info(repo, revision=revision, files_metadata=True, timeout=PATIENCE_S)
    except Exception as error:  # errors of the library do not share one base class
        raise failure(hub, repo, error) from None
    files = []
    for sibling in info.siblings or ():
        digest = sibling.lfs.sha256 if sibling.lfs else sibling.blob_id
        size = sibling.lfs.size if sibling.lfs else sibling.size
        # Names and hashes become names of files here: nothing but plain ones is taken.
        if _plain(sibling.rfilename) and digest and _DIGEST.fullmatch(digest) and isinstance(size, int) and size >= 0:
            files.append(RemoteFile(sibling.rfilename, size, digest))
    licences = [tag.partition(":")[2] for tag in info.tags or () if tag.startswith("license:")]
    return Listing(repo, revision, str(info.sha), tuple(files), next(iter(licences), ""), bool(info.gated))


def needed(listing: Listing, file: str | None = None) -> tuple[RemoteFile, ...]:
    """The files to have of a repository: settings, tokenizer, template, and the weights as safetensors or GGUF.

    `file` names one of several GGUF files; of split ones all parts are taken.

    Raises:
        ModelError: it has no such weights, or several and none is asked for.
    """
    every = [f.name for f in listing.files]
    names = [name for name in every if "/" not in name]
    settings = [name for name in names if SETTINGS.fullmatch(name)]
    weights = parts_of(file, every) if file else _tensors(names) or _gguf(listing.repo, names)
    if not weights:
        raise ModelError(_lacking(listing.repo, file, names))
    if weights[0].endswith(".gguf"):
        settings = []  # a GGUF file has all of it inside
    wanted = {*settings, *weights}
    return tuple(f for f in listing.files if f.name in wanted)


def _plain(name: str) -> bool:
    """Whether a path stays in its folder, on any system."""
    return "\\" not in name and ":" not in name and not {"", ".", ".."} & set(name.split("/"))


def parts_of(file: str, names: Iterable[str]) -> list[str]:
    """The GGUF file called `file` with the other parts where it is split, of `names`; none where one is missing."""
    known = set(names)
    found = PART.fullmatch(file)
    if found is None:
        return [file] if file in known and file.endswith((".gguf", ".safetensors")) else []
    stem, _, count = found.groups()
    parts = [f"{stem}-{n:05}-of-{count}.gguf" for n in range(1, int(count) + 1)] if int(count) <= len(known) else []
    return parts if known.issuperset(parts) else []


def _tensors(names: Sequence[str]) -> list[str]:
    if single := [name for name in WHOLE if name in names]:
        return single[:1]
    return [name for name in names if SHARD.fullmatch(name)] if "model.safetensors.index.json" in names else []


def first_files(names: Sequence[str]) -> list[str]:
    """The GGUF models of `names`, of split ones their first parts; image towers are none."""
    files = [n for n in names if n.endswith(".gguf") and "mmproj" not in n.lower()]
    return [n for n in files if (part := PART.fullmatch(n)) is None or int(part[2]) == 1]


def liked_file(repo: str, files: Sequence[str]) -> str:
    """Which of some GGUF files of `repo` is taken where none is asked for: see LIKED.

    Raises:
        ModelError: none of them is preferred.
    """
    liked = [n for quant in LIKED for n in files if quant.lower() in n.lower()]
    if len(files) > 1 and not liked:
        raise ModelError(f"{repo} has {len(files)} GGUF files, for instance {files[0]}. Say which with --file.")
    return (liked or files)[0]


def _gguf(repo: str, names: Sequence[str]) -> list[str]:
    files = first_files(names)
    return parts_of(liked_file(repo, files), names) if files else []


def _lacking(repo: str, file: str | None, names: Sequence[str]) -> str:
    if file:
        return f"{repo} has no {file}, or not all parts of it."
    if "adapter_config.json" in names:
        return f"{repo} is an adapter, not a model. Merge it into its model first, or take a merged one."
    others = sorted(
        {Path(name).suffix for name in names if Path(name).suffix in (".bin", ".pt", ".pth", ".onnx", ".h5")}
    )
    has = f": it has {', '.join(others)} files, which are not read" if others else ""
    return f"{repo} has no weights as safetensors or GGUF{has}. Take another repository of the same model."


def missing(hub: Hub, listing: Listing, files: Sequence[RemoteFile]) -> int:
    """Bytes of `files` that are still to be fetched."""

    def held(file: RemoteFile) -> int:
        blob = hub.folder(listing.repo) / "blobs" / file.digest
        for path in (blob, hub.partial(listing.repo, file.digest)):
            try:
                return min(path.stat().st_size, file.size)
            except OSError:
                continue
        return 0

    return sum(file.size - held(file) for file in files)
