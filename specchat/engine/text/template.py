"""Chat templates: untrusted programs, run in a sandbox."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.files import found, read_json, read_text
from specchat.engine.text.sandbox import MOST_INDENT, Sandbox

SETTINGS = "tokenizer_config.json"


@dataclass(frozen=True)
class TemplateSource:
    """A chat template and the file it was found in; `unsupported` is the reason why there is none."""

    text: str | None
    file: Path
    unsupported: str = ""


def template_source(folder: Path, config: dict[str, Any]) -> TemplateSource:
    """The chat template of a checkpoint, from any place that transformers searches.

    Those are chat_template.jinja, chat_template.json, and `config`, the contents of tokenizer_config.json.

    Raises:
        ModelError: the template is not text.
    """
    own, processor, settings = (folder / n for n in ("chat_template.jinja", "chat_template.json", SETTINGS))
    if found(own):
        return TemplateSource(read_text(own), own)
    file, source = settings, config.get("chat_template")
    if source is None and found(processor):
        file, source = processor, read_json(processor).get("chat_template")
    if isinstance(source, dict):
        source = [{"name": name, "template": text} for name, text in source.items()]
    if isinstance(source, list):  # several named templates; the default one is for chatting
        named = {t["name"]: t.get("template") for t in source if isinstance(t, dict) and isinstance(t.get("name"), str)}
        if "default" not in named:
            names = one_line(", ".join(named), 100)
            return TemplateSource(None, file, f"{file.name} has chat templates named {names}, and none is the default")
        source = named["default"]
    if source is not None and not isinstance(source, str):
        raise ModelError(f"{file}: chat_template is neither a text nor a list of them.")
    return TemplateSource(source, file, "" if source is not None else "this checkpoint has no chat template")


def render(
    template: jinja2.Template,
    turns: Sequence[Any],
    special: Mapping[str, str],
    arguments: Mapping[str, Any] | None = None,
    *,
    answering: bool = True,
) -> str:
    """Render a chat as text, with the header of the next reply if `answering`.

    `tools` and `documents` are None unless `arguments` has them: templates read both.
    """
    given = {"tools": None, "documents": None, **special, **(arguments or {})}
    return template.render(messages=turns, add_generation_prompt=answering, **given)


@lru_cache(maxsize=16)
def compile_template(source: str, where: str) -> jinja2.Template:
    """A chat template in a sandbox, with the helpers that published templates call.

    Raises:
        ModelError: the template does not parse.
    """
    environment = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", GenerationTag])

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    def to_json(value: object, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
        known = {name: options[name] for name in ("separators", "sort_keys") if name in options}
        spaces = indent if indent is None else min(indent, MOST_INDENT)
        # Filters give generators.
        text = json.dumps(
            environment.weighed(value),
            ensure_ascii=ensure_ascii,
            indent=spaces,
            default=lambda one: environment.weighed(list(one)),
            **known,
        )
        environment.count(len(text))
        return text

    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    environment.filters["tojson"] = to_json
    try:
        return environment.from_string(source)
    except RecursionError:
        raise ModelError(f"{where}: the chat template does not parse: it is nested too deeply.") from None
    except Exception as error:  # Python's own compiler rejects some templates that jinja accepts
        raise ModelError(f"{where}: the chat template does not parse: {one_line(str(error))}.") from None


class GenerationTag(jinja2.ext.Extension):
    """`{% generation %}` marks the assistant's text for training; here its body is rendered."""

    tags = {"generation"}  # noqa: RUF012 (declared so by jinja2)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
