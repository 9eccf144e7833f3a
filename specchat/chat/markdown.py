"""The shown path of a chat as Markdown that reads well, whose marks in comments let its texts be read as they were.

A mark is a line of its own, `<!-- specchat: user 2026-07-14T12:30:00+00:00 -->`. A heading and an empty line follow it,
then the text, an empty line and the next mark. Lines in a text that look like marks get a backslash before them. Code
that a text leaves open ends with a line that is not its own, which the mark `closed` follows.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import Literal

from specchat.chat.files import ChatFileError
from specchat.chat.reasoning import marked
from specchat.chat.record import speculation_label
from specchat.chat.rows import Answered, ChatRow, MessageRow, WholeChat
from specchat.chat.titles import is_greeting, make_title
from specchat.chat.tool_results import ToolResult, argument_lines, outcome
from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply, Turn
from specchat.clean import clean, one_line
from specchat.engine.protocol.options import ToolCall

Kind = Literal["chat", "system", "user", "assistant", "closed", "tool", "figures", "end"]

_MARK = re.compile(r"<!-- specchat: (chat|system|user|assistant|closed|tool|figures|end)(?: (\S+))? -->[ \t\r]*")
_LIKE_A_MARK = re.compile(r"(?m)^(?=\\*<!-- specchat: )")
_ESCAPED = re.compile(r"(?m)^\\(?=\\*<!-- specchat: )")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r"(?:#{1,6} |\*\* ?)(?P<who>[^*#]+?):? ?(?:\*\*:?|#*)")
"""In a line whose spaces are single ones."""
_NAMES: dict[str, Kind] = {
    **dict.fromkeys(("you", "user", "me", "human", "prompt", "question"), "user"),
    **dict.fromkeys(
        ("assistant", "ai", "bot", "model", "chatgpt", "specchat", "answer", "reply", "response"), "assistant"
    ),
    **dict.fromkeys(("system", "system prompt"), "system"),
}


@dataclass(frozen=True)
class _Block:
    kind: Kind
    text: str
    created: float = 0.0
    name: str = ""


def as_markdown(conversation: Conversation, tags: Sequence[str] = ()) -> str:
    """The path that is shown: title, system prompt, prompts with what was attached, and replies with their figures."""
    return "".join(_parts(conversation, tags))


def _parts(chat: Conversation, tags: Sequence[str]) -> Iterator[str]:
    replies = [turn.reply for turn in chat.turns if turn.reply is not None]
    names = list(dict.fromkeys(one_line(reply.name) for reply in replies if reply.name))
    date = datetime.fromtimestamp(chat.created)
    yield f"{_mark('chat', chat.created)}# {one_line(chat.title)}\n\n"
    cells = {"date": f"{date:%Y-%m-%d %H:%M}", "model": _cell(", ".join(names))}
    if tags:
        cells["tags"] = _cell(" ".join(f"#{tag}" for tag in tags))
    yield "".join(f"| {' | '.join(row)} |\n" for row in (cells, ["---"] * len(cells), cells.values())) + "\n"
    if chat.system:
        yield _block("system", "System prompt", chat.system)
    for turn in chat.turns:
        if not turn.results:
            yield _block("user", "You", "\n\n".join(filter(None, [turn.content, *_pictures(turn)])), turn.created)
        if turn.reply is not None:
            yield _block("assistant", one_line(turn.reply.name) or "Assistant", marked(turn.reply), turn.reply.created)
            if words := figures(turn.reply):
                yield f"{_mark('figures')}*{words}*\n\n"
            yield from (_call(call, turn.reply.results.get(call.id)) for call in turn.reply.tool_calls)
    yield _mark("end")


def _pictures(turn: Turn) -> Iterator[str]:
    """A line for each picture, which a text cannot hold."""
    for name, picture in ((one.name, one.picture) for one in turn.attachments):
        if picture is not None:
            yield f"Picture {one_line(name)} ({picture.width} × {picture.height})"


def _mark(kind: Kind, created: float | None = None) -> str:
    date = "" if created is None else " " + datetime.fromtimestamp(created, UTC).isoformat()
    return f"<!-- specchat: {kind}{date} -->\n"


def _block(kind: Kind, heading: str, text: str, created: float | None = None) -> str:
    escaped = _LIKE_A_MARK.sub(r"\\", text)
    closed = f"{fence}\n{_mark('closed')}" if (fence := _open_fence(text)) else ""
    return f"{_mark(kind, created)}## {heading}\n\n{escaped}\n{closed}\n"


def _call(call: ToolCall, result: ToolResult | None) -> str:
    """A call and its result; importing leaves both out."""
    whence = f" of {one_line(result.server)}" if result is not None and result.server else ""
    parts = ["\n".join(argument_lines(call.arguments)), clean(result.content) if result is not None else ""]
    text = "\n\n".join(f"{(fence := _fence(part))}text\n{part}\n{fence}" for part in parts if part)
    return _block("tool", f"Tool {one_line(call.name)}{whence}: {outcome(result)}", text)


def _fence(text: str) -> str:
    """A fence that nothing in `text` closes."""
    return "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])


def _open_fence(text: str) -> str:
    """The fence of code that `text` ends within; empty where it ends outside."""
    if "```" not in text and "~~~" not in text:
        return ""
    from markdown_it import MarkdownIt

    last = MarkdownIt("commonmark").disable("inline").parse(f"{text}\n")[-1]
    if last.type != "fence" or last.level or last.map is None:
        return ""
    begin, end = last.map
    return last.markup if end - begin == 1 + last.content.count("\n") else ""


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|")


def figures(reply: Reply) -> str:
    """`214 tokens · 142 tok/s · 1.9x plain · draft x5 · temperature 0.7 · seed 42`, as far as it is known."""
    stats = reply.end.stats
    if stats is None or not stats.completion_tokens:
        return one_line(reply.outcome)
    parts = [
        f"{stats.completion_tokens} token{'s' * (stats.completion_tokens != 1)}",
        f"{stats.tokens_per_second:.0f} tok/s" if stats.tokens_per_second else "",
        f"{stats.speedup_vs_plain:.1f}x plain" if stats.speedup_vs_plain is not None else "",
        speculation_label(reply.speculation),
        f"temperature {reply.sampling.shown('temperature')}",
        f"seed {reply.seed}",
        one_line(reply.outcome),
    ]
    return " · ".join(filter(None, parts))


def from_markdown(text: str, name: str, now: float) -> WholeChat:
    """A chat without branches, from `as_markdown` or from Markdown with headings such as "## You" and "## Assistant".

    The same text gives the same keys. Dates that the text does not tell are `now`.

    Raises:
        ChatFileError: there is neither; `name` is the file's.
    """
    if text.partition("\n")[0].endswith("\r"):
        text = text.replace("\r\n", "\n")
    marked = any(_MARK.fullmatch(line) for line in text.split("\n"))
    title, blocks = _marked(text) if marked else _headed(text)
    said = _alternating(block for block in blocks if block.kind in ("user", "assistant"))
    if not said:
        raise ChatFileError(
            f"{name} holds no chat: it has neither the marks of an export nor headings such as "
            '"## You" and "## Assistant".'
        )
    system = next((block.text for block in blocks if block.kind == "system"), "")
    began = next((block.created for block in blocks if block.kind == "chat" and block.created), said[0].created or now)
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    messages: list[MessageRow] = []
    for number, block in enumerate(said):
        parent = messages[-1].key if messages else None
        key, created = f"{digest[:20]}{number:04x}", block.created or now
        if block.kind == "user":
            messages.append(MessageRow(key, parent, "user", block.text, created, "sent"))
        else:
            meta = json.dumps(asdict(Answered(block.name)))
            messages.append(MessageRow(key, parent, "assistant", block.text, created, "finished", meta))
    prompts = [block.text for block in said if block.kind == "user"]
    title = title or make_title(next((text for text in prompts if not is_greeting(text)), said[0].text), said[-1].text)
    row = ChatRow(
        digest[:24], "", title, system, created=began, updated=messages[-1].created, view={"leaf": messages[-1].key}
    )
    return WholeChat(row, tuple(messages))


def _marked(text: str) -> tuple[str, list[_Block]]:
    title, blocks = "", list[_Block]()
    for mark, lines in _sections(text):
        kind: Kind = mark[1]  # type: ignore[assignment]
        heading = lines[0] if lines else ""
        body = "\n".join(lines[2:] if heading.startswith("#") and lines[1:2] == [""] else lines)
        body = _ESCAPED.sub("", body.removesuffix("\n"))
        if kind == "closed" and blocks:
            blocks[-1] = replace(blocks[-1], text=blocks[-1].text.rpartition("\n")[0])
        heading = one_line(heading.lstrip("#"), 400)
        if kind == "chat":
            title = heading
        blocks.append(_Block(kind, body, _time(mark[2]), heading[:40] if kind == "assistant" else ""))
    return title, blocks


def _sections(text: str) -> Iterator[tuple[re.Match[str], list[str]]]:
    """Each mark with the lines up to the next one, the empty last line left out."""
    mark: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        found = _MARK.fullmatch(line)
        if found is None:
            lines.append(line)
            continue
        if mark is not None:
            yield mark, lines
        mark, lines = found, []
    if mark is not None:
        yield mark, lines


def _time(text: str | None) -> float:
    try:
        seconds = datetime.fromisoformat(text or "").timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


def _headed(text: str) -> tuple[str, list[_Block]]:
    """By headings or bold lines that say who speaks; those in code are text."""
    title, fence = "", ""
    blocks: list[tuple[Kind, list[str]]] = []
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
        kind = None if fence or mark else _speaker(line)
        if kind is not None:
            blocks.append((kind, []))
        elif blocks:
            blocks[-1][1].append(line)
        elif not title and line.startswith("# "):
            title = one_line(line[2:], 400)
    return title, [_Block(kind, "\n".join(lines).strip("\n")) for kind, lines in blocks]


def _speaker(line: str) -> Kind | None:
    heading = _HEADING.fullmatch(" ".join(line.split())) if line.startswith(("#", "**")) else None
    return _NAMES.get(heading["who"].strip().casefold()) if heading else None


def _alternating(blocks: Iterable[_Block]) -> list[_Block]:
    """Prompts and replies in turn: neighbours of one kind become one, and a reply at the start gets an empty prompt."""
    said: list[_Block] = []
    for kind, run in groupby(blocks, key=attrgetter("kind")):
        first, *others = run
        if not said and kind == "assistant":
            said.append(_Block("user", "", first.created))
        said.append(replace(first, text="\n\n".join([first.text, *(block.text for block in others)])))
    return said
