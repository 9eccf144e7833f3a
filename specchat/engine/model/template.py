"""Chat templates: programs of somebody else's, run in a sandbox."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.model.files import found, read_text


def template_source(folder: Path, config: dict[str, Any]) -> str | None:
    """The chat template of a checkpoint, from its own file or from tokenizer_config.json; None where it has none.

    Raises:
        ModelError: what stands in its place is no text.
    """
    file = folder / "chat_template.jinja"
    source = read_text(file) if found(file) else config.get("chat_template")
    if isinstance(source, list):  # several named templates; the default one is for chatting
        named = [t for t in source if isinstance(t, dict)]
        source = next((t.get("template") for t in named if t.get("name") == "default"), None)
    if source is not None and not isinstance(source, str):
        raise ModelError(f"{folder / 'tokenizer_config.json'}: chat_template is neither a text nor a list of them.")
    return source


def render(template: jinja2.Template, turns: list[dict[str, str]], special: dict[str, str]) -> str:
    """A chat as text up to the assistant's next words; templates ask for tools and documents even if there are none."""
    return template.render(messages=turns, tools=None, documents=None, add_generation_prompt=True, **special)


def compile_template(source: str, where: str) -> jinja2.Template:
    """A chat template in a sandbox, with the helpers that published templates call.

    Raises:
        ModelError: the template does not parse.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", GenerationTag]
    )

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    def to_json(value: object, indent: int | None = None, **_: object) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    environment.filters["tojson"] = to_json
    try:
        return environment.from_string(source)
    except RecursionError:
        raise ModelError(f"{where}: the chat template does not parse: it is nested too deeply.") from None
    except Exception as error:  # Python's own compiler refuses some of what jinja lets pass
        raise ModelError(f"{where}: the chat template does not parse: {one_line(str(error))}.") from None


class GenerationTag(jinja2.ext.Extension):
    """`{% generation %}` marks the assistant's text for training; here its body is simply rendered."""

    tags = {"generation"}  # noqa: RUF012 (declared so by jinja2)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
