"""TensorRT-LLM's trtllm-serve: usage by chunk tells the verify steps, a list of iterations at /metrics their drafts."""

from collections.abc import Mapping
from typing import Any

from specchat.remote.chunks import ChunkDialect, ChunkReader
from specchat.remote.connection import ServerConnection
from specchat.remote.errors import ServerError
from specchat.remote.json_values import table, whole
from specchat.remote.openai import EventReader, ServerFacts, ServerFigures

UNCOUNTED = "draft tokens are estimated from accepted ones, until /metrics tells them (enable_iter_perf_stats: true)"
COUNTED = "draft tokens and accepted ones are the server's own counts, if nobody else reads its /metrics"


class TrtLlmDialect(ChunkDialect):
    """Reading the list empties it, so its sums are kept here. It is read after a reply and not before: a server
    with an empty list waits for two seconds before it answers."""

    title: str = "TensorRT-LLM"
    continues: bool = False
    reader: type[EventReader] = ChunkReader
    _sums = ServerFigures(0, 0, 0)
    _keeps_list = True

    async def look(self, connection: ServerConnection, model: Mapping[str, Any]) -> ServerFacts:
        context = whole(model.get("max_model_len")) or 0
        try:
            await self._read(connection)
        except ServerError:
            self._keeps_list = False
        drafts = self._sums.drafted > 0
        return ServerFacts(context, True if drafts else None, self.longest, note=COUNTED if drafts else UNCOUNTED)

    async def totals_before(self, connection: ServerConnection) -> ServerFigures | None:
        del connection
        return self._sums

    async def totals(self, connection: ServerConnection) -> ServerFigures | None:
        if not self._keeps_list:
            return None
        self._keeps_list = await self._read(connection) > 0
        return self._sums

    async def _read(self, connection: ServerConnection) -> int:
        """Add the iterations that ended since the last time; returns their number."""
        listed = await connection.get("/metrics")
        found = [table(one) for one in listed] if isinstance(listed, list) else []
        for iteration in found:
            told, sums = table(iteration.get("specDecodingStats")), self._sums
            steps, drafted = whole(told.get("numRequestsWithDraftTokens")), whole(told.get("numDraftTokens"))
            accepted = whole(told.get("numAcceptedTokens"))
            if steps and drafted and accepted is not None and accepted <= drafted:
                self._sums = ServerFigures(sums.steps + steps, sums.drafted + drafted, sums.accepted + accepted)
                self.longest = max(self.longest, -(-drafted // steps))
        return len(found)
