"""The routes of `specchat serve`."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from specchat import __version__
from specchat.serve import (
    anthropic,
    compaction,
    guard,
    llamacpp,
    model_card,
    ollama,
    openai_chat,
    openai_responses,
    openai_text,
)
from specchat.serve.errors import ApiError
from specchat.serve.generation import Served

Answer = Callable[[Served, str, Request, Any], Awaitable[Response]]
"""Answers a request of a client with a body."""
Lookup = Callable[[Served, str, Request], Awaitable[Response]]
"""Answers one without."""

POSTS: Mapping[str, Answer] = {
    "/v1/chat/completions": openai_chat.chat_completions,
    "/v1/completions": openai_text.completions,
    "/v1/responses": openai_responses.responses,
    "/v1/responses/compact": compaction.compact,
    "/v1/responses/input_tokens": openai_responses.input_tokens,
    "/v1/messages": anthropic.messages,
    "/v1/messages/count_tokens": anthropic.count_tokens,
    **llamacpp.POSTS,
    **ollama.POSTS,
}
PAGES: Mapping[str, Callable[[Served], Any]] = {
    "/v1/models": model_card.models,
    "/version": lambda _: {"version": __version__},
    **llamacpp.PAGES,
    **ollama.PAGES,
}


def make_app(served: Served, guarded: guard.AccessCheck) -> Starlette:
    """The app that answers with `served`, for requests that pass `guarded`."""

    def posted(answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            guarded.check(request)
            return await answer(served, guard.client(request), request, await guarded.body(request))

        return endpoint

    def looked_up(answer: Lookup) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            guarded.check(request)
            return await answer(served, guard.client(request), request)

        return endpoint

    def page(content: Callable[[Served], Any]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            guarded.check(request)
            return JSONResponse(content(served))

        return endpoint

    async def model(served: Served, client: str, request: Request) -> Response:
        del client
        return JSONResponse(model_card.model(served, request.path_params["name"]))

    async def health(request: Request) -> Response:
        del request
        served.loaded()
        return JSONResponse({"status": "ok"})

    async def metrics(request: Request) -> Response:
        guarded.check(request)
        return Response(served.metrics.page(), media_type="text/plain; version=1.0.0; charset=utf-8")

    response = looked_up(openai_responses.kept_response)
    routes = [
        *(Route(path, posted(answer), methods=["POST"]) for path, answer in POSTS.items()),
        *(Route(path, page(content)) for path, content in PAGES.items()),
        Route("/v1/models/{name}", looked_up(model)),
        Route("/v1/responses/{name}", response, methods=["GET", "DELETE"]),
        Route("/v1/responses/{name}/input_items", looked_up(openai_responses.input_items)),
        Route("/health", health),
        Route("/metrics", metrics),
    ]
    refusals: dict[Any, Any] = {
        ApiError: lambda request, error: _refused(request, error),
        ValidationError: lambda request, error: _refused(request, ApiError.of_fields(error)),
        HTTPException: lambda request, error: _refused(request, _of_route(request, error), error.headers),
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
    if error.status_code == 405:
        words = f"{request.url.path} takes {(error.headers or {}).get('Allow')} alone."
    return ApiError(error.status_code, words)


def _refused(request: Request, error: ApiError, headers: Mapping[str, str] | None = None) -> Response:
    forms = {"/v1/messages": error.anthropic, "/api/": error.ollama}
    form = next((form for path, form in forms.items() if request.url.path.startswith(path)), error.openai)
    return JSONResponse(form(), error.status, {**error.headers, **(headers or {})})
