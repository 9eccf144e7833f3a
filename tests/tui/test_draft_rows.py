"""How a step's drafts are told where they are trees."""

import sys
from dataclasses import replace

import pytest
from conftest import LAUNCH, ask, loaded, make_app, screen_text, wait_until
from textual.pilot import Pilot

from specchat.chat.sources import rejected_text
from specchat.engine.protocol.events import Drafted, Piece, Step
from specchat.engine.protocol.options import Speculation
from specchat.tui.app import SpecchatApp
from specchat.tui.screens.replay import ReplayScreen
from specchat.tui.text.draft_rows import tree_rows
from specchat.tui.text.inspect import inspected
from specchat.tui.text.tokens import TokenSection, TokenView
from specchat.tui.widgets.rows import Inspector
from tests.fake import FakeEngine
from tests.insight.replies import reply_of

TEXT = "Once there was a small fox who kept a lamp, and read from a book."


def tree(accepted: int, tested: int, *drafts: tuple[str, float | None, int]) -> Step:
    """A step whose last token is `!`."""
    made = tuple(Drafted(text, chance, parent) for text, chance, parent in drafts)
    kept = [Piece(draft.text, "draft", position=position) for position, draft in enumerate(made[:accepted])]
    pieces = (*kept, Piece("!", "bonus" if tested == accepted else "target", position=accepted))
    return Step(1, pieces, len(made), tested, accepted, accepted + 1, 1.0, 8.0, 0.5, 9, "draft", made)


STEP = tree(
    2, 3, (" a", 0.9, -1), (" b", 0.8, 0), (" c", 0.1, -1), (" d", 0.2, 0), (" e", 0.3, 1), (" f", 0.6, 1),
    (" g", None, 5), (" h", 0.2, 2), (" i", 0.3, 2), (" j", 0.3, 7), (" k", 0.5, 5),
)  # fmt: skip
"""`a b` was kept; `c` and `d` are branches beside it, `e` and `f` what was refused behind it."""


def plain(step: Step, most: int, behind: int | None = None) -> list[str]:
    return [row.plain for row in tree_rows(step, most, behind)]


def test_the_whole_tree_is_drawn() -> None:
    assert plain(STEP, 99) == [
        "├ ✓“ a” 90 %",
        "│ ├ ✓“ b” 80 %",
        "│ │ ├ “ e” 30 %",
        "│ │ └ “ f” 60 %",
        "│ │   ├ “ g”",
        "│ │   └ “ k” 50 %",
        "│ └ “ d” 20 %",
        "└ “ c” 10 %",
        "  ├ “ h” 20 % → “ j” 30 %",
        "  └ “ i” 30 %",
    ]


@pytest.mark.parametrize(
    ("behind", "rows"),
    [
        (-1, ["├ ✓“ a” 90 % → ✓“ b” 80 %", "└ “ c” 10 %", "  ├ “ h” 20 % → “ j” 30 %", "  └ “ i” 30 %"]),
        (0, ["├ ✓“ b” 80 %", "└ “ d” 20 %"]),
        (1, ["├ “ e” 30 %", "└ “ f” 60 %", "  ├ “ g”", "  └ “ k” 50 %"]),
        (4, []),
    ],
)
def test_the_candidates_for_a_place_are_drawn_with_what_follows_them(behind: int, rows: list[str]) -> None:
    assert plain(STEP, 99, behind) == rows


def test_rows_that_do_not_fit_are_counted_by_their_drafts() -> None:
    assert plain(STEP, 2, -1) == ["├ ✓“ a” 90 % → ✓“ b” 80 %", "└ “ c” 10 %  … 3 more"]
    assert plain(STEP, 1) == ["├ ✓“ a” 90 %  … 10 more"]
    assert plain(STEP, 0) == []


