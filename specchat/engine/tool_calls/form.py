"""The form of tool calls in a chat template, as probes find it."""

from dataclasses import dataclass
from typing import Literal

CallKind = Literal["object", "named", "tagged", "gemma", "python", "channel"]
"""Kinds of calls:

object: a JSON object, or a list of them, holds the name and the arguments;
named: the name, then a JSON object of the arguments;
tagged: the name, then each argument between tags;
gemma: `call:name{key:value}` with strings between `<|"|>`;
python: a list of calls in Python's syntax;
channel: a part of a reply addressed to `functions.name`, a JSON object.
"""


@dataclass(frozen=True)
class CallKeys:
    """Keys of a call that is an object; `name` is empty where the only key is the name, `id` where there is none."""

    name: str = "name"
    arguments: str = "arguments"
    id: str = ""


@dataclass(frozen=True)
class CallForm:
    """A form of calls. Patterns are regular expressions.

    Attributes:
        opening: the mark before the first call; empty where the reply begins with the call itself.
        closing: the mark after the last one; empty where the reply ends there.
        later: the mark before a call that follows an answer or another call; only where there is no opening mark.
        end: the token that ends a reply after its calls; empty where it is that of other replies.
        marks: tokens that the calls are made of.
        keys: of an object.
        name: pattern of a name, in its group `name`, with what precedes and follows it up to the arguments; the group
            `id` is the call's, if the model writes one.
        key: pattern of an argument's name, in its group `key`, with what precedes and follows it.
        value_end: pattern of the end of an argument's value.
        sample: the probe's call as the template writes it, with its marks.
    """

    kind: CallKind
    opening: str = ""
    closing: str = ""
    later: str = ""
    end: str = ""
    marks: frozenset[str] = frozenset()
    keys: CallKeys = CallKeys()
    name: str = ""
    key: str = ""
    value_end: str = ""
    sample: str = ""


@dataclass(frozen=True)
class ToolFormat:
    """The way in which a template takes tools, calls and results.

    Attributes:
        variable: the template's argument for tools; as JSON text where `as_text`.
        described: every parameter needs a description, if need be an empty one.
        objects: arguments are given as objects, not as JSON text.
        nothing: the content of a message that only calls: "" or None.
        alone: a message that calls has no content, or the template would leave the calls out.
        ids: "any", or "nine" where the template demands nine letters and digits.
        writes_calls: the template writes calls; otherwise they are part of the content.
        results: the role of a tool's result; "user" where the template does not show other roles.
        joined: a user's message may not follow results: it is joined to the last of them.
        call: the form of calls.
    """

    variable: str = "tools"
    as_text: bool = False
    described: bool = False
    objects: bool = True
    nothing: str | None = ""
    alone: bool = False
    ids: Literal["any", "nine"] = "any"
    writes_calls: bool = True
    results: Literal["tool", "user"] = "tool"
    joined: bool = False
    call: CallForm = CallForm("object")
