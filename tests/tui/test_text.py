"""Markdown, code, tables and the token view as rows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.content import Content

from specchat.chat.turn import Reply, Turn
from specchat.clean import is_web_link
from specchat.engine.protocol.events import Changed, Drafted, Finished, Piece, Started, Step
from specchat.engine.protocol.options import Sampling, Speculation
from specchat.engine.protocol.stats import Stats
from specchat.tui.text import code, turn
from specchat.tui.text.blocks import split
from specchat.tui.text.code import OpenCode, box, code_lines, highlight, language_of
from specchat.tui.text.lines import Section, TextLine, hang, joined, styled
from specchat.tui.text.markdown import block_lines, parse
from specchat.tui.text.table import column_widths
from specchat.tui.text.turn import TurnView
from specchat.tui.text.window import SectionWindow


def rows(source: str, width: int = 60) -> list[str]:
    found: list[TextLine] = []
    for block in split(source):
        found += code_lines(block.body, block.info, width) if block.code else block_lines(parse(block.source), width)
    return [line.content.plain.rstrip() for line in found]


JOINED = ("a   é  \u200d\u200d日.b日.é日.\u200da日 日日.\u200db ", "\u200d\u200d日\u200d\u200d-é.日b-日.bb")


@pytest.mark.parametrize(("text", "width"), zip(JOINED, (12, 13), strict=True))
def test_joiners_beside_wide_characters_wrap(text: str, width: int) -> None:
    """Rich 15 finds no rows for them."""
    with pytest.raises(IndexError):
        Content(text).wrap(width)
    wrapped = hang(styled(text), width)
    assert all(len(line.text) <= width // 2 for line in wrapped)
    assert "".join(line.text for line in wrapped) == text


def test_what_fits_is_not_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long table would be at every draw."""
    monkeypatch.delattr(Content, "wrap")
    text = "| a fox | a lamp |\n" * 3
    assert joined(hang(styled(text), 18)) == text.rstrip()
    with pytest.raises(AttributeError):
        hang(styled(text), 17)


def styles_at(line: TextLine, text: str) -> set[str]:
    at = line.content.plain.index(text)
    return {str(span.style) for span in line.content.spans if span.start <= at < span.end}


def step(*pieces: tuple[str, str], rejected: str = "", accepted: int = 0, drafted: int = 5) -> Step:
    made = tuple(Piece(text, source, position=position) for position, (text, source) in enumerate(pieces))
    refused = (Drafted(rejected, 0.1),) if rejected else ()
    drafts = (*(Drafted(piece.text, 0.9) for piece in made[:accepted]), *refused)
    return Step(1, made, drafted, min(accepted + 1, drafted), accepted, len(made), 1, 8, 1, 10, "draft", drafts)


def a_reply(*steps: Step) -> Reply:
    reply = Reply(1, "demo", Sampling(seed=42), Speculation.of("draft"))
    for each in steps:
        reply.step(each)
    return reply


def answered(prompt: str, reply: Reply) -> Turn:
    turn = Turn(prompt)
    turn.replies.add(reply)
    return turn


def test_inline_styles() -> None:
    (line,) = block_lines(parse("a **b** *c* `d` ~~e~~"), 40)
    assert line.content.plain == "a b c d e"
    assert [styles_at(line, c) for c in "abcde"] == [set(), {".md-strong"}, {".md-em"}, {".md-code"}, {".md-strike"}]


def test_lists_hang_and_number() -> None:
    assert rows("3. a long item that wraps\n   - nested\n4. next", 16) == [
        "3. a long item",
        "   that wraps",
        "   ◦ nested",
        "4. next",
    ]


def test_links_show_where_they_lead_and_only_web_links_can_be_clicked() -> None:
    (line,) = block_lines(parse("[a](https://x.y) [b](ftp://h/f) <https://z.z>"), 200)
    assert line.content.plain == "a (https://x.y) b (ftp://h/f) https://z.z"
    assert any("href" in style for style in styles_at(line, "a"))
    assert not any("href" in style for style in styles_at(line, "b"))
    assert [is_web_link(url) for url in ("HTTP://a", "javascript:1", "file:///x", "")] == [True, False, False, False]


