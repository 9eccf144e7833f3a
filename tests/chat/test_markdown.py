"""Markdown reads well, and its texts come back as they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from specchat.chat.files import ChatFileError
from specchat.chat.markdown import as_markdown, from_markdown
from specchat.chat.rows import WholeChat
from specchat.chat.tree import Conversation

from .conftest import a_chat, answer

LINES = st.sampled_from(
    (
        "<!-- specchat: user -->",
        "\\<!-- specchat: end -->",
        "<!-- specchat: figures -->\r",
        "## You",
        "---",
        "```",
        "",
        "\\",
        "\r",
        "\ufeff",
        "\u2028",
        "\x1b[2J",
    )
)
TEXTS = st.one_of(st.text(), st.lists(st.one_of(LINES, st.text(max_size=8)), max_size=6).map("\n".join))


def texts(chat: WholeChat) -> list[str]:
    return [message.text for message in chat.messages]


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=5))
def test_texts_survive(system: str, said: list[str]) -> None:
    chat = Conversation(system)
    for number, text in enumerate(said):
        if number % 2:
            answer(chat, chat.turns[-1], text)
        else:
            chat.ask(text)
    read = from_markdown(as_markdown(chat), "chat.md", 0.0)
    assert texts(read) == said
    assert read.row.system == system
    assert [message.role for message in read.messages] == ["user", "assistant", "user", "assistant", "user"][
        : len(said)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Look:\n\n```python\nprint(1)",
        "````\n```\n",
        "~~~~ a\n```",
        "   ```\n    ```",
        "```",
        "- a\n  ```\n  b",
        "> ```\n> b",
        "```\na\n```",
        "```a`",
        "```\r\na\r\n",
    ],
)
def test_code_that_is_left_open_holds_nothing_else(text: str) -> None:
    chat = Conversation(text)
    answer(chat, chat.ask(text), text)
    answer(chat, chat.ask("On"), "## Yes")
    written = as_markdown(chat)
    tokens = MarkdownIt("commonmark").parse(written)
    headings = [tokens[n + 1].content for n, token in enumerate(tokens) if token.type == "heading_open"]
    assert headings[1:] == ["System prompt", "You", "demo", "You", "demo", "Yes"]
    read = from_markdown(written, "chat.md", 0.0)
    assert (read.row.system, texts(read)) == (text, [text, text, "On", "## Yes"])


def test_it_tells_title_system_prompt_names_and_figures() -> None:
    text = as_markdown(a_chat())
    assert "# Tell me about a fox\n" in text
    assert "| model |" in text
    assert "## System prompt\n\nBe brief.\n" in text
    assert "## demo\n\nLamps are for the night.\n" in text
    assert "tok/s · plain · temperature 0.5 · seed 7*" in text
    assert "File fox.txt:\n````txt\nred\n```\n````" in text
    assert "owl" not in text


def test_title_names_and_dates_come_back() -> None:
    chat = a_chat()
    read = from_markdown(as_markdown(chat), "chat.md", 0.0)
    assert read.row.title == "Tell me about a fox"
    assert read.row.created == pytest.approx(chat.created, abs=1e-5)
    assert '"name": "demo"' in read.messages[1].meta
    assert [message.created for message in read.messages] == pytest.approx(
        [made.created for turn in chat.turns for made in (turn, turn.reply) if made], abs=1e-5
    )
    assert read == from_markdown(as_markdown(chat), "chat.md", 99.0)


def test_a_file_with_dos_line_ends_is_read() -> None:
    text = as_markdown(a_chat())
    assert texts(from_markdown(text.replace("\n", "\r\n"), "a", 0.0)) == texts(from_markdown(text, "a", 0.0))


def test_a_greeting_is_no_title() -> None:
    text = "## You\n\nhi!\n\n## Assistant\n\nHello.\n\n## You\n\nDraw a fox\n"
    assert from_markdown(text, "chat.md", 5.0).row.title == "Draw a fox"


def test_headings_say_who_speaks() -> None:
    text = "# A talk\n\nnotes\n\n## You\n\nhi\n\n```\n## Assistant\n```\n## Assistant:\n\nhello\n"
    text += "**You:**\nbye\n## Other\nx\n"
    read = from_markdown(text, "chat.md", 5.0)
    assert texts(read) == ["hi\n\n```\n## Assistant\n```", "hello", "bye\n## Other\nx"]
    assert (read.row.title, read.row.created) == ("A talk", 5.0)


def test_neighbours_become_one_and_a_chat_begins_with_a_prompt() -> None:
    read = from_markdown("## Assistant\na\n## AI\nb\n## Me\nc", "chat.md", 0.0)
    assert texts(read) == ["", "a\n\nb", "c"]


@pytest.mark.parametrize(
    "text", ["", "hello", "# Title\n\nYou\n", "<!-- specchat: chat -->\n# T\n<!-- specchat: end -->"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ChatFileError, match=r"notes\.md holds no chat"):
        from_markdown(text, "notes.md", 0.0)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "line",
    [f"# {' ' * 50_000}x*y", f"**{' ' * 50_000}x#y", f"## {'a: ' * 20_000}*x", f"# x{'#' * 50_000} y"],
    ids=["heading", "bold", "colons", "signs"],
)
def test_a_long_line_that_is_no_heading_takes_no_time(line: str) -> None:
    read = from_markdown(f"## You\nhi\n{line}\n", "chat.md", 0.0)
    assert texts(read) == [f"hi\n{line}"]


@pytest.mark.timeout(60)
def test_a_large_file_is_read_in_a_moment() -> None:
    text = "a line of a text that goes on for a while\n" * 200_000
    assert texts(from_markdown(f"## You\n{text}", "chat.md", 0.0)) == [text.rstrip("\n")]
    assert len(texts(from_markdown("## You\nand on it goes\n" * 100_000, "chat.md", 0.0))) == 1
