"""The common part of servers whose chunks are verify steps: vLLM, SGLang and TensorRT-LLM."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specchat.engine.protocol.requests import Generate
from specchat.remote.json_values import whole
from specchat.remote.openai import OUR_NAMES, Chunk, Dialect, EventReader


class ChunkReader(EventReader):
    """A chunk of several tokens is a step that accepted all but one; the first step follows the prompt undrafted.

    Draft tokens are the server's draft length a step, or the longest accepted draft where that is unknown. A step of
    one token had a draft if all steps have one; else the server's counts tell at the end.
    """

    _steps = 0
    _draft = (0, 0)
    _longest = 0

    def read(self, event: Mapping[str, Any]) -> Chunk:
        before = self._tokens
        chunk = super().read(event)
        emitted = chunk.tokens - before
        if emitted > 0:
            self._steps += 1
            self._longest = max(self._longest, self.known.draft_length, emitted - 1)
            if self._steps > 1 and self.known.drafts is not False and (emitted > 1 or self.known.always):
                drafted, accepted = self._draft
                self._draft = (drafted + self._longest, accepted + emitted - 1)
        return replace(chunk, drafted=self._draft[0], accepted=self._draft[1])

    def _count(self, event: Mapping[str, Any], choice: Mapping[str, Any], wrote: bool) -> int:
        ids = choice.get("token_ids")
        if isinstance(ids, list):
            return self._tokens + len(ids)
        if event.get("usage") is not None and self.completion_tokens is not None:
            return max(self._tokens, self.completion_tokens)
        return super()._count(event, choice, wrote)


class ChunkDialect(Dialect):
    options: Mapping[str, str] = OUR_NAMES
    continues: bool = True
    takes_template: bool = True

    def body(self, request: Generate, model: str) -> dict[str, Any]:
        body = {**super().body(request, model), **going_on(request.beginning.text)}
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        return body


def going_on(beginning: str) -> dict[str, bool]:
    """The fields that let a server go on from the last message instead of beginning an answer to it."""
    return {"continue_final_message": True, "add_generation_prompt": False} if beginning else {}


def counts(value: Any) -> tuple[int, ...]:
    """A list of counts; empty where it is none."""
    found = [whole(one) for one in value] if isinstance(value, list) else []
    return tuple(one for one in found if one is not None) if None not in found else ()
