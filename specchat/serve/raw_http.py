"""Rules of HTTP that uvicorn leaves to a server: whole addresses, and answers that come before a request ends."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_DRAINED = 64 << 20
"""Bytes that are read and dropped after an answer."""


class RawHttp:
    """`app` behind a real socket."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request.

        A client that sends its whole body before it reads would lose an answer that closes the connection: what it
        sends is read first, as long as the connection may wait for a request.
        """
        unread = True

        async def received() -> Message:
            nonlocal unread
            message = await receive()
            unread = bool(message.get("more_body"))
            return message

        async def sent(message: Message) -> None:
            if message["type"] != "http.response.body" or message.get("more_body"):
                await send(message)
                return
            await send({**message, "more_body": True})
            drained = 0
            while unread and drained < MAX_DRAINED:
                drained += len((await received()).get("body", b""))
            await send({"type": message["type"]})

        await self._app(with_path(scope), received, sent)


def with_path(scope: Scope) -> Scope:
    """A request for `http://host/path` as one for `/path` of that host."""
    kind, _, rest = scope["path"].partition("://")
    if kind.lower() not in ("http", "https"):
        return scope
    host, _, path = rest.partition("/")
    headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
    return {**scope, "path": f"/{path}", "headers": [(b"host", host.encode()), *headers]}
