"""Models on the hub, by words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specchat.clean import one_line
from specchat.engine.errors import EngineError
from specchat.engine.fetch.failures import failure
from specchat.engine.fetch.listing import PATIENCE_S
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
    from huggingface_hub import ModelInfo, get_session
    from huggingface_hub.errors import OfflineModeIsEnabled
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]

    asked: Mapping[str, str | int | Sequence[str]] = {
        "search": words,
        "filter": "text-generation",
        "sort": "downloads",
        "limit": MOST,
        "expand": ["downloads", "gated", "tags", "safetensors"],
    }
    try:
        # Once: `HfApi.list_models` tries again for half a minute, and says so on the screen.
        answer = get_session().get(
            f"{hub.endpoint}/api/models", params=asked, headers=build_hf_headers(), timeout=PATIENCE_S
        )
        hf_raise_for_status(answer)
        return tuple(_hit(ModelInfo(**found)) for found in answer.json())  # type: ignore[no-untyped-call]
    except OfflineModeIsEnabled:
        raise EngineError("download", f"HF_HUB_OFFLINE keeps {hub.host} from being searched. Unset it.") from None
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
