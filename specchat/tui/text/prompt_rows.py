"""A prompt as rows on a tinted band: its text, and a chip for each file that went along, which unfolds."""

from collections.abc import Container
from dataclasses import replace

from textual.content import Content
from textual.style import Style

from specchat import figures
from specchat.attachments.files import Attachment
from specchat.attachments.pictures import AttachedPicture
from specchat.chat.turn import Turn
from specchat.clean import clean, one_line
from specchat.tui.text.lines import Section, TextLine, hang, styled
from specchat.tui.text.pictures import Drawing, Graphics, drawing

_BAR = styled("▌ ", ".band-bar")

_SHOWN = 4000
"""Characters of a prompt, and of an unfolded file, that the transcript shows."""


def shown_prompt(prompt: str) -> str:
    """The part of a prompt that the transcript shows."""
    return clean(prompt[: _SHOWN * 2])[:_SHOWN].rstrip("\n")


def prompt_sections(turn: Turn, unfolded: Container[str], graphics: Graphics | None = None) -> list[Section]:
    """The text first; `unfolded` holds the keys of the files whose text is shown, and `graphics` draw pictures."""
    sections = _text(turn.prompt, turn.key)
    for number, attachment in enumerate(turn.attachments):
        key = f"{turn.key} {number}"
        sections.append(_chip(attachment, key, unfolded=key in unfolded))
        if attachment.picture is not None:
            sections.append(_drawn(attachment.picture, f"{key} picture", graphics, unfolded=key in unfolded))
        elif key in unfolded:
            sections += _text(attachment.text, f"{key} text", ".thought")
    return sections


def _text(text: str, part: str, style: str = "") -> list[Section]:
    content = styled(shown_prompt(text), style)
    sections = [Section(lambda width: _band(content, width), part=part)]
    if len(text) > _SHOWN:
        more = styled(f"… and {len(text) - _SHOWN:,} more characters", ".hint")
        sections.append(Section(lambda width: [replace(line, copied=False) for line in _band(more, width)]))
    return sections


def _chip(attachment: Attachment, key: str, *, unfolded: bool) -> Section:
    """One row: name, lines and size, or pixels."""
    if (picture := attachment.picture) is not None:
        amount, fold, unfold = f"{picture.format} {picture.width:,} × {picture.height:,}", "makes smaller", "enlarges"
    else:
        lines = len(attachment.text.splitlines())
        amount = f"{figures.count(lines)} line{'s' * (lines != 1)}, {figures.text_size([attachment.text])}"
        if attachment.whole:
            amount += f" of {figures.count(attachment.whole)} characters"
        fold, unfold = "folds", "unfolds"
    name = styled(f"{'▾' if unfolded else '▸'} {one_line(attachment.name)}", ".md-strong")
    tail = f" · {amount} · enter/click {fold if unfolded else unfold}"
    content = (name + styled(tail, ".hint")).stylize(Style.from_meta({"fold": key}))

    def layout(width: int) -> list[TextLine]:
        room = max(width - len(_BAR) - 1, 4)
        return [replace(line, copied=False) for line in _band(content.truncate(room, ellipsis=True), width)]

    return Section(layout, part=key)


def _drawn(picture: AttachedPicture, part: str, graphics: Graphics | None, *, unfolded: bool) -> Section:
    held = Drawing()  # as long as the section shows its rows

    def layout(width: int) -> list[TextLine]:
        nonlocal held
        held = drawing(picture, width - len(_BAR) - 1, unfolded=unfolded, graphics=graphics)
        return [replace(line, copied=False) for row in held.rows for line in _band(row, width)]

    return Section(layout, part=part)


def _band(content: Content, width: int) -> list[TextLine]:
    """Rows on a tinted band, with a bar before them that is not copied."""
    rows = hang(content, width - 1, _BAR, _BAR)
    return [replace(row, start=len(_BAR), band=True) for row in rows]
