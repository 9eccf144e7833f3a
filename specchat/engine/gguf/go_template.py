"""Chat templates of Ollama, in Go's text/template, as Jinja.

What a template can do: pkg.go.dev/text/template. What Ollama gives it: github.com/ollama/ollama, template/template.go.
A template of `.Messages` gets the whole chat; an older one writes a turn from `.System`, `.Prompt` and `.Response`,
and the last turn ends before its response.
"""

import re
from collections.abc import Callable, Sequence

from specchat.engine.gguf.go_syntax import GoToken, Node, Parser, Untranslated

ROOT = {
    "Messages": "chat.messages", "System": "chat.system", "Tools": "(tools or [])", "Suffix": "''",
    "Think": "(enable_thinking|default(false))", "IsThinkSet": "(enable_thinking is defined)",
    "ThinkLevel": "(reasoning_effort|default(''))", "Response": "''", "Prompt": "''",
}  # fmt: skip
"""Fields of the dot outside loops where the template takes messages."""
TURN = ROOT | {"System": "system", "Prompt": "prompt", "Response": "response", "Messages": "[]", "Tools": "[]"}
"""The fields of a template that writes a turn."""
FIELDS = {"ToolCalls": "tool_calls", "ToolName": "name", "ToolCallID": "tool_call_id", "ID": "id"}
"""Fields of messages and tools whose names are no lower case of Go's."""
TEXTS = ("role", "content", "thinking", "name", "description")
"""Fields that are empty texts where they are missing."""
COMPARE = {"ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
JSON = "tojson(separators=(',', ':'))"
CHAT = (
    """{%- macro shown(x) -%}
{{- x if x is string else '' if x is undefined or x is none else x|"""
    + JSON
    + """ -}}
{%- endmacro -%}{%- set chat = namespace(messages=[], system='') -%}
{%- for m in messages -%}{%- set said = m.content or '' -%}
{%- set m = dict(m, content=said, thinking=m.thinking or m.reasoning_content or '') -%}
{%- if m.role == 'system' -%}
{%- set chat.system = chat.system ~ ('\\n\\n' if chat.system else '') ~ said -%}{%- endif -%}
{%- set last = chat.messages[-1] if chat.messages else {} -%}
{%- if last.role == m.role and m.role != 'tool' -%}
{%- set chat.messages = chat.messages[:-1] + [dict(last, content=last.content ~ '\\n\\n' ~ said)] -%}
{%- else -%}{%- set chat.messages = chat.messages + [m] -%}{%- endif -%}
{%- endfor -%}"""
)
"""Neighbours of one role are one message; all that the system says is in `chat.system`, too."""
TURNS = """{%- set at = namespace(system='', prompt='', response='') -%}
{%- for m in chat.messages -%}
{%- if (m.role == 'system' and (at.prompt or at.response)) or (m.role == 'user' and at.response) -%}
{{- whole(at.system, at.prompt, at.response) -}}
{%- set at.system = '' -%}{%- set at.prompt = '' -%}{%- set at.response = '' -%}
{%- endif -%}
{%- if m.role == 'system' -%}{%- set at.system = m.content -%}
{%- elif m.role == 'user' -%}{%- set at.prompt = m.content -%}
{%- elif m.role == 'assistant' -%}{%- set at.response = m.content -%}{%- endif -%}
{%- endfor -%}
{{- begun(at.system, at.prompt, at.response) -}}"""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}


def as_jinja(source: str, bos: str = "") -> str:
    """Translate a template; the prompt begins with `bos`.

    Raises:
        Untranslated: something is not read here, or is no template.
    """
    try:
        return _translated(source, bos)
    except RecursionError:
        raise Untranslated("too many blocks in blocks") from None


def _translated(source: str, bos: str) -> str:
    nodes = Parser(source).nodes
    if not any(one.kind == "text" for one in _all_nodes(nodes)):
        raise Untranslated("no marks around what is said")
    names = {token.text for one in _all_nodes(nodes) for token in one.tokens}
    parts = ["" if source.startswith(bos) or not bos else "{{- " + _quoted(bos) + " -}}", CHAT]
    if ".Messages" in names:
        return "".join([*parts, *_Writer(ROOT).block(nodes, "")])
    if ".Prompt" not in names:
        raise Untranslated("no messages and no prompt")
    if ".Response" not in names:
        nodes.append(Node("print", tokens=[GoToken("field", ".Response", False)]))
    for name, written in (("whole", nodes), ("begun", _until_response(nodes, [False]))):
        macro = "".join(_Writer(TURN).block(written, ""))
        parts.append("{%- macro " + name + "(system, prompt, response) -%}" + macro + "{%- endmacro -%}")
    return "".join([*parts, TURNS])


