"""Chats as HTML pages, read back by a parser."""

from dataclasses import replace
from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st

from specchat.chat.html_format import as_html
from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply
from specchat.clean import clean
from specchat.engine.protocol.events import Changed, Finished, Started
from specchat.engine.protocol.options import Sampling, Speculation
from tests.fake_steps import stats, steps

HOSTILE = "<script>alert(1)</script> & \"q\" 'p' <img src=x onerror=y> </div></body><!-- \x1b[2J"
KNOWN = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "div", "span"}
PARTS = ("<", "</span>", "&amp;", "a", "\n", '"', "<!--", "]]>")
DRAFT = Speculation.of("draft")


class Page(HTMLParser):
    """Its tags with their attributes, and its text in runs, each with the class that it stands in."""

    def __init__(self, chat: Conversation) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.runs: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed("".join(as_html(chat)))
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self._open.append(dict(attrs).get("class") or tag)

    def handle_endtag(self, tag: str) -> None:
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open:
            self.runs.append((self._open[-1], data))

    def of(self, *classes: str) -> str:
        return "".join(text for name, text in self.runs if name in classes)


def chat_of(prompt: str, text: str, system: str = "", *, changes: bool = False) -> Conversation:
    chat = Conversation(system)
    turn, reply = chat.ask(prompt), Reply(1, f"demo {prompt}", Sampling(seed=42), DRAFT)
    chat.answer(turn, reply)
    reply.started(Started(1, 10, 0, 42, DRAFT))
    made = steps(text, (3, 0, 5, 1))
    for number, step in enumerate(made):
        if changes and number == 1:
            reply.changed(Changed(1, Speculation(), 4))
        reply.step(step)
    reply.finished(Finished(1, "stop", reply.text, (), replace(stats(made, 10, 100.0), speedup_vs_plain=1.9)))
    return chat


def test_tokens_have_the_class_of_their_source_and_rejected_drafts_are_struck_out() -> None:
    text = "Once there was a small fox who kept a lamp in her den."
    page = Page(chat_of("A story?", text, "Be kind.", changes=True))
    body = [(name, words) for name, words in page.runs if name in ("draft", "target", "bonus", "rejected", "mark")]
    start = next(at for at, run in enumerate(body) if run[1].startswith("Once"))
    written = body[start:]
    assert "".join(words for name, words in written if name not in ("rejected", "mark")) == text
    assert [name for name, _ in written][:4] == ["draft", "rejected", "target", "mark"]
    assert "draft x5 → plain at token 4" in page.of("mark")
    assert "text-decoration: line-through" in page.of("style")
    assert "tok/s · 1.9x plain · plain · temperature" in page.of("figures")
    assert "A story?" in page.of("text")
    assert "Be kind." in page.of("text")
    assert page.of("title") == page.of("h1")


def check(page: Page) -> None:
    """Nothing but text: no script, nothing from outside, no handler."""
    assert {tag for tag, _ in page.tags} <= KNOWN
    names = {name for tag, attributes in page.tags if tag != "meta" for name in attributes}
    assert names <= {"class", "lang"}
    assert "url(" not in page.of("style")
    assert "@import" not in page.of("style")
    policies = [one["content"] for tag, one in page.tags if tag == "meta" and "http-equiv" in one]
    assert policies == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]


def test_what_anyone_wrote_is_text() -> None:
    page = Page(chat_of(HOSTILE, HOSTILE, HOSTILE))
    check(page)
    assert page.of("text").count(clean(HOSTILE)) >= 2
    assert "\x1b" not in "".join(words for _, words in page.runs)


@settings(max_examples=40)
@given(st.text(max_size=60), st.lists(st.sampled_from(PARTS), max_size=20))
def test_any_text_comes_back(prompt: str, parts: list[str]) -> None:
    text = "".join(parts)
    page = Page(chat_of(prompt, text, changes=bool(len(parts) % 2)))
    check(page)
    at = next(at for at, run in enumerate(page.runs) if run == ("h2", "You"))
    written = [words for name, words in page.runs[at:] if name in ("draft", "target", "bonus", "plain")]
    assert "".join(written) == clean(text)


def test_a_chat_without_steps_is_text() -> None:
    chat = Conversation()
    reply = Reply(1, "", Sampling(), Speculation())
    chat.answer(chat.ask("hi"), reply)
    reply.finished(Finished(1, "stop", "hello <b>", (), None))  # type: ignore[arg-type]
    page = Page(chat)
    assert "hello <b>" in page.of("text")
    assert "Assistant" in page.of("h2")
