"""A reply's calls of tools as rows: a line a call with its outcome; arguments and result below when unfolded."""

from collections.abc import Container, Iterator
from dataclasses import replace

from textual.style import Style

from specchat.chat.tool_results import ToolResult, argument_lines, outcome, short_arguments
from specchat.chat.turn import Reply
from specchat.clean import clean, one_line
from specchat.engine.protocol.options import ToolCall
from specchat.tui.text.lines import BLANK, Section, TextLine, hang, styled

_BAR = styled("▎ ", ".md-quote-bar")
LONGEST = 4_000
"""Characters of a result that the transcript shows."""


class CallsView:
    """The calls of a reply. Sections that stay the same are the same objects."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._sections: list[Section] = []

    def sections(self, reply: Reply, unfolded: Container[str]) -> list[Section]:
        """The calls as far as they are written, with the results that are shown after them."""
        results = reply.results
        folds = _folds(reply)
        key = (reply.tool_calls, tuple(results.items()), tuple(fold in unfolded for fold in folds), bool(reply.text))
        if key != self._key:
            self._key = key
            calls = zip(reply.tool_calls, folds, strict=True)
            self._sections = [
                section
                for number, (call, fold) in enumerate(calls)
                for section in _call(
                    call, results.get(call.id), fold, fold in unfolded, not number and reply.text != ""
                )
            ]
        return self._sections


def called_by(reply: Reply, fold: str) -> str:
    """All of the arguments and the result of the call that `fold` folds; empty where it folds none."""
    call = dict(zip(_folds(reply), reply.tool_calls, strict=True)).get(fold)
    if call is None:
        return ""
    result = reply.results.get(call.id)
    return "\n".join([call.name, *argument_lines(call.arguments), "", clean(result.content) if result else ""])


def _folds(reply: Reply) -> list[str]:
    """A key for each call."""
    return [f"{reply.key} call {number}" for number in range(len(reply.tool_calls))]


def _call(call: ToolCall, result: ToolResult | None, fold: str, open: bool, spaced: bool) -> Iterator[Section]:
    name = styled(f"{'▾' if open else '▸'} {one_line(call.name, 60)}", ".md-strong")
    arguments = short_arguments(call.arguments)
    style = ".failed" if result is not None and result.failed else ".hint"
    action = f" · enter/click {'folds' if open else 'unfolds'}"

    def head(width: int) -> list[TextLine]:
        end = styled(f" · {outcome(result)}", style)
        room = width - name.cell_length - end.cell_length
        middle = styled(f"  {arguments}" if arguments else "", ".thought").truncate(max(room, 0), ellipsis=True)
        row = name + middle + end + (styled(action, ".hint") if room - middle.cell_length >= len(action) else "")
        return [TextLine(row.truncate(width, ellipsis=True).stylize(Style.from_meta({"fold": fold})), copied=False)]

    if spaced:
        yield Section(lambda _: [BLANK])
    yield Section(head, part=fold)
    if open:
        yield from _body(call, result, fold)


def _body(call: ToolCall, result: ToolResult | None, fold: str) -> Iterator[Section]:
    yield _text("\n".join(argument_lines(call.arguments)) or "no arguments", f"{fold} arguments", ".thought")
    if result is not None:
        whence = f"from {one_line(result.server, 60)}:" if result.server else "result:"
        yield Section(lambda width: [replace(row, copied=False) for row in hang(styled(whence, ".hint"), width)])
        yield _text(result.content[:LONGEST], f"{fold} result", "")
        if (more := len(result.content) - LONGEST) > 0:
            words = styled(f"… and {more:,} more characters", ".hint")
            yield Section(lambda width: [replace(row, copied=False) for row in hang(words, width, _BAR, _BAR)])


def _text(text: str, part: str, style: str) -> Section:
    content = styled(text, style)

    def layout(width: int) -> list[TextLine]:
        return [replace(row, start=len(_BAR)) for row in hang(content, width, _BAR, _BAR)]

    return Section(layout, part=part)
