"""The settings panel. What is chosen takes effect at once: drafting at the next step, sampling with the next reply."""

from collections.abc import Sequence
from dataclasses import replace

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input, OptionList, TextArea
from textual.widgets.option_list import Option

from specchat.clean import clean, one_line
from specchat.config.presets import OWN, apply, preset_name
from specchat.config.themes import Theme
from specchat.engine.protocol.options import ACCEPTANCES, CONTEXT_POLICIES
from specchat.engine.protocol.pair_info import TemplateChoices
from specchat.engine.strategies import STRATEGIES
from specchat.service.settings import ChatSettings
from specchat.tui.screens.dialog import Dialog
from specchat.tui.session import AppSession
from specchat.tui.settings import FIELDS, Field, InvalidValue
from specchat.tui.text.strategies import StrategyRow, rows
from specchat.tui.widgets.choice import Choice
from specchat.tui.widgets.field import FieldInput, FieldNote, SystemInput
from specchat.tui.widgets.options import Options
from specchat.tui.widgets.plain import Plain

YES_NO = ("yes", "no")

AS_SET = "as set"
"""Leaves the argument to the pair and its template."""
_LABELS = {
    **dict.fromkeys(("enable_thinking", "thinking"), "thinking"),
    **dict.fromkeys(("reasoning_effort", "reasoning_strength"), "effort"),
}


def _word(value: str | bool) -> str:
    """The value of a template's argument as it is shown."""
    return value if isinstance(value, str) else ("off", "on")[value]


class Strategies(Options):
    """The list stands below the fields, and scrolls the dialog while it has the focus alone."""

    def on_focus(self) -> None:
        self.call_after_refresh(self.uncover)

    def uncover(self) -> None:
        if self.has_focus:
            super().uncover()


