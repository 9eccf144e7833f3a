"""Chat templates of Ollama for files that have none: what Ollama writes with them, by its rules."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from specchat.engine.gguf.go_syntax import Untranslated
from specchat.engine.gguf.go_template import as_jinja
from specchat.engine.gguf.ollama import LONGEST_TEMPLATE
from specchat.engine.gguf.tokenizer import tokenizer_files
from specchat.engine.protocol.options import Message
from specchat.engine.text.template import compile_template, render
from specchat.engine.text.tokenizer import Tokenizer
from tests.gguf_files.test_tokenizer import bytewise
from tests.models.made import ollama

SYSTEM, USER, SAID = ({"role": role, "content": role[0].upper()} for role in ("system", "user", "assistant"))
AGAIN = {"role": "user", "content": "V"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": None, "function": {"name": "f", "arguments": {"x": 1}}}],
}
RESULT = {"role": "tool", "name": "f", "content": "42"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {"type": "integer"}}}}}
CHAT = [SYSTEM, USER, SAID, AGAIN]
MODEL = b"GGUF of these tests"


def shown(template: str, chat: list[dict[str, Any]], bos: str = "", **arguments: Any) -> str:
    return render(compile_template(as_jinja(template, bos), "here"), chat, {}, arguments)


@pytest.mark.parametrize(
    ("template", "chat", "expected"),
    [
        # A turn at a time; the last one ends where the response begins, in a condition, too.
        ("<{{ .System }}>[{{ .Prompt }}]", CHAT, "<S>[U]A<>[V]"),
        ("[{{ .Prompt }}]{{ .Response }}</s>", CHAT, "[U]A</s>[V]"),
        ("{{ if .Prompt }}[{{ .Prompt }}]{{ end }}|{{ if .Response }}{{ .Response }}.{{ end }}", CHAT, "[U]|A.[V]|"),
        ("[{{ .Prompt }}]", [USER, AGAIN], "[U\n\nV]"),
        ("({{ .System }})[{{ .Prompt }}]", [USER, SYSTEM, AGAIN], "()[U](S)[V]"),
        ("[{{ .Prompt }}]{{ .Response }}</s>", [USER, SAID], "[U]"),
        ("[{{ .Prompt }}]{{ .Response }}.", [*CHAT[1:], SYSTEM, USER], "[U]A.[V].[U]"),
        ("[{{ .Prompt }}]{{ .Response }}.", [USER, SAID, SYSTEM], "[U]A.[]"),
        ("[{{ .Prompt -}} \n]", [USER], "[U]"),
        # The whole chat.
        ("x{{ .System }}{{ range .Messages }}[{{ .Content }}]{{ end }}",
         [SYSTEM, RESULT, RESULT, SYSTEM], "xS\n\nS[S][42][42][S]"),
        ("x{{ range $m := .Messages }}{{ $m.Role }}{{ range .ToolCalls }}{{ end }}{{ end }}",
         [USER | {"tool_calls": None}], "xuser"),
        ("x{{ range $i, $m := .Messages }}{{ lt $i 1 }}{{ le $i 1 }}{{ gt $i 1 }}{{ ge $i 1 }} {{ end }}", CHAT[:3],
         "xtruetruefalsefalse falsetruefalsetrue falsefalsetruetrue "),
        ("x{{ with $s := .System }}{{ $s }}{{ end }}{{ range .Messages }}{{ end }}", CHAT, "xS"),
        ("{{ range .Messages }}<{{ .Role }}>{{ .Content }}{{ end }}!", CHAT, "<system>S<user>U<assistant>A<user>V!"),
        ("x {{- range $i, $m := .Messages -}} {{ $i }}{{ $m.Role }} {{- end }}", [USER, SAID], "x0user1assistant"),
        ("x{{ range $i, $_ := .Messages }}{{ eq (len (slice $.Messages $i)) 1 }}{{ end }}", [USER, SAID], "xfalsetrue"),
        ("x{{ range .Messages }}{{ if eq .Role \"user\" \"tool\" }}u{{ else if ne .Role `system` }}a{{ else }}"
         "s{{ end }}{{ end }}", [*CHAT, RESULT], "xsuauu"),
        ("x{{ $n := -1 }}{{ range $i, $m := .Messages }}{{ if eq $m.Role \"user\" }}{{ $n = $i }}{{ end }}"
         "{{ end }}{{ $n }}", CHAT, "x3"),
        ("{{- $s := \"\" }}[{{ range .Messages }}{{ if eq .Role \"system\" }}{{ $s = printf \"%s-%v\" .Content 7 }}"
         "{{ else }}{{ $s }}{{ end }}{{ end }}", [SYSTEM, USER], "[S-7"),
        ("x{{ with .System }}<{{ . }}>{{ else }}none{{ end }}{{ len .Messages }}{{/* no }} word */}}", CHAT, "x<S>4"),
        ("x{{ with .System }}<{{ . }}>{{ else }}none{{ end }}{{ len .Messages }}", [USER], "xnone1"),
        ("x{{ (index .Messages 0).Content | printf \"%s%s\" \"=\" }}{{ range .Tools }}{{ end }}", [USER], "x=U"),
        ("x{{ range .Messages }}{{ if eq .Role \"user\" }}{{ continue }}{{ end }}{{ .Content }}{{ break }}{{ end }}",
         [USER, SAID, AGAIN], "xA"),
        ("'{{ \"a\\n\\\"b\" }}{{ `{{ x }}` }}{{ not .System }}{{ and .Messages true }}", [USER],
         "'a\n\"b{{ x }}truetrue"),
    ],
)  # fmt: skip
def test_a_chat_is_written_as_by_ollama(template: str, chat: list[dict[str, Any]], expected: str) -> None:
    assert shown(template, chat) == expected
    assert shown(template, chat, "<s>") == "<s>" + expected
    assert not shown("<s>" + template, chat, "<s>").startswith("<s><s>")


def test_tools_and_their_calls_are_json() -> None:
    template = (
        'T{{ range .Tools }}{{ . }};{{ .Function.Name }}{{ if eq .Function.Description "" }}?{{ end }}'
        "{{ range $k, $v := .Function.Parameters.Properties }}"
        "({{ $k }}:{{ $v.Type }}){{ end }}{{ end }}{{ json .Tools }}"
        "{{ range .Messages }}{{ range .ToolCalls }}<{{ .ID }}{{ .Function.Name }} {{ .Function.Arguments }}>{{ end }}"
        "{{ if .ToolName }}{{ .ToolName }}={{ end }}{{ .Content }}{{ .Missing }}{{ end }}"
    )
    tool = '{"type":"function","function":{"name":"f","parameters":{"properties":{"x":{"type":"integer"}}}}}'
    text = shown(template, [USER, CALL, RESULT], tools=[TOOL])
    assert text == f"T{tool};f?(x:integer)[{tool}]U" + '<f {"x":1}>f=42'


def test_thinking_is_off_and_on_by_the_option_that_templates_have() -> None:
    template = (
        "x{{ if .IsThinkSet }}{{ if .Think }}on{{ else }}off{{ end }}{{ end }}"
        "{{ range .Messages }}{{ .Thinking }}{{ end }}"
    )
    thought = SAID | {"reasoning_content": "r"}
    assert shown(template, [USER, thought]) == "xr"
    assert shown(template, [USER], enable_thinking=True) == "xon"
    assert shown(template, [USER], enable_thinking=False) == "xoff"


@pytest.mark.parametrize(
    ("template", "what"),
    [
        ("x{{ .Prompt", "an action that does not end"),
        ("x{{" + " " * 60_000, "an action that does not end"),
        ("x{{ if .Prompt }}", "{{ if }} without an end"),
        ("x{{ .Prompt }}{{ end }}", "{{ end }} with no block"),
        ("x{{ template `y` }}{{ .Prompt }}", "{{ template }}"),
        ("x{{ toTypeScriptType .Prompt }}", "toTypeScriptType"),
        ("x{{ range .Messages }}{{ $.Other }}{{ end }}", ".Other"),
        ("x{{ not .Prompt .Prompt }}", "not of 2"),
        ("x{{ .Prompt ) }}", ")"),
        ("x{{ . }}{{ .Prompt }}", "{{ . }} outside a loop"),
        ("x{{ if .Prompt }}{{ else with .System }}{{ end }}", "{{ else with }}"),
        ("x{{ (.Prompt }}", "a bracket that does not close"),
        ("x{{ .Prompt # }}", "{{ .Prompt # }}"),
        ("{{ .Prompt }}", "no marks around what is said"),
        ("hello", "no messages and no prompt"),
        ("x" + "{{ if .Prompt }}" * 5000 + "{{ end }}" * 5000, "too many blocks in blocks"),
        ('x{{ .Prompt }}{{ "\\x41" }}', "\\x"),
        ("x{{ $a, $b, $c := .Messages }}", "an assignment to no variable"),
    ],
)
def test_what_is_not_read_is_named(template: str, what: str) -> None:
    with pytest.raises(Untranslated) as error:
        as_jinja(template)
    assert str(error.value) == what


def test_quotes_and_marks_of_jinja_stay_texts() -> None:
    text = "it's {% raw %} {# x #} \\ \\n ü 漢\n"
    assert shown(text + "{{ .Prompt }}", [USER]) == text + "U"


def of_ollama(root: Path, template: str, **metadata: Any) -> Tokenizer:
    """The tokenizer of a file in Ollama's folder."""
    root.mkdir(exist_ok=True)
    (model := root / "m.gguf").write_bytes(MODEL)
    ollama(root, "tiny:1b", model, template=template)
    blob = root / "blobs" / f"sha256-{sha256(MODEL).hexdigest()}"
    files = tokenizer_files({**bytewise(), **metadata}, blob)
    return Tokenizer(files.backend, files.file, files.special, files.template)


