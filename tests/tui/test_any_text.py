"""Any text, in any pieces: what is shown while it streams is what a finished reply shows, and no row is too wide."""

from dataclasses import replace

from hostile import DANGEROUS, HOSTILE
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from specchat.chat.turn import Reply, Turn
from specchat.engine.protocol.events import Changed, Drafted, Failed, Finished, Piece, Step
from specchat.engine.protocol.options import Sampling, Speculation
from specchat.engine.protocol.stats import Stats
from specchat.engine.strategies import STRATEGIES
from specchat.tui.text.lines import TextLine
from specchat.tui.text.turn import TurnView

MARKDOWN = (
    "# Head\n", "\n", "\n\n", "- item ", "  - inner\n", "1. one\n", "```python\n", "```\n", "~~~\n", "def f():\n",
    "    x\n", "| a | b |\n|---|--:|\n", "| 1 | 2 |\n", "> quote ", "**bold** ", "*em* ", "`code` ", "---\n", "\t",
    "$x^2$ ", "[link](https://x.y) ", "![image](http://a) ", "<b>html</b> ", "words and words ",
    "averyveryveryverylongwordwithoutanyspace ",
)  # fmt: skip
texts = st.one_of(
    st.lists(st.sampled_from(MARKDOWN + HOSTILE), max_size=25).map("".join),
    st.text(max_size=60),
    st.lists(st.sampled_from(("- ", "> ", "| ", "```", "漢字", "x", "\n", " ", "👨‍👩‍👧")), max_size=30).map("".join),
)
widths = st.integers(28, 100)
"""Cells that the text of a transcript may have in the smallest window and above it."""
EVERY = ("\n" * 3 + "".join(MARKDOWN) + "\n" + "".join(HOSTILE) + "\n```\n") * 2

SOURCES = sorted((*STRATEGIES, "target", "bonus"))


@st.composite
def streams(draw: st.DrawFn) -> list[Step | Changed]:
    """A text as the steps that brought it, with refused drafts, also in trees, and changes of strategy among them."""
    text = draw(texts)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    events: list[Step | Changed] = []
    for number, part in enumerate(parts):
        half = draw(st.integers(0, len(part)))
        first, last = draw(st.tuples(st.sampled_from(SOURCES), st.sampled_from(SOURCES)))
        pieces = (Piece(part[:half], first), Piece(part[half:], last))
        refused = [draw(st.sampled_from(("", " or", *HOSTILE))) for _ in range(draw(st.integers(1, 3)))]
        parents = [draw(st.integers(-1, place)) for place in range(len(refused))] if len(refused) > 1 else [None]
        others = [Drafted(text, 0.1, parent) for text, parent in zip(refused, parents, strict=True)]
        drafts = (Drafted(part[:half], 0.9), *others)
        events.append(Step(1, pieces, len(drafts), 2, 1, 2, 1.0, 8.0, 1.0, number, "draft", drafts))
        if draw(st.integers(0, 5)) == 0:
            events.append(Changed(1, Speculation.of(draw(st.sampled_from(list(STRATEGIES)))), number))
    return events


def an_empty_reply() -> Turn:
    turn = Turn("prompt")
    turn.replies.add(Reply(1, "demo", Sampling(seed=42), Speculation.of("draft")))
    return turn


def take(reply: Reply, event: Step | Changed) -> None:
    reply.step(event) if isinstance(event, Step) else reply.changed(event)


def finish(reply: Reply) -> None:
    reply.finished(Finished(1, "stop", reply.raw, (), Stats()))


def lines(view: TurnView, width: int) -> list[TextLine]:
    return [line for section in view.sections() for line in section.lines(width)]


def looks(view: TurnView, width: int) -> list[object]:
    """All that the screen and the clipboard get to see of the rows."""
    return [
        (line.content.plain, sorted(map(str, line.content.spans)), line.text, line.soft, line.glue, line.copied,
         section.heat_of(row))
        for section in view.sections()
        for row, line in enumerate(section.lines(width))
    ]  # fmt: skip


@settings(max_examples=150)
@given(streams(), st.booleans(), widths, widths)
def test_streaming_ends_in_what_a_finished_reply_shows(
    events: list[Step | Changed], token_view: bool, width: int, other: int
) -> None:
    turn = an_empty_reply()
    (reply,) = turn.replies
    view = TurnView(turn, first=True, token_view=token_view)
    for number, event in enumerate(events):
        take(reply, event)
        lines(view, other if number % 3 == 2 else width)  # the window's width changes now and then
    finish(reply)
    assert looks(view, width) == looks(TurnView(turn, first=True, token_view=token_view), width)


@settings(max_examples=150)
@given(streams(), st.booleans(), widths)
def test_rows_are_clean_and_fit_while_they_stream(events: list[Step | Changed], token_view: bool, width: int) -> None:
    turn = an_empty_reply()
    (reply,) = turn.replies
    view = TurnView(turn, first=True, token_view=token_view)
    for event in events:
        take(reply, event)
        check(lines(view, width), width)
    finish(reply)
    check(lines(view, width), width)


@settings(max_examples=100)
@given(texts, widths)
@example(EVERY, 28)
def test_prompts_and_errors_are_clean_and_fit(text: str, width: int) -> None:
    turn = replace(an_empty_reply(), prompt=text)
    (reply,) = turn.replies
    reply.failed(Failed(1, "internal", text))
    check(lines(TurnView(turn, first=True, token_view=False), width), width)


def check(shown: list[TextLine], width: int) -> None:
    for line in shown:
        plain = line.content.plain
        assert DANGEROUS.search(plain.replace("\t", "")) is None, repr(plain)
        wide = line.content.expand_tabs(4).cell_length
        assert wide <= width or wide == cell_len(plain) == 0, f"{wide} cells in {width}: {plain!r}"
