"""Models on the hub, by words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from specchat.clean import one_line
from specchat.engine.errors import EngineError, ModelError
from specchat.engine.fetch.answer import LISTING_BYTES, Answer
from specchat.engine.fetch.failures import failure
from specchat.engine.fetch.source import Hub
from specchat.engine.foreign import Foreign, checked, parsed

MOST = 20
PATIENCE_S = 10.0
"""Seconds that a hub has to answer."""


@dataclass(frozen=True)
class HubHit:
    """A repository. `downloads` are those of the last month; `parameters` 0 and `licence` "" are not known."""

    repo: str
    downloads: int
    parameters: int
    licence: str
    gated: bool
    format: str


def search(hub: Hub, words: str) -> tuple[HubHit, ...]:
    """The most downloaded models that write text and whose name holds `words`.

    Raises:
        EngineError: "download": the hub does not answer.
    """
    from huggingface_hub.errors import OfflineModeIsEnabled

    query: Mapping[str, str | int | Sequence[str]] = {
        "search": words,
        "filter": "text-generation",
        "sort": "downloads",
        "limit": MOST,
        "expand": ["downloads", "gated", "tags", "safetensors"],
    }
    try:
        with Answer(hub, f"{hub.endpoint}/api/models", query, within_s=PATIENCE_S) as answer:
            body = answer.body(LISTING_BYTES)
    except OfflineModeIsEnabled:
        raise EngineError("download", f"HF_HUB_OFFLINE keeps {hub.host} from being searched. Unset it.") from None
    except Exception as error:  # errors of the library do not share one base class
        raise failure(hub, words, error) from None
    where = f"What {hub.host} found"
    try:
        hits = checked(_Hits, {"hits": parsed(body, where)}, where).hits
    except ModelError as error:
        raise EngineError("download", error.message) from None
    return tuple(map(_hit, hits))


class _Weights(Foreign):
    total: int = 0


class _HubModel(Foreign):
    id: str
    downloads: int = 0
    gated: bool | str | None = None
    tags: list[str] | None = None
    safetensors: _Weights | None = None


class _Hits(Foreign):
    hits: list[_HubModel] = Field(description="a list of models")


def _hit(model: _HubModel) -> HubHit:
    tags = model.tags or []
    licences = [tag.partition(":")[2] for tag in tags if tag.startswith("license:")]
    return HubHit(
        repo=one_line(model.id, 100),
        downloads=model.downloads,
        parameters=model.safetensors.total if model.safetensors else 0,
        licence=one_line(next(iter(licences), ""), 40),
        gated=bool(model.gated),
        format="GGUF" if "gguf" in tags else "safetensors" if "safetensors" in tags else "",
    )
