"""The shown path of a chat as one HTML page: tokens coloured by source, rejected drafts struck out, figures of replies.

The page has no script and refers to nothing outside; its policy forbids both. All messages are escaped.
"""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from datetime import datetime
from html import escape
from itertools import groupby

from specchat.attachments.pictures import AttachedPicture
from specchat.chat.markdown import figures
from specchat.chat.sources import LEGEND, REJECTED, rejected_text, source_of
from specchat.chat.tool_results import ToolResult, argument_lines, outcome, short_arguments
from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply
from specchat.clean import clean, one_line
from specchat.engine.protocol.options import ToolCall

_STYLE = """
:root { color-scheme: light dark; --text: #24292f; --ground: #fbfaf7; --band: #efece4; --quiet: #5d646d;
  --draft: #2d6a32; --lookup: #7b3fa0; --swift: #2456b0; --target: #a8480f; --bonus: #0f6b7c; }
@media (prefers-color-scheme: dark) { :root { --text: #d5dbe3; --ground: #16191e; --band: #22272f; --quiet: #8a929e;
  --draft: #8fc38a; --lookup: #c7a0e0; --swift: #7fa8ec; --target: #e8a87c; --bonus: #6cb6c9; } }
body { max-width: 48rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.55 system-ui, sans-serif;
  color: var(--text); background: var(--ground); }
h1 { font-size: 1.4rem; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; font-family: ui-monospace, monospace; font-size: .92rem; }
.you, .system { background: var(--band); padding: .6rem .9rem; border-radius: .4rem; margin-top: 2rem; }
.note, .figures, h2 { color: var(--quiet); font-size: .85rem; }
h2 { font-weight: 600; margin: 0 0 .2rem; }
.reply { margin: 1rem 0; }
.draft { color: var(--draft); }
.lookup { color: var(--lookup); font-style: italic; }
.swift { color: var(--swift); font-weight: bold; font-style: italic; }
.target { color: var(--target); text-decoration: underline; }
.bonus { color: var(--bonus); font-weight: bold; }
.rejected { color: var(--quiet); text-decoration: line-through; }
.call { margin: .4rem 0; color: var(--quiet); font-size: .92rem; }
.call .text { margin: .3rem 0 .3rem 1rem; }
.result { color: var(--text); border-left: 2px solid var(--quiet); padding-left: .6rem; }
img { display: block; max-width: 100%; margin-top: .6rem; }
.mark { color: var(--quiet); font-style: italic; }
"""


def as_html(chat: Conversation, tags: Sequence[str] = ()) -> Iterator[str]:
    """The page, in pieces."""
    title, date = _text(one_line(chat.title)), datetime.fromtimestamp(chat.created)
    names = dict.fromkeys(one_line(turn.reply.name) for turn in chat.turns if turn.reply and turn.reply.name)
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f'<p class="note">{_text(", ".join([f"{date:%Y-%m-%d %H:%M}", *names, *(f"#{tag}" for tag in tags)]))}</p>\n'
    )
    if any(turn.reply and turn.reply.steps for turn in chat.turns):
        words = " · ".join(f'<span class="{source.name}">{_text(source.words)}</span>' for source in LEGEND)
        yield f'<p class="note">{words}</p>\n'
    if chat.system:
        yield f'<div class="system"><h2>System prompt</h2><div class="text">{_text(chat.system)}</div></div>\n'
    for turn in chat.turns:
        if not turn.results:
            yield f'<div class="you"><h2>You</h2><div class="text">{_text(turn.content)}</div>'
            yield from (_picture(one.name, one.picture) for one in turn.attachments if one.picture is not None)
            yield "</div>\n"
        if turn.reply is not None:
            yield f'<div class="reply"><h2>{_text(one_line(turn.reply.name) or "Assistant")}</h2><div class="text">'
            yield from _tokens(turn.reply) if turn.reply.steps else [_text(turn.reply.text)]
            yield f'</div><p class="figures">{_text(figures(turn.reply))}</p></div>\n'
            yield from (_call(call, turn.reply.results.get(call.id)) for call in turn.reply.tool_calls)
    yield "</body>\n</html>\n"


def _picture(name: str, attached: AttachedPicture) -> str:
    """A picture within the page."""
    if (data := attached.load()) is None:
        return f'<p class="note">{_text(one_line(name))}</p>'
    kind = f"image/{escape(attached.format.lower())}"
    return f'<img alt="{_text(one_line(name))}" src="data:{kind};base64,{b64encode(data).decode()}">'


def _call(call: ToolCall, result: ToolResult | None) -> str:
    """A call of a tool, folded."""
    head = " · ".join(filter(None, [one_line(call.name), short_arguments(call.arguments), outcome(result)]))
    arguments = "\n".join(argument_lines(call.arguments))
    text = f'<div class="text">{_text(arguments)}</div>'
    if result is not None:
        text += f'<div class="text result">{_text(result.content)}</div>'
    return f'<details class="call"><summary>{_text(head)}</summary>{text}</details>\n'


def _tokens(reply: Reply) -> Iterator[str]:
    """Text of each step by source, with the rejected draft before the model's own token."""
    yield _text(reply.beginning)
    marks = list(reply.marks)
    for number, step in enumerate(reply.steps):
        while marks and marks[0].step <= number:
            yield _span("mark", f" ⟨{marks.pop(0).text}⟩ ")
        rejected, _ = rejected_text(step)
        for source, pieces in groupby(step.pieces, lambda piece: piece.source):
            if source == "target":
                yield _span(REJECTED.name, rejected)
                rejected = ""
            yield _span(source_of(source).name, "".join(piece.text for piece in pieces))
        yield _span(REJECTED.name, rejected)


def _span(name: str, text: str) -> str:
    return f'<span class="{name}">{_text(text)}</span>' if text else ""


def _text(text: str) -> str:
    return escape(clean(text))
