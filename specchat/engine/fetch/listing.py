"""What a repository has: its files with sizes and hashes, and which of them a model needs."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from urllib.parse import quote

from pydantic import Field

from specchat.clean import one_line
from specchat.engine.errors import EngineError, ModelError
from specchat.engine.fetch.answer import LISTING_BYTES, LISTING_S, NEVER, Answer, Cancelled
from specchat.engine.fetch.failures import failure
from specchat.engine.fetch.source import Hub
from specchat.engine.foreign import Foreign, checked, parsed
from specchat.engine.model.files import LONGEST_NAME

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
DIGEST = r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$"
"""What a hub sends has to be to become the name of a file here."""
MOST_FILES, MOST_BYTES = 200_000, 1 << 50


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository, by its path there.

    `digest` is its SHA-256, or git's SHA-1 of it (40 digits); "" where the hub tells none, or no size.
    """

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


class _Large(Foreign):
    """How a file that is kept apart from git is told of."""

    sha256: str = ""
    size: int = -1


class _Sibling(Foreign):
    rfilename: str
    blobId: str | None = None
    size: int | None = None
    lfs: _Large | None = None


class _Repository(Foreign):
    """What a hub tells of a repository at one commit."""

    sha: str = Field(pattern=DIGEST, description="the hash of a commit")
    siblings: list[_Sibling] | None = Field(None, max_length=MOST_FILES, description="a list of files")
    tags: list[str] | None = Field(None, description="a list of texts")
    gated: bool | str | None = Field(None, description="true, false or a text")


def look_up(hub: Hub, repo: str, revision: str | None = None, cancelled: Event = NEVER) -> Listing:
    """Ask the hub about `repo`. This is the one place where its words are read, and nothing asks it again.

    Raises:
        Cancelled: `cancelled` was set.
        EngineError: "download": it is not there, not for this user, or the hub cannot be reached.
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
        told = checked(_Repository, parsed(body, where), where)
    except ModelError as error:
        raise EngineError("download", error.message) from None
    files = tuple(_file(sibling) for sibling in told.siblings or () if _plain(sibling.rfilename))
    licences = [tag.partition(":")[2] for tag in told.tags or () if tag.startswith("license:")]
    return Listing(repo, revision, told.sha, files, one_line(next(iter(licences), ""), 40), bool(told.gated))


def _file(told: _Sibling) -> RemoteFile:
    digest, size = (told.lfs.sha256, told.lfs.size) if told.lfs else (told.blobId or "", told.size or 0)
    sound = re.fullmatch(DIGEST, digest) and 0 <= size <= MOST_BYTES
    return RemoteFile(told.rfilename, size, digest) if sound else RemoteFile(told.rfilename, 0, "")


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
    chosen = tuple(f for f in listing.files if f.name in wanted)
    if unknown := next((f.name for f in chosen if not f.digest), None):
        raise ModelError(f"The hub does not say what {unknown} of {listing.repo} has to be: there is no hash of it.")
    if len({f.name.casefold() for f in chosen}) < len(chosen):
        raise ModelError(f"{listing.repo} has two files of one name. Take another repository of the same model.")
    return chosen


def _plain(name: str) -> bool:
    """Whether a path stays in its folder, on any system, and can be shown."""
    parts = name.split("/")
    return (
        name.isprintable()  # half a surrogate pair is not
        and not {"\\", ":"} & set(name)
        and not {"", ".", ".."} & set(parts)
        and max(len(part.encode()) for part in parts) <= LONGEST_NAME
    )


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