def test_markup_and_html_are_only_text() -> None:
    source = "see [/usr/bin] and [/] [@click=app.quit]x[/] <b>bold</b>"
    assert rows(source, 200) == [source]


def test_code_is_boxed_and_highlighted() -> None:
    lines = code_lines("def f():\n    return 1", "python", 30)
    assert [len(line.content.plain) for line in lines] == [30] * 4
    assert lines[0].content.plain.startswith("╭─ python ─")
    assert ".code-keyword" in styles_at(lines[1], "def")
    assert [line.text for line in lines if line.copied] == ["def f():", "    return 1"]


def test_the_source_of_a_diagram_is_named() -> None:
    assert code_lines("graph TD", "mermaid", 60)[0].content.plain.startswith("╭─ mermaid, source of a diagram ─")
    assert code_lines("graph TD", "python", 60)[0].content.plain.startswith("╭─ python ─")


def test_tasks_of_a_list_have_boxes() -> None:
    source = "- [x] done\n- [ ] to *do*\n  - [X] below\n- [y] none\n- `[x] code`\n\n[x] no list"
    assert rows(source, 40) == ["☑ done", "☐ to do", "  ☑ below", "• [y] none", "• [x] code", "[x] no list"]


def test_lines_of_a_diff_have_colours_of_their_own() -> None:
    lines = code_lines("-before\n+after\n", "diff", 30)
    assert ".code-removed" in styles_at(lines[1], "before")
    assert ".code-string" in styles_at(lines[2], "after")
    assert ".code-removed" in styles_at(code_lines(" same\n-last", "diff", 30)[2], "last")


def test_long_code_lines_fold_and_copy_whole() -> None:
    lines = [line for line in box(Content("x" * 100), "", 24) if line.copied]
    assert len(lines) == 6
    assert "".join(line.text for line in lines) == "x" * 100
    assert all(line.glue == "" for line in lines)


@pytest.mark.parametrize("language", ["nonsense", "", "python", "PYTHON"])
def test_highlighting_never_changes_the_code(language: str) -> None:
    code = "\n\nif x:\n\ty = '[/]'\n\n"
    assert highlight(code, language_of(language)).plain == code


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["def f():\n", "    x = 1\n", "'''", "\n", "# c", "y"]), max_size=40))
def test_an_open_fence_shows_all_of_its_code(pieces: list[str]) -> None:
    code, body = OpenCode(), ""
    for piece in pieces:
        body += piece
        shown = [line.text for line in code.lines(body, "python", 30) if line.copied]
        assert shown == [line.text for line in box(Content(body), "python", 30) if line.copied]


def test_tables_fit() -> None:
    source = "| name | words |\n|:--|--:|\n| a | " + "word " * 20 + "|\n| b |\n"
    for width in (20, 40, 200):
        assert all(len(row) <= width for row in rows(source, width))
    assert rows("| a | b |\n|--|--:|\n| 1 | 22 |") == ["a │  b", "──┼───", "1 │ 22"]


@given(st.lists(st.integers(0, 60), min_size=1, max_size=6), st.integers(1, 80))
def test_columns_shrink_to_the_room(sizes: list[int], room: int) -> None:
    widths = column_widths([[Content("x" * size) for size in sizes]], room)
    assert sum(widths) <= max(room, 3 * len(sizes), 1)
    assert all(1 <= width <= max(size, 1) for width, size in zip(widths, sizes, strict=True))


@settings(max_examples=60)
@given(st.text("-*`#>|[]() \n1.ax_~!", max_size=120), st.integers(8, 90))
def test_no_row_is_wider_than_asked(source: str, width: int) -> None:
    for block in split(source):
        if not block.code and "|" not in block.source:
            for line in block_lines(parse(block.source), width):
                if line.content.cell_length > width:
                    assert len(line.content.plain.split()) <= 2 + source.count(">") + source.count("-")


ODD = [
    "漢字", "👨‍👩‍👧", "e\u0301", "שלום", "ﷺ", "🇩🇪", "क्षि", "\t", "\u200d", "\ufe0f", "🏳️‍🌈", "｡", "\u00ad", "\u200b",
    "a", " ", "\n", "\n\n", "```\n", "**", "`", "# ", "$", "$$\n", "<think>", "</think>\n",
]  # fmt: skip


