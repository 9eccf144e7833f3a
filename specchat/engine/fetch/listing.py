"""Lists a repository's files with sizes and hashes, and selects those that a model needs."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from threading import Event
from urllib.parse import quote

from pydantic import Field

from specchat.clean import one_line
from specchat.engine.errors import EngineError, ModelError
from specchat.engine.fetch.answer import LISTING_BYTES, LISTING_S, NEVER, Answer, Cancelled
from specchat.engine.fetch.failures import failure
from specchat.engine.fetch.source import DIGEST, Hub
from specchat.engine.files import LONGEST_NAME
from specchat.engine.foreign import Foreign, checked, parsed

SETTINGS = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|chat_template"
    r"|preprocessor_config|processor_config)\.json"
    r"|model\.safetensors\.index\.json|merges\.txt|tokenizer\.model|[\w.-]+\.jinja"
)
"""Configuration, tokenizer and template files; none of them is code."""
SINGLE_FILES = ("model.safetensors", "medusa_lm_head.safetensors")
"""Names of unsharded weights; the second holds Medusa heads."""
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
PREFERRED_QUANTS = ("Q4_K_M", "Q4_0", "Q8_0")
"""Quantisations in order of preference, for a repository with several GGUF files."""
TOWER_FORMS = tuple(re.compile(rf"(?<![a-z0-9]){form}(?![a-z0-9])") for form in ("f16", "bf16", "f32", "q8_0"))
"""Forms of files with a tower that reads pictures, in order of preference."""
MAX_FILES, MAX_BYTES = 200_000, 1 << 50


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository, by its path there.

    `digest` is its SHA-256 or git's SHA-1 (40 digits); "" if the hub gives none, or no size.
    """

    name: str
    size: int
    digest: str


@dataclass(frozen=True)
class Listing:
    """A repository at one commit.

    Attributes:
        revision: as requested.
        licence: from the model card, or "".
        gated: True if its owner requires accepted terms.
    """

    repo: str
    revision: str | None
    commit: str
    files: tuple[RemoteFile, ...]
    licence: str
    gated: bool


class _Lfs(Foreign):
    """A Git LFS pointer."""

    sha256: str = ""
    size: int = -1


class _Sibling(Foreign):
    rfilename: str
    blobId: str | None = None
    size: int | None = None
    lfs: _Lfs | None = None


class _Repository(Foreign):
    """A hub's description of a repository at one commit."""

    sha: str = Field(pattern=DIGEST, description="the hash of a commit")
    siblings: list[_Sibling] | None = Field(None, max_length=MAX_FILES, description="a list of files")
    tags: list[str] | None = Field(None, description="a list of texts")
    gated: bool | str | None = Field(None, description="true, false or a text")


def look_up(hub: Hub, repo: str, revision: str | None = None, cancelled: Event = NEVER) -> Listing:
    """Request the listing of `repo`, the only place that reads the hub's metadata.

    Raises:
        Cancelled: `cancelled` was set.
        EngineError: "download": the repository is missing or not accessible, or the hub is not reachable.
    """
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    if revision is not None and not _plain(revision):
        raise EngineError("download", f"{repo} has no such revision at {hub.host}. Leave revision out for the newest.")
    try:
        validate_repo_id(repo)
        named = "" if revision is None else f"/revision/{quote(revision, safe='')}"
        url = f"{hub.endpoint}/api/models/{repo}{named}"
        with Answer(hub, url, {"blobs": "true"}, cancelled=cancelled, within_s=LISTING_S) as answer:
            body = answer.body(LISTING_BYTES)
    except Cancelled:
        raise
    except Exception as error:  # errors of the library do not share one base class
        raise failure(hub, repo, error) from None
    where = f"What {hub.host} says of {repo}"
    try:
        raw = checked(_Repository, parsed(body, where), where)
    except ModelError as error:
        raise EngineError("download", error.message) from None
    files = tuple(_file(sibling) for sibling in raw.siblings or () if _plain(sibling.rfilename))
    licences = [tag.partition(":")[2] for tag in raw.tags or () if tag.startswith("license:")]
    return Listing(repo, revision, raw.sha, files, one_line(next(iter(licences), ""), 40), bool(raw.gated))


def _file(raw: _Sibling) -> RemoteFile:
    digest, size = (raw.lfs.sha256, raw.lfs.size) if raw.lfs else (raw.blobId or "", raw.size or 0)
    sound = re.fullmatch(DIGEST, digest) and 0 <= size <= MAX_BYTES
    return RemoteFile(raw.rfilename, size, digest) if sound else RemoteFile(raw.rfilename, 0, "")


