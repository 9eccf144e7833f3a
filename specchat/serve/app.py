"""The routes of `specchat serve`."""

import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from specchat import __version__
from specchat.serve import anthropic, guard, openai_chat, openai_responses, openai_text
from specchat.serve.errors import ApiError
from specchat.serve.generation import Served
from specchat.serve.kept_responses import KeptResponses

Answer = Callable[[Served, str, Request, Any], Awaitable[Response]]


def make_app(served: Served, guarded: guard.AccessCheck) -> Starlette:
    """The app that answers with `served`, for requests that pass `guarded`."""
    begun = int(time.time())

    def posted(answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            guarded.check(request)
            return await answer(served, guard.client(request), request, await guarded.body(request))

        return endpoint

    async def count(served: Served, name: str, request: Request, body: Any) -> Response:
        del name, request
        return await anthropic.count_tokens(served, body)

    kept = KeptResponses()

    async def respond(served: Served, name: str, request: Request, body: Any) -> Response:
        return await openai_responses.responses(served, kept, name, request, body)

    def card() -> dict[str, Any]:
        found = {"id": served.pair.id, "object": "model", "created": begun, "owned_by": "specchat"}
        with contextlib.suppress(ApiError):
            found["max_model_len"] = served.loaded().context
        return found

    async def models(request: Request) -> Response:
        guarded.check(request)
        return JSONResponse({"object": "list", "data": [card()], "has_more": False})

    async def model(request: Request) -> Response:
        guarded.check(request)
        name = request.path_params["name"]
        if name not in (served.pair.id, *served.pair.aliases):
            words = f"There is no model {name} here; {served.pair.id} is served."
            raise ApiError(404, words, "model", "model_not_found")
        return JSONResponse(card())

    async def health(request: Request) -> Response:
        del request
        served.loaded()
        return JSONResponse({"status": "ok"})

    async def metrics(request: Request) -> Response:
        guarded.check(request)
        return Response(served.metrics.page(), media_type="text/plain; version=1.0.0; charset=utf-8")

    async def version(request: Request) -> Response:
        guarded.check(request)
        return JSONResponse({"version": __version__})

    routes = [
        Route("/v1/chat/completions", posted(openai_chat.chat_completions), methods=["POST"]),
        Route("/v1/completions", posted(openai_text.completions), methods=["POST"]),
        Route("/v1/responses", posted(respond), methods=["POST"]),
        Route("/tokenize", posted(openai_text.tokenize), methods=["POST"]),
        Route("/v1/messages", posted(anthropic.messages), methods=["POST"]),
        Route("/v1/messages/count_tokens", posted(count), methods=["POST"]),
        Route("/v1/models", models),
        Route("/v1/models/{name}", model),
        Route("/health", health),
        Route("/metrics", metrics),
        Route("/version", version),
    ]
    refusals: dict[Any, Any] = {
        ApiError: lambda request, error: _refused(request, error),
        ValidationError: lambda request, error: _refused(request, ApiError.of_fields(error)),
        HTTPException: lambda request, error: _refused(request, _of_route(request, error)),
        ClientDisconnect: lambda request, _: _refused(request, ApiError(499, "The client left.")),
        Exception: lambda request, _: _refused(request, ApiError(500, "specchat failed. Its log has the details.")),
    }
    return Starlette(routes=routes, exception_handlers=refusals, middleware=[guard.LOCAL_PAGES])


def _of_route(request: Request, error: HTTPException) -> ApiError:
    words = error.detail
    if error.status_code == 404:
        path = request.url.path
        words = f"There is no {path} here."
        if not path.startswith("/v1/") or path.startswith("/v1/v1/"):
            words += " OpenAI's clients need a base_url that ends with /v1, Anthropic's one without."
    return ApiError(error.status_code, words)


def _refused(request: Request, error: ApiError) -> Response:
    body = error.anthropic() if request.url.path.startswith("/v1/messages") else error.openai()
    return JSONResponse(body, error.status, error.headers)