@settings(max_examples=150)
@given(st.lists(st.sampled_from(ODD), max_size=40).map("".join), st.integers(8, 50), st.booleans())
def test_wide_combining_and_rtl_text_stays_in_its_rows(text: str, width: int, token_view: bool) -> None:
    reply = a_reply(step((text, "draft")))
    reply.finished(Finished(1, "stop", text, (), Stats()))
    view = TurnView(answered(text, reply), first=True, token_view=token_view, unfolded={reply.key})
    for section in view.sections():
        assert all(line.content.cell_length <= width for line in section.lines(width))


def test_very_deep_nesting_stays_readable() -> None:
    assert any("x" in row for row in rows(">" * 90 + " x", 80))
    assert rows("\n".join("  " * depth + "- a" for depth in range(60)), 80)


# Turns


def shown(view: TurnView, width: int = 60) -> list[str]:
    return [line.content.plain for section in view.sections() for line in section.lines(width)]


def test_streamed_and_finished_turns_look_the_same() -> None:
    text = "# Head\n\nSome *text* here.\n\n- a\n- b\n\n```py\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nend"
    live, once = a_reply(), a_reply(step((text, "draft")))
    turn = answered("prompt", live)
    view = TurnView(turn, first=True, token_view=False)
    for char in text:
        live.step(step((char, "draft")))
        view.sections()
    for reply in (live, once):
        reply.finished(Finished(1, "stop", text, (), Stats()))
    fresh = TurnView(answered("prompt", once), first=True, token_view=False)
    assert shown(view) == shown(fresh)


def test_closed_code_is_highlighted_while_the_reply_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (turn, code):
        monkeypatch.setattr(module, "SLICE_S", 0.0)
    reply = a_reply(step(("```python\ndef f():\n    return 1\n```\n\nmore", "draft")))
    view = TurnView(answered("prompt", reply), first=True, token_view=False)

    def keywords() -> bool:
        return any(".code-keyword" in str(line.content.spans) for part in view.sections() for line in part.lines(40))

    assert not keywords()
    for _ in range(20):
        if keywords():
            break
    assert keywords()
    assert shown(view, 40).count("│ def f():                             │") == 1


def test_closed_blocks_stay_the_same_objects() -> None:
    reply = a_reply(step(("one\n\ntwo", "draft")))
    view = TurnView(answered("prompt", reply), first=True, token_view=False)
    before = view.sections()
    reply.step(step((" and more", "draft")))
    after = view.sections()
    assert after[:-1] == before[:-1]
    assert after[-1] is not before[-1]


def test_the_token_view_shows_sources_and_ghosts() -> None:
    reply = a_reply(
        step(("Once", "draft"), (" upon", "draft"), (" a", "target"), rejected=" the day", accepted=2),
        step((" time\n", "bonus"), accepted=5),
        step(("The end", "plain"), drafted=0),
    )
    view = TurnView(answered("p", reply), first=True, token_view=True)
    lines = [line for section in view.sections() for line in section.lines(60)]
    assert lines[-2].content.plain == "Once upon the day a time↵"
    looks = [styles_at(lines[-2], text) for text in ("Once", " upon", " the day", " a t", " time")]
    assert looks == [{".spec-draft"}, {".spec-draft"}, {".spec-rejected"}, {".spec-target"}, {".spec-bonus"}]
    assert styles_at(lines[-1], "The end") == {".spec-plain"}


def test_the_token_view_begins_with_what_the_reply_was_made_to_begin_with() -> None:
    reply = a_reply()
    reply.started(Started(1, 9, 0, 42, Speculation.of("draft"), "Dear\nsir"))
    view = TurnView(answered("p", reply), first=True, token_view=True)
    assert shown(view)[-2:] == ["Dear↵", "sir"]
    reply.step(step((",\n", "draft"), ("I", "target")))
    rows = [(line.content.plain, section) for section in view.sections() for line in section.lines(60)]
    assert [row for row, _ in rows[-3:]] == ["Dear↵", "sir,↵", "I"]
    assert [reply.text[section.start : section.end] for _, section in rows[-3:]] == ["Dear\n", "sir,\n", "I"]