def needed(listing: Listing, file: str | None = None) -> tuple[RemoteFile, ...]:
    """Files that a model needs: configuration, tokenizer, template, and weights as safetensors or GGUF.

    `file` selects one of several GGUF files; a split one comes with all parts. So does the tower that reads pictures.

    Raises:
        ModelError: there are no such weights, or several without a preference.
    """
    every = [f.name for f in listing.files]
    names = [name for name in every if "/" not in name]
    settings = [name for name in names if SETTINGS.fullmatch(name)]
    weights = parts_of(file, every) if file else _tensors(names) or _gguf(listing.repo, names)
    if not weights:
        raise ModelError(_lacking(listing.repo, file, names))
    if weights[0].endswith(".gguf"):  # which contains the settings
        settings = [tower] if (tower := tower_among(weights[0], [f.name for f in listing.files if f.digest])) else []
    wanted = {*settings, *weights}
    chosen = tuple(f for f in listing.files if f.name in wanted)
    if unknown := next((f.name for f in chosen if not f.digest), None):
        raise ModelError(f"The hub does not say what {unknown} of {listing.repo} has to be: there is no hash of it.")
    if len({f.name.casefold() for f in chosen}) < len(chosen):
        raise ModelError(f"{listing.repo} has two files of one name. Take another repository of the same model.")
    return chosen


def _plain(name: str) -> bool:
    """True if a path stays in its folder on any system, and is printable."""
    parts = name.split("/")
    return (
        name.isprintable()  # a lone surrogate is not
        and not {"\\", ":"} & set(name)
        and not {"", ".", ".."} & set(parts)
        and max(len(part.encode()) for part in parts) <= LONGEST_NAME
    )


def parts_of(file: str, names: Iterable[str]) -> list[str]:
    """`file` with the other parts of a split model, from `names`; none if one is missing."""
    known = set(names)
    found = PART.fullmatch(file)
    if found is None:
        return [file] if file in known and file.endswith((".gguf", ".safetensors")) else []
    stem, _, count = found.groups()
    parts = [f"{stem}-{n:05}-of-{count}.gguf" for n in range(1, int(count) + 1)] if int(count) <= len(known) else []
    return parts if known.issuperset(parts) else []


def _tensors(names: Sequence[str]) -> list[str]:
    if single := [name for name in SINGLE_FILES if name in names]:
        return single[:1]
    return [name for name in names if SHARD.fullmatch(name)] if "model.safetensors.index.json" in names else []


def first_files(names: Sequence[str]) -> list[str]:
    """First files of the GGUF models in `names`, without vision encoders (mmproj) and layers that draft (mtp)."""
    whole = [n for n in names if n.endswith(".gguf") and not n.rpartition("/")[2].startswith("mtp-")]
    files = [n for n in whole if "mmproj" not in n.lower()]
    return [n for n in files if (part := PART.fullmatch(n)) is None or int(part[2]) == 1]


def tower_among(file: str, names: Sequence[str]) -> str:
    """The file with the tower that reads pictures for a GGUF file, in its folder among `names`; empty for none."""
    folder, _, name = file.lower().rpartition("/")

    def rank(tower: str) -> tuple[int, float]:
        other = tower.lower().rpartition("/")[2]
        form = next((at for at, form in enumerate(TOWER_FORMS) if form.search(other)), len(TOWER_FORMS))
        return form, -SequenceMatcher(None, other, name, autojunk=False).ratio()

    near = [n for n in names if n.endswith(".gguf") and n.lower().rpartition("/")[0] == folder]
    towers = [n for n in near if "mmproj" in n.rpartition("/")[2].lower() and n != file]
    return min(towers, key=rank, default="") if first_files([file]) else ""


def preferred_file(repo: str, files: Sequence[str]) -> str:
    """The default among GGUF files of `repo`, by PREFERRED_QUANTS.

    Raises:
        ModelError: none of them is preferred.
    """
    preferred = [n for quant in PREFERRED_QUANTS for n in files if quant.lower() in n.lower()]
    if len(files) > 1 and not preferred:
        raise ModelError(f"{repo} has {len(files)} GGUF files, for instance {files[0]}. Say which with --file.")
    return (preferred or files)[0]


def weights_among(names: Sequence[str]) -> tuple[str, str]:
    """The format of a repository's weights by the paths of its files, "safetensors" or "GGUF"; "" for none.

    Then the GGUF file to take; "" of safetensors, and of several files of which none is preferred.
    """
    top = [name for name in names if "/" not in name and _plain(name)]
    if _tensors(top):
        return "safetensors", ""
    files = first_files(top)
    try:
        return ("GGUF", preferred_file("", files)) if files else ("", "")
    except ModelError:
        return "GGUF", ""


def _gguf(repo: str, names: Sequence[str]) -> list[str]:
    files = first_files(names)
    return parts_of(preferred_file(repo, files), names) if files else []


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
    """Bytes of `files` that are not downloaded yet."""

    def held(file: RemoteFile) -> int:
        blob = hub.folder(listing.repo) / "blobs" / file.digest
        for path in (blob, hub.partial(listing.repo, file.digest)):
            try:
                return min(path.stat().st_size, file.size)
            except OSError:
                continue
        return 0

    return sum(file.size - held(file) for file in files)
