"""Models on the hub, by words."""

from dataclasses import dataclass

from specchat.clean import one_line
from specchat.engine.fetch.failures import failure
from specchat.engine.fetch.source import Hub

MOST = 20


@dataclass(frozen=True)
class Hit:
    """A repository. `downloads` are those of the last month; `parameters` 0 and `licence` "" are not known."""

    repo: str
    downloads: int
    parameters: int
    licence: str
    gated: bool
    format: str


def search(hub: Hub, words: str) -> tuple[Hit, ...]:
    """The most downloaded models that write text and whose name holds `words`.

    Raises:
        EngineError: "download": the hub does not answer.
    """
    from huggingface_hub import HfApi

    try:
        models = HfApi(endpoint=hub.endpoint).list_models(
            search=words,
            filter="text-generation",
            sort="downloads",
            limit=MOST,
            expand=["downloads", "gated", "tags", "safetensors"],
        )
        return tuple(map(_hit, models))
    except Exception as error:  # errors of the library do not share one base class
        raise failure(hub, words, error) from None


def _hit(model: object) -> Hit:
    tags = [str(tag) for tag in getattr(model, "tags", None) or ()]
    licences = [tag.partition(":")[2] for tag in tags if tag.startswith("license:")]
    weights = getattr(model, "safetensors", None)
    return Hit(
        repo=one_line(str(getattr(model, "id", "")), 100),
        downloads=int(getattr(model, "downloads", None) or 0),
        parameters=int(getattr(weights, "total", 0) or 0),
        licence=one_line(next(iter(licences), ""), 40),
        gated=bool(getattr(model, "gated", False)),
        format="GGUF" if "gguf" in tags else "safetensors" if "safetensors" in tags else "",
    )