def test_a_tree_of_any_depth_is_drawn() -> None:
    deep = sys.getrecursionlimit()
    drafts = [(f" {n}", 0.5, -1 if n < 2 else 2 * (n // 2 - 1)) for n in range(2 * deep)]
    assert len(plain(tree(0, 1, *drafts), 3)) == 3
    assert rejected_text(tree(0, 1, *drafts))[1] == 1


def test_the_likeliest_refused_branch_is_told() -> None:
    assert rejected_text(STEP) == (" f k", 1)
    assert rejected_text(tree(0, 1, (" a", None, -1), (" b", None, -1), (" c", None, 0))) == (" a c", 1)
    assert rejected_text(tree(1, 1, (" a", 0.5, -1), (" b", 0.4, -1))) == ("", 0)
    assert rejected_text(tree(1, 2, (" a", 0.5, -1), (" b", 0.4, -1), (" c", 0.4, 0))) == (" c", 0)


def test_a_chain_tells_all_that_was_refused() -> None:
    told = replace(STEP, drafts=tuple(Drafted(text, 0.5) for text in "abcd"))
    assert rejected_text(told) == ("cd", 0)


def shown(*made: Step) -> list[str]:
    view = TokenView(reply_of(made, Speculation.of("draft")))
    view.update()
    return [section.plain for section in view.open() if isinstance(section, TokenSection)]


def test_the_token_view_says_how_many_other_candidates_were_refused() -> None:
    assert shown(STEP) == [" a b f k⟨+1⟩!"]
    assert shown(tree(1, 1, (" a", 0.5, -1), (" b", 0.4, -1))) == [" a!"]


def test_the_candidates_for_a_token_are_told_below_its_step() -> None:
    reply = reply_of([STEP], Speculation.of("draft"))
    view = TokenView(reply)
    view.update()
    (section,) = view.open()
    assert isinstance(section, TokenSection)
    rows = [inspected(reply, token, 120, 7).plain.split("\n") for token in section.tokens]
    head = " · step 1 of 1 · 11 drafted, 3 places tested, 2 accepted · draft 1.0, verify 8.0, other 0.5 ms"
    assert [row[0].partition(" · ")[0] for row in rows] == [
        "“ a” draft accepted",
        "“ b” draft accepted",
        "“!” correction",
    ]
    assert rows[0][0].endswith(head)
    assert [row[1:] for row in rows] == [plain(STEP, 9, behind) for behind in (-1, 0, 1)]
    late = reply_of([replace(STEP, waited_ms=4.0)], Speculation.of("draft"))
    assert inspected(late, section.tokens[0], 130, 7).plain.split("\n")[0].endswith("other 0.5, waited 4.0 ms")
    low = inspected(reply, section.tokens[0], 40, 4).plain.split("\n")
    assert low[2:] == ["├ ✓“ a” 90 % → ✓“ b” 80 %", "└ “ c” 10 %  … 3 more"]
    assert max(map(len, inspected(reply, section.tokens[0], 12, 4).plain.split("\n"))) <= 12


async def answered(app: SpecchatApp, pilot: Pilot[None]) -> None:
    await loaded(app, pilot)
    await ask(app, pilot, "hi")


def trees(text: str = TEXT) -> SpecchatApp:
    pair = replace(LAUNCH.pair, lengths={"draft": 9})
    return make_app(FakeEngine((text,), candidates=3), replace(LAUNCH, pair=pair))


@pytest.mark.parametrize("size", [(120, 36), (60, 15)])
async def test_branches_are_seen_at_the_cursor(size: tuple[int, int]) -> None:
    app = trees()
    async with app.run_test(size=size) as pilot:
        await answered(app, pilot)
        await pilot.press("ctrl+t", "ctrl+up", "g", "j", "j", "l")
        await wait_until(pilot, lambda: "✓“" in screen_text(app))
        inspector = app.chat.query_one(Inspector)
        high = inspector.size.height
        assert "places" in screen_text(app)
        await pilot.press("w", "w")
        await wait_until(pilot, lambda: "step 3 of" in screen_text(app))
        assert "├ " in screen_text(app)
        assert inspector.size.height == high
        await pilot.resize_terminal(size[0] - 10, size[1])
        await pilot.pause(0.1)
        told = str(inspector.render()).split("\n")
        assert max(map(len, told)) <= inspector.content_size.width
        assert len(told) <= inspector.content_size.height


async def test_a_replayed_step_is_drawn_with_its_branches() -> None:
    app = trees()
    async with app.run_test(size=(100, 30)) as pilot:
        await answered(app, pilot)
        await pilot.press("f12")
        await wait_until(pilot, lambda: isinstance(app.screen, ReplayScreen))
        await pilot.press("home", "right")
        await wait_until(pilot, lambda: "step 1 of" in screen_text(app))
        assert "accepted 3 of 9: Once there was | bonus:" in screen_text(app)
        assert "├ ✓“Once” 97 %" in screen_text(app)
        await pilot.press("right")
        await wait_until(pilot, lambda: "step 2 of" in screen_text(app))
        assert "and 2 others | correction:" in screen_text(app)
