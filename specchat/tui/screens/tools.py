"""The servers of tools: whether this chat uses them, what they are doing, and what they offer."""

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from specchat.clean import one_line
from specchat.mcp_tools.served import ServedTool
from specchat.mcp_tools.servers import ToolServerStatus
from specchat.tui.screens.dialog import Dialog
from specchat.tui.session import AppSession
from specchat.tui.text.lines import hang, named, styled
from specchat.tui.widgets.options import Options
from specchat.tui.widgets.plain import FactRows

_EVERY_S = 0.25
_STATE = 20
_NAMES = 10
_ABOUT = (
    "Turning tools on starts the servers below: programs that run on this machine as you, or addresses on the network. "
    "The model may then call their tools. Every call is shown and asked for first."
)
_NO_SERVERS = "There are no servers yet. Name some in {file}, in the form that other programs use, such as:"
_EXAMPLE = (
    '{"mcpServers": {"files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "."]}}}'
)


class ToolsScreen(Dialog[None]):
    """Turns tools on and off in the open chat, all or by server; `session` keeps that."""

    CSS_PATH = "tools.tcss"
    DIALOG_TITLE = "tools in this chat"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "restart", "Restart", show=False)]

    def __init__(self, session: AppSession, problem: str = "") -> None:
        """`problem` is why mcp.json could not be read."""
        super().__init__()
        self._session = session
        self._problem = problem
        self._shown: tuple[object, ...] = ()

    def compose_content(self) -> ComposeResult:
        yield Options(markup=False)
        with VerticalScroll(id="about"):
            yield FactRows()

    def on_mount(self) -> None:
        self.set_interval(_EVERY_S, self._look)
        self.query_one(OptionList).focus()
        self.call_after_refresh(self._look)

    def on_resize(self) -> None:
        super().on_resize()
        self._shown = ()
        self.call_after_refresh(self._look)

    # Drawing

    @property
    def _statuses(self) -> list[ToolServerStatus]:
        return list(self._session.tools.servers.statuses.values())

    @property
    def _marked(self) -> ToolServerStatus | None:
        """The marked server; None in the first row."""
        at, statuses = self.query_one(OptionList).highlighted or 0, self._statuses
        return statuses[at - 1] if 0 < at <= len(statuses) else None

    def _look(self) -> None:
        """Draw what changed."""
        if not self.query(Options):  # not there yet, or closed
            return
        shown = (self._session.tools.of(self._session.conversation.key), *self._statuses)
        if shown != self._shown:
            self._shown = shown
            options = self.query_one(OptionList)
            marked = options.highlighted or 0
            width = max(options.scrollable_content_region.width, 20)
            options.set_options([Option(row) for row in self._rows(width)])
            options.highlighted = marked
            self._describe()

    def _rows(self, width: int) -> Iterator[Content]:
        choices = self._session.tools.of(self._session.conversation.key)
        yield Content.styled(f"tools are {'on' if choices.on else 'off'}", "bold")
        room = max(width - _STATE, 8)
        for status in self._statuses:
            used = status.entry.name not in choices.without and status.state != "unusable"
            name = one_line(status.entry.name, room - 5)
            row = Content.styled(f"{'[x]' if used else '[ ]'} {name}".ljust(room), "" if choices.on else "$quiet")
            yield row + Content.styled(_state(status)[: _STATE - 1], "$quiet")

    @on(OptionList.OptionHighlighted)
    def _describe(self) -> None:
        self.query_one(FactRows).show_rows(partial(self._lines, self._marked))
        self.query_one("#about").scroll_home(animate=False)
        self.show_hint(self._keys())

    def _keys(self) -> str:
        words = ["enter turns it on or off", "esc closes"]
        if self._marked is not None and self._marked.state != "unusable":
            words.insert(1, "r starts it again")
        return " · ".join(words)

    def _lines(self, status: ToolServerStatus | None, width: int) -> Iterator[Content]:
        if status is None:
            yield from (row.content for row in hang(styled(self._problem, ".bad"), width) if self._problem)
            yield from (row.content for row in hang(styled(_ABOUT, ".quiet"), width))
            if not self._statuses and not self._problem:
                words = _NO_SERVERS.format(file=self._session.launch.config.tools_file or "mcp.json")
                yield from (row.content for row in hang(styled(words), width))
                yield from (row.content for row in hang(styled(_EXAMPLE, ".quiet"), width))
            return
        kind = "address" if status.entry.url else "command"
        for name, text, style in (
            (kind, status.entry.place, ""),
            ("problem", status.problem, ".bad"),
            *(("", words, ".bad") for words in status.left_out),
            *((one_line(tool.name, 40), self._about(tool), "") for tool in status.tools),
        ):
            if text or name not in ("problem", ""):
                yield from named(name, text, width, _NAMES, style=style)

    def _about(self, tool: ServedTool) -> str:
        session = self._session
        always = session.tools.permitted(session.conversation.key, tool)
        return f"(called without asking) {tool.description}" if always else tool.description

    # Changes

    @on(OptionList.OptionSelected)
    def _toggled(self) -> None:
        session, marked = self._session, self._marked
        choices = session.tools.of(session.conversation.key)
        if marked is None:
            session.use_tools(not choices.on)
        elif marked.state != "unusable":
            name = marked.entry.name
            session.use_tools(name in choices.without, name)
        self._look()

    def action_restart(self) -> None:
        """Start the marked server again."""
        if (marked := self._marked) is not None:
            self._session.tools.servers.restart(marked.entry.name)
            self._look()


def _state(status: ToolServerStatus) -> str:
    if status.state == "ready":
        return f"{len(status.tools)} tool{'s' * (len(status.tools) != 1)}"
    if status.state == "ended" and status.problem:
        return "does not run"
    return {"off": "not started", "starting": "starting", "ended": "stopped", "unusable": "not usable"}[status.state]
