"""A server that was found: its connection, its kind and its model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from specchat.engine.protocol.pair import Server
from specchat.remote.connection import PATIENCE_S, ServerConnection
from specchat.remote.kinds import Found, find


@dataclass(frozen=True)
class FoundServer:
    connection: ServerConnection
    found: Found

    @classmethod
    async def open(
        cls,
        server: Server,
        template: Mapping[str, str | int | bool],
        patience_s: float = PATIENCE_S,
        waiting: Callable[[str], object] = lambda _: None,
    ) -> "FoundServer":
        """Find a server and its model; `waiting` gets a sentence while it is busy.

        Raises:
            ServerError: it cannot be reached, or does not have the model.
        """
        connection = ServerConnection(server, patience_s)
        connection.waiting = waiting
        try:
            return cls(connection, await find(connection, server, template))
        except BaseException:
            await connection.close()
            raise

    async def close(self) -> None:
        await self.connection.close()