MARKED = "{{ range .Messages }}<|im_start|>{{ .Content }}<|im_end|>{{ end }}<|im_start|>"


def test_a_file_in_ollamas_folder_takes_its_template_where_it_has_none(tmp_path: Path) -> None:
    tokenizer = of_ollama(tmp_path / "one", MARKED)
    ids = [tokenizer.backend.encode(text).ids for text in ("<|im_start|>the<|im_end|><|im_start|>", "<tool>")]
    assert tokenizer.prompt([Message("user", "the")]) == ids[0]
    begun = {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": ids[1][0]}
    assert of_ollama(tmp_path / "two", MARKED, **begun).prompt([Message("user", "the")]) == ids[1] + ids[0]
    own = of_ollama(tmp_path / "three", MARKED, **{"tokenizer.chat_template": "own"})
    assert own.source.text == "own"


@pytest.mark.parametrize("template", ["{{ .Prompt }}", "{{ .Prompt }}" + "x" * LONGEST_TEMPLATE, ""])
def test_what_is_not_understood_is_said_and_the_text_goes_on_as_it_stands(template: str, tmp_path: Path) -> None:
    source = of_ollama(tmp_path, template).source
    assert source.text is None
    assert ("Ollama's chat template of this file is not understood here (" in source.unsupported) == bool(template)


def test_a_template_that_is_no_text_is_said(tmp_path: Path) -> None:
    model = of_ollama(tmp_path, MARKED).source.file.parent / f"sha256-{sha256(MODEL).hexdigest()}"
    (tmp_path / "blobs" / f"sha256-{sha256(MARKED.encode()).hexdigest()}").write_bytes(b"\xff")
    unsupported = tokenizer_files(bytewise(), model).template.unsupported
    assert unsupported.endswith(", its chat template, cannot be read (UnicodeDecodeError)")
