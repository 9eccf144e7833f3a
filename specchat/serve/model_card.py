"""The pair as clients of all APIs list it."""

import contextlib
from datetime import UTC, datetime
from typing import Any

from specchat.serve.errors import ApiError
from specchat.serve.generation import Served


def card(served: Served) -> dict[str, Any]:
    """The fields of OpenAI's and Anthropic's models.

    Those of vLLM's (`max_model_len`), OpenRouter's (`architecture`) and llama.cpp's (`meta`) beside them.
    """
    found = {
        "id": served.pair.id,
        "object": "model",
        "type": "model",
        "created": served.begun,
        "created_at": datetime.fromtimestamp(served.begun, UTC).isoformat(),
        "owned_by": "specchat",
        "display_name": served.pair.spec.name,
        "lifecycle": "active",
    }
    with contextlib.suppress(ApiError):
        info = served.loaded()
        context = info.context
        found |= {"max_model_len": context, "max_input_tokens": context, "max_tokens": context}
        found["capabilities"] = {"image_input": {"supported": info.sees}}
        found["architecture"] = {"input_modalities": ["text", *["image"] * info.sees], "output_modalities": ["text"]}
        found["meta"] = {"n_ctx": context, "n_vocab": info.target.vocabulary, "n_params": info.target.parameters}
    return found


def models(served: Served) -> dict[str, Any]:
    """The list of models."""
    one = card(served)
    return {"object": "list", "data": [one], "has_more": False, "first_id": one["id"], "last_id": one["id"]}


def model(served: Served, name: str) -> dict[str, Any]:
    """The model `name`.

    Raises:
        ApiError: 404, there is no such model.
    """
    if name not in (served.pair.id, *served.pair.aliases):
        raise ApiError(404, f"There is no model {name} here; {served.pair.id} is served.", "model", "model_not_found")
    return card(served)