class SettingsScreen(Dialog[str]):
    """Its result is a sentence where something typed could not be kept, else empty."""

    CSS_PATH = "settings.tcss"
    DIALOG_TITLE = "settings"
    DIALOG_HINT = "tab moves · up and down change numbers · esc keeps and closes"

    def __init__(self, session: AppSession, themes: Sequence[Theme]) -> None:
        super().__init__()
        self._session = session
        self._themes = themes
        info = session.loaded.info
        self._server = info.server.name if info else ""
        """The server that runs the pair, and drafts as it was started."""
        self._rows = rows(self._refused(), self._server)
        self._speeds = session.ledger.speeds(session.loaded.name)
        self._width = 72
        """Cells of a strategy's row: the most there are, until it is known."""

    # Content

    def compose_content(self) -> ComposeResult:
        settings = self._session.settings
        if presets := self._session.launch.config.presets:
            names = [*(preset.name for preset in presets), OWN]
            yield self._row("preset", Choice(names, preset_name(settings.sampling, presets), id="preset"))
        for field in FIELDS:
            if field.key == "draft_length":
                yield from self._drafting()
                if self._server:
                    continue
            if field.key == "context":
                yield self._row(field.label, Choice(CONTEXT_POLICIES, settings.limits.context, id=field.key))
            else:
                yield self._row(field.label, FieldInput(field, field.show(settings)), field)
            if field.key == "temperature":
                yield self._row("system prompt", SystemInput(self._session.conversation.system))
        if not self._server:
            yield self._row("acceptance", Choice(ACCEPTANCES, settings.acceptance, id="acceptance"))
            earlier = YES_NO[not self._session.saved.wanted]
            yield self._row("draft from earlier chats", Choice(YES_NO, earlier, id="saved"))
        for name, values in self._template_choices():
            yield self._row(_LABELS[name], Choice([AS_SET, *map(_word, values)], self._chosen_word(name), id=name))
        yield self._row("theme", Choice(self._own_themes(), self.app.theme, id="theme"))

    def _drafting(self) -> ComposeResult:
        """The strategies, and the whole summary of the one that is looked at."""
        yield Plain("Who drafts?", classes="heading")
        options = [Option(self._shown(row), id=row.id, disabled=bool(row.reason)) for row in self._rows]
        yield Strategies(*options, id="strategy", markup=False)
        yield Plain(id="strategy-note")

    def _row(self, label: str, control: Input | Choice | TextArea, field: Field | None = None) -> Horizontal:
        note = [FieldNote(field.note(self._session.settings), id=f"{field.key}-note")] if field else []
        return Horizontal(Plain(label, classes="name"), control, *note, classes="row")

    def _template_choices(self) -> TemplateChoices:
        """Arguments of the loaded pair's chat template, and their values; the first of those with one label.

        Some templates take the same switch by an older name too.
        """
        info = self._session.loaded.info
        found = info.template.choices if info is not None else ()
        first = {_LABELS[name]: name for name, _ in reversed(found)}
        return tuple((name, values) for name, values in found if first[_LABELS[name]] == name)

    def _chosen_word(self, name: str) -> str:
        chosen = dict(self._session.loaded.arguments(self._session.settings.template))
        return _word(chosen[name]) if name in chosen else AS_SET

    def _own_themes(self) -> list[str]:
        own = [theme.name for theme in self._themes]
        return own if self.app.theme in own else [*own, self.app.theme]

    def _refused(self) -> dict[str, str]:
        """Why strategies cannot be used, by name."""
        statuses = (self._session.loaded.strategy_status(name) for name in STRATEGIES)
        return {status.name: one_line(status.reason) for status in statuses if status and not status.available}

    def _shown(self, row: StrategyRow) -> Content:
        return row.shown(self._session.settings.strategy, self._speeds, self._width)

    def on_resize(self) -> None:
        self.call_after_refresh(self._fit_rows)

    def _fit_rows(self) -> None:
        """Draw the strategies anew where they have another width."""
        for options in self.query("#strategy").results(OptionList):
            width = options.scrollable_content_region.width
            if width != self._width:
                self._width = width
                self._show_rows(options)

    def _show_rows(self, options: OptionList) -> None:
        for row in self._rows:
            options.replace_option_prompt(row.id, self._shown(row))

    @on(OptionList.OptionHighlighted, "#strategy")
    def _show_note(self) -> None:
        at = self.query_one("#strategy", OptionList).highlighted or 0
        self.query_one("#strategy-note", Plain).show(self._rows[at].summary)

    def on_mount(self) -> None:
        options = self.query_one("#strategy", OptionList)
        chosen = STRATEGIES[self._session.settings.strategy]
        options.highlighted = next((index for index, row in enumerate(self._rows) if chosen in row.strategies), 0)
        self.query_one("#temperature").focus()
        self._show_note()

    # Changes

    def _apply(self, settings: ChatSettings) -> None:
        if settings != self._session.settings:
            self._session.change(settings)
            for control in self.query(FieldInput):
                self._store(control, at_once=False)  # what it is for may depend on others

    @on(OptionList.OptionSelected, "#strategy")
    def _strategy_chosen(self, event: OptionList.OptionSelected) -> None:
        self._session.choose_strategy(event.option.id or "plain")
        self._show_rows(event.option_list)
        for length in self.query("#draft_length").results(FieldInput):
            length.value = length.field.show(self._session.settings)

    @on(Choice.Changed, "#acceptance")
    def _acceptance_chosen(self, event: Choice.Changed) -> None:
        acceptance = next(name for name in ACCEPTANCES if name == event.value)
        self._apply(replace(self._session.settings, acceptance=acceptance))

    @on(Choice.Changed, "#context")
    def _context_chosen(self, event: Choice.Changed) -> None:
        field = next(field for field in FIELDS if field.key == "context")
        self._apply(field.store(self._session.settings, event.value))

    @on(Choice.Changed, "#preset")
    def _preset_chosen(self, event: Choice.Changed) -> None:
        settings = self._session.settings
        for preset in self._session.launch.config.presets:
            if preset.name == event.value and apply(preset, settings.sampling) != settings.sampling:
                self._apply(replace(settings, sampling=apply(preset, settings.sampling)))
                for control in self.query(FieldInput):
                    control.value = control.field.show(self._session.settings)
        self._show_preset()

    def _show_preset(self) -> None:
        """Say which preset the sampling is now."""
        for choice in self.query("#preset").results(Choice):
            choice.value = preset_name(self._session.settings.sampling, self._session.launch.config.presets)

    @on(Choice.Changed)
    def _template_chosen(self, event: Choice.Changed) -> None:
        name = event.choice.id or ""
        values = dict(self._template_choices()).get(name)
        if values is not None:
            others = tuple(one for one in self._session.settings.template if one[0] != name)
            chosen = tuple((name, value) for value in values if _word(value) == event.value)
            self._apply(replace(self._session.settings, template=others + chosen))

    @on(Choice.Changed, "#theme")
    def _theme_chosen(self, event: Choice.Changed) -> None:
        self.app.theme = event.value
        self._keep("theme", event.value)

    @on(Choice.Changed, "#saved")
    def _saved_chosen(self, event: Choice.Changed) -> None:
        wanted = event.value == YES_NO[0]
        if wanted != self._session.saved.wanted:
            self._session.saved.want(wanted)
            self._keep("copy_saved_chats", wanted)

    def _keep(self, key: str, value: str | bool) -> None:
        """Save a choice for the next start."""
        if (remember := self._session.launch.config.remember) is not None:
            try:
                remember(key, value)
            except Exception as error:
                self.notify(clean(str(error)), severity="warning", markup=False)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        """Say at once what is wrong; what is typed takes effect with enter or leaving the field."""
        if isinstance(event.input, FieldInput):
            self._store(event.input, at_once=False)

    @on(Input.Submitted)
    @on(Input.Blurred)
    def _left(self, event: Input.Submitted | Input.Blurred) -> None:
        if isinstance(event.input, FieldInput):
            self._store(event.input, at_once=True)

    def _store(self, control: FieldInput, *, at_once: bool) -> str:
        """Take a field's text in where it is valid; gives what it needs where it is not."""
        field = control.field
        note = self.query_one(f"#{field.key}-note", FieldNote)
        try:
            settings = field.store(self._session.settings, control.value.strip())
        except InvalidValue as error:
            note.say(str(error), bad=True)
            return str(error)
        note.say(field.note(settings), bad=False)
        if at_once:
            self._apply(settings)
            self._show_preset()
        return ""

    def action_close(self) -> None:
        """Close; what was typed counts where it is valid, and the rest is named."""
        system = self.query_one(SystemInput).text.strip()
        if system != self._session.conversation.system:
            self._session.chat.set_system(system)
        refused = []
        for control in self.query(FieldInput):
            if wrong := self._store(control, at_once=True):
                kept = control.field.show(self._session.settings) or "as it was"
                typed = one_line(control.value, 40) or "nothing"
                refused.append(f"{control.field.label} stays {kept}: {typed} is not valid, it {wrong}")
        self.dismiss("; ".join(refused))
