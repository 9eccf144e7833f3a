"""Models on the hub, by words: those whose weights are read here, and what each takes to download."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from threading import Event

from pydantic import Field

from specchat.clean import one_line
from specchat.engine.errors import EngineError, ModelError
from specchat.engine.fetch.answer import LISTING_BYTES, NEVER, Answer, Cancelled
from specchat.engine.fetch.failures import failure
from specchat.engine.fetch.listing import look_up, needed, tower_among, weights_among
from specchat.engine.fetch.source import Hub
from specchat.engine.foreign import Foreign, checked, parsed

MOST = 20
ASKED = 60
"""Repositories that the hub is asked for, since others than MOST may have weights that are not read."""
PATIENCE_S = 10.0
"""Seconds that a hub has to answer."""
_AT_ONCE = 4
_WRITES = ("text-generation", "image-text-to-text", "any-to-any", "text2text-generation", "")
"""The hub's names for what models do, of those that write text; empty where it does not know."""
_MLX = "mlx"
"""The tag of weights that only Apple's MLX reads, though they are safetensors."""


@dataclass(frozen=True)
class HubHit:
    """A repository with weights that are read here.

    Attributes:
        downloads: those of the last month.
        parameters: 0 where it is not known, as `size`.
        licence: empty where it is not stated.
        format: safetensors or GGUF.
        file: the GGUF file to take; empty of safetensors, and of several of which none is preferred.
        tower: the file that comes with a GGUF file and reads pictures for it; empty for none.
        size: bytes to download, once `sized`.
        problem: a sentence where the hub tells that it cannot be taken.
        settings: the hub's extract of config.json, or the architecture of GGUF files as `model_type`.
    """

    repo: str
    downloads: int
    parameters: int
    licence: str
    gated: bool
    format: str
    file: str = ""
    tower: str = ""
    size: int = 0
    problem: str = ""
    settings: Mapping[str, object] | None = None


def search(hub: Hub, words: str, cancelled: Event = NEVER) -> tuple[HubHit, ...]:
    """The most downloaded models that write text, whose name holds `words` and whose weights are read here.

    Raises:
        Cancelled: `cancelled` was set.
        EngineError: "download": the hub does not answer.
    """
    from huggingface_hub.errors import OfflineModeIsEnabled

    query: Mapping[str, str | int | Sequence[str]] = {
        "search": words,
        "sort": "downloads",
        "limit": ASKED,
        "expand": ["downloads", "gated", "tags", "safetensors", "siblings", "gguf", "config", "pipeline_tag"],
    }
    try:
        with Answer(hub, f"{hub.endpoint}/api/models", query, cancelled=cancelled, within_s=PATIENCE_S) as answer:
            body = answer.body(LISTING_BYTES)
    except OfflineModeIsEnabled:
        raise EngineError("download", f"HF_HUB_OFFLINE keeps {hub.host} from being searched. Unset it.") from None
    except Cancelled:
        raise
    except Exception as error:  # errors of the library do not share one base class
        raise failure(hub, words, error) from None
    where = f"What {hub.host} found"
    try:
        hits = checked(_Hits, {"hits": parsed(body, where)}, where).hits
    except ModelError as error:
        raise EngineError("download", error.message) from None
    return tuple(hit for model in hits if (hit := _hit(model)) is not None)[:MOST]


def sized(hub: Hub, hits: Sequence[HubHit], cancelled: Event = NEVER) -> Iterator[HubHit]:
    """`hits` with their sizes, in their order, each once the hub has listed it; 0 stays where it does not.

    Raises:
        Cancelled: `cancelled` was set.
    """
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="sizes")
    try:
        yield from pool.map(partial(_sized, hub, cancelled), hits)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _sized(hub: Hub, cancelled: Event, hit: HubHit) -> HubHit:
    try:
        files = needed(look_up(hub, hit.repo, cancelled=cancelled), hit.file or None)
    except ModelError as error:
        return replace(hit, problem=error.message)
    except EngineError:
        return hit  # a download asks again, and says why
    return replace(hit, size=sum(file.size for file in files))


class _Weights(Foreign):
    total: int = 0


class _GgufFile(_Weights):
    architecture: str = ""


class _HubFile(Foreign):
    rfilename: str


class _HubModel(Foreign):
    id: str
    downloads: int = 0
    gated: bool | str | None = None
    tags: list[str] | None = None
    pipeline_tag: str | None = None
    safetensors: _Weights | None = None
    gguf: _GgufFile | None = None
    siblings: list[_HubFile] | None = Field(None, description="a list of files")
    config: dict[str, object] | None = Field(None, description="an object")


class _Hits(Foreign):
    hits: list[_HubModel] = Field(description="a list of models")


def _hit(model: _HubModel) -> HubHit | None:
    """None for a repository with a name that is none, or with nothing that is read here."""
    tags = model.tags or []
    if _MLX in tags or (model.pipeline_tag or "") not in _WRITES or not _sound(model.id):
        return None
    names = [file.rfilename for file in model.siblings or ()]
    kind, file = weights_among(names) if names else ("GGUF" if "gguf" in tags else "safetensors", "")
    if not kind:
        return None
    of_file = model.gguf if kind == "GGUF" else None
    weights = of_file or model.safetensors
    licences = [tag.partition(":")[2] for tag in tags if tag.startswith("license:")]
    architecture = {"model_type": of_file.architecture} if of_file and of_file.architecture else None
    return HubHit(
        repo=model.id,
        downloads=max(model.downloads, 0),
        parameters=max(weights.total, 0) if weights else 0,
        licence=one_line(next(iter(licences), ""), 40),
        gated=bool(model.gated),
        format=kind,
        file=file,
        tower=tower_among(file, names),
        settings=architecture if kind == "GGUF" else model.config,
    )


def _sound(repo: str) -> bool:
    """True for OWNER/NAME, which is safe to show and to ask for."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(repo)
    except HFValidationError:
        return False
    return repo.count("/") == 1 and repo.isascii()
