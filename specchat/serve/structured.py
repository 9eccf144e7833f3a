"""Fields that hold a reply to a grammar, in the forms of OpenAI, vLLM and llama.cpp."""

import asyncio
import json
from typing import Annotated, Any, Literal

from pydantic import Field

from specchat.engine.errors import EngineError
from specchat.engine.grammar.source import MAX_CHARACTERS, check
from specchat.engine.protocol.options import Grammar
from specchat.serve.errors import ApiError
from specchat.serve.lenient import Lenient

Schema = dict[str, Any] | bool
FORMAT = "response_format"


class JsonSchema(Lenient):
    """OpenAI's schema with its name; replies keep to it with and without `strict`."""

    json_schema: Schema | None = Field(None, alias="schema")


class ResponseFormat(Lenient):
    """OpenAI's `response_format`; `schema` beside the type is llama.cpp's."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchema | None = None
    beside: Schema | None = Field(None, alias="schema")


class StructuredOutputs(Lenient):
    """vLLM's `structured_outputs`; `structural_tag` is refused."""

    json_: Schema | str | None = Field(None, alias="json")
    regex: str | None = None
    choice: Annotated[list[str], Field(min_length=1)] | None = None
    grammar: str | None = None
    json_object: bool = False
    structural_tag: Any = None


class GrammarFields(Lenient):
    """All fields that ask for a grammar, of which a request may have one.

    vLLM's older ones begin with `guided_`; `json_schema` and `grammar` are llama.cpp's.
    """

    response_format: ResponseFormat = Field(default_factory=lambda: ResponseFormat.model_validate({}))
    structured_outputs: StructuredOutputs = Field(default_factory=lambda: StructuredOutputs.model_validate({}))
    guided_json: Schema | str | None = None
    guided_regex: str | None = None
    guided_choice: Annotated[list[str], Field(min_length=1)] | None = None
    guided_grammar: str | None = None
    json_schema: Schema | None = None
    grammar: str | None = None

    async def checked_grammar(self) -> Grammar | None:
        """The grammar that a request asks for; None if it leaves the reply free.

        Raises:
            ApiError: it asks for several, or for one that cannot be used; the error names the field.
        """
        found = self.grammars()
        if not found:
            return None
        (field, made), *others = found.items()
        if others:
            raise ApiError(400, f"{field} and {others[0][0]} cannot be used together. Leave one out.", others[0][0])
        try:
            grammar = made if isinstance(made, Grammar) else await asyncio.to_thread(_from_gbnf, made)
            await asyncio.to_thread(check, grammar)
        except EngineError as error:
            raise ApiError(400, f"{field}: {error.message}", field) from None
        return grammar

    def grammars(self) -> dict[str, Grammar | str]:
        """The grammars by the fields that ask for them; a text is GBNF or Lark.

        Raises:
            ApiError: a field lacks its schema, or is not supported.
        """
        outputs = self.structured_outputs
        if outputs.structural_tag is not None:
            field = "structured_outputs.structural_tag"
            raise ApiError(400, f"{field} is not supported by specchat serve. Leave it out.", field)
        found: dict[str, Grammar | str | None] = {
            **self._by_format(),
            "structured_outputs.json": _schema(outputs.json_),
            "structured_outputs.json_object": Grammar("json_object") if outputs.json_object else None,
            "structured_outputs.regex": _regex(outputs.regex),
            "structured_outputs.choice": _choice(outputs.choice),
            "structured_outputs.grammar": outputs.grammar,
            "guided_json": _schema(self.guided_json),
            "guided_regex": _regex(self.guided_regex),
            "guided_choice": _choice(self.guided_choice),
            "guided_grammar": self.guided_grammar,
            "json_schema": _schema(self.json_schema),
            "grammar": self.grammar or None,
        }
        return {field: made for field, made in found.items() if made is not None}

    def _by_format(self) -> dict[str, Grammar | str | None]:
        wanted = self.response_format
        if wanted.type == "text":
            return {}
        schema = wanted.json_schema.json_schema if wanted.json_schema is not None else wanted.beside
        if wanted.type == "json_object" and schema is None:
            return {FORMAT: Grammar("json_object")}
        if schema is None:
            field = f"{FORMAT}.json_schema.schema"
            raise ApiError(400, f"{field} is missing.", field)
        return {FORMAT: _schema(schema)}


def _schema(schema: Schema | str | None) -> Grammar | None:
    if schema is None:
        return None
    return Grammar("json_schema", schema if isinstance(schema, str) else json.dumps(schema))


def _regex(regex: str | None) -> Grammar | None:
    return None if regex is None else Grammar("regex", regex)


def _choice(choice: list[str] | None) -> Grammar | None:
    return None if choice is None else Grammar("lark", "start: " + " | ".join(json.dumps(text) for text in choice))


def _from_gbnf(text: str) -> Grammar:
    """A grammar in Lark, or in llama.cpp's GBNF, which llguidance turns into it.

    Raises:
        EngineError: "request": it is too long, or GBNF that cannot be turned.
    """
    if len(text) > MAX_CHARACTERS:
        return Grammar("lark", text)  # refused for its length
    from llguidance.gbnf_to_lark import any_to_lark

    try:
        return Grammar("lark", any_to_lark(text))
    except Exception as error:
        raise EngineError("request", f"The GBNF grammar cannot be used: {error}.") from None