def _all_nodes(nodes: Sequence[Node]) -> list[Node]:
    return [found for one in nodes for found in (one, *_all_nodes(one.body), *_all_nodes(one.other))]


def _until_response(nodes: Sequence[Node], cut: list[bool]) -> list[Node]:
    """The nodes before the first one with the response; a block that has it in its condition is empty then."""
    left = list[Node]()
    for one in nodes:
        if cut[0]:
            break
        cut[0] = any(token.text == ".Response" for token in one.tokens)
        if cut[0] and not one.body and not one.other:
            break
        body = _until_response(one.body, cut)
        left.append(Node(one.kind, one.text, one.tokens, body, _until_response(one.other, cut)))
    return left


def _quoted(text: str) -> str:
    """A text as Jinja writes it between quotes."""
    return "'" + text.encode("unicode_escape").decode().replace("'", "\\'") + "'"


class _Writer:
    """Writes nodes as Jinja; variables are attributes of `v`, as they live on after the block that sets them."""

    def __init__(self, root: dict[str, str]) -> None:
        self._root = root
        self._loops = 0
        self._began = False

    def block(self, nodes: Sequence[Node], dot: str) -> list[str]:
        """The nodes where `dot` is the current value, empty for the root."""
        parts = [] if self._began else ["{%- set v = namespace() -%}"]
        self._began = True
        for one in nodes:
            parts += self._node(one, dot)
        return parts

    def _node(self, one: Node, dot: str) -> list[str]:
        if one.kind == "text":
            return ["{{- " + _quoted(one.text) + " -}}"]
        if one.kind in ("break", "continue"):
            return ["{%- " + one.kind + " -%}"]
        names, tokens = _assigned(one.tokens)
        value = _Expression(tokens, dot, self._root).pipeline()
        if one.kind == "print":
            if names:
                return ["{%- set v." + names[0] + " = " + value + " -%}"]
            return ["{{- shown(" + value + ") -}}"]
        other = ["{%- else -%}", *self.block(one.other, dot)] if one.other else []
        if one.kind == "if":
            return ["{%- if " + value + " -%}", *self.block(one.body, dot), *other, "{%- endif -%}"]
        self._loops += 1
        all_, each, new = (f"{name}{self._loops}" for name in ("all", "each", "dot"))
        begin = ["{%- set " + all_ + " = " + value + " -%}"]
        if one.kind == "with":
            setting = [f"{{%- set v.{names[0]} = {all_} -%}}"] if names else []
            return [*begin, "{%- if " + all_ + " -%}", *setting, *self.block(one.body, all_), *other, "{%- endif -%}"]
        item = f"({all_}[{each}] if {all_} is mapping else {each})"
        begin += ["{%- for " + each + " in " + all_ + " or [] -%}", "{%- set " + new + " = " + item + " -%}"]
        keys = [f"({each} if {all_} is mapping else loop.index0)", new][-len(names) :] if names else []
        begin += [f"{{%- set v.{name} = {key} -%}}" for name, key in zip(names, keys, strict=True)]
        return [*begin, *self.block(one.body, new), *other, "{%- endfor -%}"]


def _assigned(tokens: list[GoToken]) -> tuple[list[str], list[GoToken]]:
    """Variables that an action sets, without their mark, and the tokens of the value."""
    signs = [at for at, token in enumerate(tokens) if token.text in (":=", "=")]
    if not signs:
        return [], tokens
    names = [token.text[1:] for token in tokens[: signs[0]] if token.text != ","]
    if not 1 <= len(names) <= 2 or not all(re.fullmatch(r"[A-Za-z_]\w*", name) for name in names):
        raise Untranslated("an assignment to no variable")
    return names, tokens[signs[0] + 1 :]


