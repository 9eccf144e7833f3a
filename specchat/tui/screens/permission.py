"""Asks for a call that a model makes: which tool, of which server, with what; nothing is called without a yes."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from specchat.chat.tool_results import argument_lines
from specchat.clean import one_line
from specchat.service.calls import Decision, PendingCall
from specchat.tui.keys import Keys
from specchat.tui.screens.dialog import Dialog
from specchat.tui.text.lines import hang, styled
from specchat.tui.widgets.options import Options
from specchat.tui.widgets.plain import FactRows, Plain

_AROUND = 10
"""Rows of the window that are not for the arguments."""
_LEAST = 2
_LONGEST = 20_000
"""Characters of the arguments that are shown."""
ACTION_OF: dict[str, Decision] = {"call-once": "once", "call-always": "always"}


class PermissionScreen(Dialog[Decision]):
    """Gives what the user says; closed without a word it is a no. No choice is marked: a stray enter does nothing."""

    CSS_PATH = "permission.tcss"
    DIALOG_TITLE = "call a tool?"
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, call: PendingCall, keys: Keys, others: int) -> None:
        """`others` calls are asked for after this one."""
        super().__init__()
        self._call = call
        self._others = others
        self._keys = keys
        for action, decision in ACTION_OF.items():
            for key in keys.of(action):
                self._bindings.bind(key, f"decide('{decision}')", show=False, priority=True)

    def compose_content(self) -> ComposeResult:
        tool = self._call.tool
        more = f" · {self._others} more after it" if self._others else ""
        yield Plain(
            Content.styled(one_line(tool.name, 100), "bold") + styled(f"  of {one_line(tool.server, 60)}{more}")
        )
        with VerticalScroll(id="arguments"):
            yield FactRows()
        once, always = map(self._keys.first, ACTION_OF)
        answers = (
            ("call-not", "no, and the model is told so", "esc"),
            ("call-once", "once", once),
            ("call-always", "always for this tool in this chat", always),
        )
        longest = max(len(words) for _, words, _ in answers)
        yield Options(*(Option(f"{words:<{longest}}  {key}", id=id) for id, words, key in answers), markup=False)

    def on_mount(self) -> None:
        options = self.query_one(OptionList)
        options.highlighted = None
        options.focus()
        self.show_hint("up and down choose · tab reads on · esc says no")

    def on_resize(self) -> None:
        super().on_resize()
        self.query_one("#arguments").styles.max_height = max(self.size.height - _AROUND, _LEAST)
        self.call_after_refresh(self.query_one(FactRows).show_rows, self._rows)

    def _rows(self, width: int) -> list[Content]:
        text = "\n".join(argument_lines(self._call.call.arguments)) or "without arguments"
        rows = [row.content for row in hang(styled(text[:_LONGEST]), width)]
        if len(text) > _LONGEST:
            rows.append(styled(f"… and {len(text) - _LONGEST:,} more characters that are not shown", ".quiet"))
        return rows

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(ACTION_OF.get(event.option.id or "", "no"))

    def action_decide(self, decision: Decision) -> None:
        self.dismiss(decision)
