"""Triton Inference Server: prompts go there as text, so the chat template is applied here."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from specchat.clean import one_line
from specchat.engine.protocol.requests import Generate
from specchat.remote.connection import ServerConnection
from specchat.remote.errors import ServerError
from specchat.remote.json_values import table
from specchat.remote.openai import Dialect, ServerFacts
from specchat.remote.raw_prompt import RawPrompts
from specchat.remote.triton_forms import FORMS, TritonForm, form_of, unsent

NO_TOOLS = "Triton takes prompts as they stand, and specchat puts no tools into them: ask without tools."
MAX_TRIED = 20
"""Models of a repository that are looked at for one that writes text."""


class TritonDialect(Dialect):
    title: str = "Triton"
    continues: bool = True
    takes_template: bool = True
    takes_tools: bool = False
    _form: TritonForm = FORMS[0]
    _inputs: frozenset[str] = frozenset()
    _prompts: RawPrompts | None = None

    def path(self, model: str) -> str:
        return f"/v2/models/{quote(model, safe='')}/generate_stream"

    async def look(self, connection: ServerConnection, model: Mapping[str, Any]) -> ServerFacts:
        name = str(model.get("id", ""))
        config = table(await connection.get(f"/v2/models/{quote(name, safe='')}/config"))
        self._inputs = _names(config.get("input"))
        form = form_of(self._inputs)
        if form is None:
            wanted = " or ".join(f"text_input and {form.mark}" for form in FORMS)
            words = f'{connection.root}: the model "{one_line(name, 60)}" does not have the inputs {wanted}.'
            raise ServerError(f"{words} Name another one as model.", "model")
        if table(config.get("model_transaction_policy")).get("decoupled") is not True:
            raise ServerError(
                f'{connection.root}: the model "{one_line(name, 60)}" sends no streams. '
                "Set decoupled to true in its configuration.",
                "model",
            )
        if not self._server.tokenizer:
            raise ServerError(
                "Triton takes prompts as they stand: name the folder with the model's tokenizer and chat template "
                "as tokenizer in models.toml.",
                "config",
            )
        self._form, self.reader, self.title, self.options = form, form.reader, form.title, form.options
        self.ends_with_body = "return_finish_reason" not in self._inputs
        self._prompts = RawPrompts.read(Path(self._server.tokenizer), self._template)
        return ServerFacts(thinks=self._prompts.thinks, note=form.note)

    def body(self, request: Generate, model: str) -> dict[str, Any]:
        del model
        assert self._prompts is not None
        self._refuse(request)
        if request.tools and request.tool_choice != "none":
            raise ServerError(NO_TOOLS, "request")
        if request.grammar is not None:
            raise ServerError(f"{self._here} takes no grammars and JSON schemas here.", "request")
        sampling = self._sampling(request.sampling)
        if name := unsent(request.sampling, self._form, self._inputs):
            raise ServerError(f"{self._here} has no {name}: set it back.", "request")
        prompt = self._prompts.prompt(request.messages, request.template, request.beginning.text)
        return self._form.body(prompt, sampling, request.limits, self._inputs)


async def is_triton(connection: ServerConnection) -> bool:
    """True if the server says that it is one."""
    with suppress(ServerError):
        return table(await connection.get("/v2")).get("name") == "triton"
    return False


async def triton_models(connection: ServerConnection) -> list[Mapping[str, Any]]:
    """The models that are ready, in the form of OpenAI's list, those that write text first.

    Raises:
        ServerError: they cannot be listed.
    """
    listed = await connection.post("/v2/repository/index", {})
    ready = [table(one) for one in listed] if isinstance(listed, list) else []
    names = [str(one["name"]) for one in ready if one.get("name") and one.get("state", "READY") == "READY"]
    writing: list[str] = []
    for name in names[:MAX_TRIED]:
        with suppress(ServerError):
            about = table(await connection.get(f"/v2/models/{quote(name, safe='')}"))
            writing += [name] if form_of(_names(about.get("inputs"))) is not None else []
    return [{"id": name} for name in dict.fromkeys([*writing, *names])]


def _names(tensors: Any) -> frozenset[str]:
    found: Iterable[Any] = tensors if isinstance(tensors, list) else ()
    return frozenset(str(table(one).get("name")) for one in found)