class _Expression:
    """The value of an action, as an expression of Jinja."""

    def __init__(self, tokens: list[GoToken], dot: str, root: dict[str, str]) -> None:
        self._tokens, self._dot, self._root = tokens, dot, root
        self._at = 0

    def pipeline(self) -> str:
        """Read all tokens.

        Raises:
            Untranslated: something is not read here.
        """
        value = self._pipes()
        if self._at < len(self._tokens):
            raise Untranslated(self._tokens[self._at].text)
        return value

    def _next(self, *texts: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at].text in texts

    def _pipes(self) -> str:
        value = self._command(None)
        while self._next("|"):
            self._at += 1
            value = self._command(value)
        return value

    def _command(self, piped: str | None) -> str:
        """A value, or a function of those that follow and of what is `piped` to it."""
        if self._at >= len(self._tokens):
            raise Untranslated("an empty action")
        first = self._tokens[self._at]
        values = list[str]()
        if called := first.kind == "name" and not first.text.startswith("$") and first.text not in _CONSTANTS:
            self._at += 1
        while self._at < len(self._tokens) and not self._next("|", ")"):
            values.append(self._operand())
        values += [piped] if piped is not None else []
        if not called and len(values) == 1:
            return values[0]
        if not called or (write := _FUNCTIONS.get(first.text)) is None:
            raise Untranslated(first.text)
        try:
            return f"({write(*values)})"
        except TypeError:
            raise Untranslated(f"{first.text} of {len(values)}") from None

    def _operand(self) -> str:
        kind, text, _ = self._tokens[self._at]
        self._at += 1
        if kind == "text":
            return _quoted(_unquoted(text))
        if kind == "number":
            return text
        if text == "(":
            value = self._pipes()
            if not self._next(")"):
                raise Untranslated("a bracket that does not close")
            self._at += 1
        elif kind == "field":
            value = self._field(self._dot, text) if self._dot else self._of_root(text)
        elif text == ".":
            if not self._dot:
                raise Untranslated("{{ . }} outside a loop")
            value = self._dot
        elif text == "$":
            if self._at >= len(self._tokens) or self._tokens[self._at].kind != "field":
                raise Untranslated("$")
            self._at += 1
            value = self._of_root(self._tokens[self._at - 1].text)
        elif kind == "name" and (text.startswith("$") or text in _CONSTANTS):
            value = f"v.{text[1:]}" if text.startswith("$") else _CONSTANTS[text]
        else:
            raise Untranslated(text)
        while self._at < len(self._tokens) and self._tokens[self._at][::2] == ("field", False):
            value = self._field(value, self._tokens[self._at].text)
            self._at += 1
        return value

    def _of_root(self, name: str) -> str:
        if (value := self._root.get(name[1:])) is None:
            raise Untranslated(name)
        return value

    @staticmethod
    def _field(value: str, name: str) -> str:
        key = FIELDS.get(name[1:], name[1:].lower())
        found = f"({value} or {{}})['{key}']"
        return f"({found} or '')" if key in TEXTS else found


def _unquoted(text: str) -> str:
    if text.startswith("`"):
        return text[1:-1]
    escaped = re.findall(r"\\(.)", text)
    if other := [one for one in escaped if one not in _ESCAPES]:
        raise Untranslated(f"\\{other[0]}")
    return re.sub(r"\\(.)", lambda found: _ESCAPES[found[1]], text[1:-1])


def _equal(one: str, *others: str) -> str:
    return f"{one} == {others[0]}" if len(others) == 1 else f"{one} in [{', '.join(others)}]"


def _slice(value: str, start: str = "", end: str = "") -> str:
    return f"({value} or [])[{start}:{end}]"


def _compare(sign: str) -> Callable[[str, str], str]:
    return lambda one, other: f"{one} {sign} {other}"


_CONSTANTS = {"true": "true", "false": "false"}
_FUNCTIONS: dict[str, Callable[..., str]] = {
    "and": lambda *values: " and ".join(values),
    "or": lambda *values: " or ".join(values),
    "not": lambda value: f"not {value}",
    "eq": _equal,
    "len": lambda value: f"({value} or [])|length",
    "index": lambda value, *keys: value + "".join(f"[{key}]" for key in keys),
    "slice": _slice,
    "print": lambda *values: " ~ ".join(values),
    "printf": lambda form, *values: f"{form}.replace('%v', '%s')|format({', '.join(values)})",
    "json": lambda value: f"{value}|{JSON}",
    "currentDate": lambda *_: "strftime_now('%Y-%m-%d')",
} | {name: _compare(sign) for name, sign in COMPARE.items()}
"""Go's functions and Ollama's, by their names."""