@pytest.mark.parametrize("token_view", [False, True])
def test_a_change_of_strategy_is_marked_where_it_fell(token_view: bool) -> None:
    reply = a_reply(step(("One.\n\n", "draft")))
    reply.changed(Changed(1, Speculation.of("lookup"), 7))
    reply.step(step(("Two.\n\n", "lookup")))
    reply.step(step(("Three.", "lookup")))
    text = "\n".join(shown(TurnView(answered("p", reply), first=True, token_view=token_view)))
    mark = "⟨draft x5 → lookup x8 at token 7⟩"
    assert text.index("One.") < text.index(mark) < text.index("Two.")


@pytest.mark.parametrize("token_view", [False, True])
def test_a_change_soon_after_another_is_told_by_its_mark_at_once(token_view: bool) -> None:
    reply = a_reply(step(("One.\n\n", "draft")))
    view = TurnView(answered("p", reply), first=True, token_view=token_view)
    for number, length in enumerate((4, 3, 2)):
        reply.changed(Changed(1, Speculation.of("draft", length), 7))
        reply.step(step((f"Number {number}.\n\n", "draft")))
        text = "".join(shown(view))
        assert (text.count("⟨"), f"⟨draft x5 → x{length} at token 7⟩" in text) == (1, True)
    reply.changed(Changed(1, Speculation.of("draft"), 7))
    assert "⟨" not in "".join(shown(view))


def test_heat_stands_beside_the_rows_it_belongs_to() -> None:
    reply = a_reply(
        step(("good.\n\n", "draft"), accepted=4),
        step(("bad.\n\n", "target"), accepted=0),
        step(("x", "plain"), drafted=0),
    )
    reply.finished(Finished(1, "stop", reply.text, (), Stats()))
    heats = {}
    for section in TurnView(answered("p", reply), first=True, token_view=False).sections():
        for row, line in enumerate(section.lines(40)):
            heats[line.content.plain] = section.heat_of(row)
    assert (heats["good."], heats["bad."], heats["x"], heats["▌ p"]) == (1.0, 0.0, None, None)


def test_huge_prompts_are_cut_on_the_screen_only() -> None:
    turn = Turn("x" * 1_000_000)
    assert "▌ … and 996,000 more characters" in shown(TurnView(turn, first=True, token_view=False))
    assert len(turn.prompt) == 1_000_000


# The window


def numbered(*counts: int) -> list[Section]:
    def section(number: int, count: int) -> Section:
        return Section(lambda _: [TextLine(Content(f"{number}.{row}")) for row in range(count)])

    return [section(number, count) for number, count in enumerate(counts)]


def names(window: SectionWindow) -> list[str]:
    return [line.content.plain for line, _ in window.rows]


@given(st.lists(st.integers(0, 300), max_size=12), st.integers(0, 5))
def test_a_window_extended_to_the_top_has_every_row_in_order(counts: list[int], taken: int) -> None:
    sections = numbered(*counts)
    window = SectionWindow()
    window.replace(0, sections, 80)
    window.open_at(len(sections), 80)
    for _ in range(taken):
        before = names(window)
        added = window.extend(80)
        assert names(window)[added:] == before
    while not window.complete:
        window.extend(80)
    assert names(window) == [f"{n}.{row}" for n, count in enumerate(counts) for row in range(count)]


def test_a_window_keeps_the_rows_of_sections_that_stay() -> None:
    first, second, third = numbered(2, 2, 2)
    window = SectionWindow()
    assert window.replace(0, [first, second], 80) == 0
    assert window.replace(0, [first, second], 80) is None
    assert window.replace(0, [first, third, second], 80) == 2
    assert names(window) == ["0.0", "0.1", "2.0", "2.1", "1.0", "1.1"]
    assert window.replace(1, [], 80) == 2


def test_a_place_is_a_row_of_its_section() -> None:
    sections = numbered(*[50] * 40)
    window = SectionWindow()
    window.replace(0, sections, 80)
    assert window.place(333) == (sections[6], 33)
