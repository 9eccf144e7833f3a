"""Control codes and markup in everything that comes from outside: none of it reaches the terminal or is obeyed."""

import random
import time
from dataclasses import replace

import pytest
from conftest import LAUNCH, ask, loaded, make_app, wait_until
from hostile import DANGEROUS, EVIL, anything, check, output
from textual import events

from specchat.chat.rows import ChatRow, MessageRow
from specchat.chat.store import Store
from specchat.clean import clean
from specchat.config.catalog import Catalog, Pair
from specchat.engine.protocol.events import Drafted, Failed, Finished, Piece, Started, Step
from specchat.engine.protocol.options import Speculation
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.pair_info import StrategyStatus
from specchat.engine.protocol.stats import Stats
from specchat.tui.actions.models import use_pair
from specchat.tui.widgets.sidebar import Sidebar
from tests.fake import INFO, FakeEngine
from tests.parts import changed

CATALOG = Catalog(
    tuple(
        Pair(
            PairSpec(id, EVIL, ModelSource(path=f"/m/{EVIL}"), ModelSource(repo=EVIL)),
            strategy="draft",
            unsupported=words,
        )
        for id, words in (("demo", ""), ("other", EVIL))
    ),
    "demo",
)
ALL = (StrategyStatus("plain", True), StrategyStatus("draft", True), StrategyStatus("swift", False, EVIL))
HOSTILE_INFO = changed(INFO, name=EVIL, device=EVIL, exactness=EVIL, strategies=ALL)


def drafts(kept: str, rejected: str) -> tuple[Drafted, ...]:
    return Drafted(kept, 0.9), Drafted(rejected, 0.1)


def chunked(text: str, rejected: str = EVIL) -> tuple[Started | Step | Finished, ...]:
    """`text` a character a step, so that every sequence is cut in every place."""
    steps = [
        Step(0, (Piece(char, "draft"), Piece("", "target")), 2, 1, 1, 1, 1, 1, 1, 9, "draft", drafts(char, rejected))
        for char in text
    ]
    return (Started(0, 1, 0, 0, Speculation("draft", 5)), *steps, Finished(0, "stop", text, (), Stats(num_steps=1)))


@pytest.mark.parametrize(
    "text",
    [
        EVIL,
        f"# {EVIL}\n\n- {EVIL}\n- b\n\n> {EVIL}",
        f"```{EVIL}\n{EVIL}\n```\n\n`{EVIL}`",
        f"| {EVIL} | b |\n|---|---|\n| 1 | {EVIL} |",
        f"[{EVIL}](https://x.y/{EVIL.split()[0]}) ![{EVIL}](http://a)",
        f"```python\n{EVIL}",
        "[/usr/bin] ␛ &#8238;x &#x1b;]52; &#x9b;31m &#7; &#8294; `&#8238;` [a&#8238;](http://x/&#8238;)\n\n```&#8238;p\nx\n```",
    ],
    ids=["text", "blocks", "code", "table", "links", "open fence", "entities"],
)
async def test_replies(text: str) -> None:
    app = make_app(FakeEngine((chunked(text),)))
    async with app.run_test(size=(120, 60)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        shown = check(app)
        assert "␛" in shown
        assert "[/usr/bin]" in shown or "usr" in shown
        for key in ("ctrl+t", "pageup", "ctrl+t"):
            await pilot.press(key)
            await pilot.pause()
            check(app)
        for keys in (("ctrl+up", "f"), ("escape", "z"), ("g", "]", "t"), ("l", "l", "m"), ("escape", "t", "ctrl+f")):
            await pilot.press(*keys)
            await pilot.pause()
            check(app)
        app.screen.focused.post_message(events.Paste(EVIL))
        await pilot.pause()
        assert "␛]52" in check(app)
        await pilot.press("escape", "escape", "alt+c")
        assert not DANGEROUS.search(app.clipboard.replace("\t", ""))


async def test_a_reply_while_it_is_written() -> None:
    app = make_app(FakeEngine((chunked(f"{EVIL}\n\n{EVIL}")[:-1],)))
    async with app.run_test(size=(120, 60)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi", wait=False)
        await wait_until(pilot, lambda: "␛]52" in output(app))
        for _ in range(3):
            check(app)
            await pilot.press("ctrl+t")
            await pilot.pause()


async def test_prompts_and_titles() -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        app.chat.prompt.post_message(events.Paste(EVIL))
        await pilot.pause()
        assert "␛]52" in check(app)
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.conversation.turns and app.session.reply is None)
        await pilot.pause()
        assert "[@click=app.quit]" in check(app)
        await pilot.press("up")
        await pilot.pause()
        check(app)


async def test_names_reasons_and_loading() -> None:
    app = make_app(FakeEngine(info=HOSTILE_INFO), replace(LAUNCH, pair=CATALOG.pairs[0]), CATALOG)
    async with app.run_test(size=(120, 40)) as pilot:
        await loaded(app, pilot)
        await pilot.pause()
        check(app)
        for keys in (("f3",), ("escape", "ctrl+o"), ("escape", "f1"), ("escape", "alt+x"), (*"model",)):
            await pilot.press(*keys)
            await pilot.pause(0.3)
            assert app.is_running
            check(app)


@pytest.mark.parametrize("kind", ["reply", "load", "died"])
async def test_error_messages(kind: str) -> None:
    failure = (Started(0, 1, 0, 0, Speculation()), Failed(0, "internal", EVIL))
    engine = FakeEngine((failure,))
    app = make_app(engine)
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        await loaded(app, pilot)
        if kind == "reply":
            await ask(app, pilot, "hi")
        elif kind == "load":
            engine.fail_load("model", EVIL)
            use_pair(app.chat, app.chat.catalog.pairs[0])
        else:
            app.session.loaded._deaths.count = 5
            engine._ready.append(Failed(None, "died", EVIL))
            engine._alive = False
            engine._notify()
        await wait_until(pilot, lambda: "␛]52" in output(app))
        check(app)


async def test_file_names_in_warnings() -> None:
    app = make_app(FakeEngine(), changed(LAUNCH, warnings=(f"/themes/{EVIL}.toml is broken",)))
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        await loaded(app, pilot)
        await wait_until(pilot, lambda: "is broken" in output(app))
        check(app)


def a_chat(key: str, text: str) -> tuple[ChatRow, list[MessageRow]]:
    """A saved chat with `text` wherever there is any."""
    text = text.encode("utf-8", "replace").decode()
    row = ChatRow(key, text, text, text, updated=time.time(), view={"leaf": f"{key}2"})
    asked = MessageRow(f"{key}1", None, "user", f"lamp {text}", 0.0, "sent")
    answer = MessageRow(f"{key}2", asked.key, "assistant", f"lamp {text}\n\n- {text}\n", 0.0, "finished")
    return row, [asked, answer]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
async def test_random_text_in_every_place(seed: int) -> None:
    chance = random.Random(seed)
    store = Store()
    for number in range(12):
        store.insert(*a_chat(f"chat{number}", anything(chance)), {})
    app = make_app(FakeEngine(), replace(LAUNCH, store=store))
    width, height = chance.choice(((120, 36), (80, 24), (44, 14)))
    async with app.run_test(size=(width, height), notifications=True) as pilot:
        await loaded(app, pilot)
        check(app)

        async def press(*keys: str) -> None:
            await pilot.press(*keys)
            await pilot.pause()
            check(app)

        for number in range(3):
            await press("ctrl+b")
            await press(*["down"] * chance.randrange(6))
            await press("r")
            await press("x", "escape")
            await press("enter")
            app.chat.post_message(Sidebar.Chosen(f"chat{chance.randrange(12)}", None))
            await press("ctrl+t")
            await press("f9", *"lamp")
            await press("down", "down", "enter")
            await press("escape", "escape")
            app.chat.say(anything(chance), bad=bool(number % 2))
            await press("ctrl+t")
            app.chat.prompt.post_message(events.Paste(anything(chance, 60)))
            await press("up")
            await press("f5")
            await press("ctrl+a", "enter")
            await wait_until(pilot, lambda: app.session.reply is None)
            check(app)
        app.notify(clean(anything(chance)), markup=False)
        await press("pageup")


async def test_markup_and_links_cannot_be_clicked() -> None:
    text = "[@click=app.quit]here[/] [link='http://x.y']there[/link] [a](javascript:alert(1)) [b](ftp://c/d)"
    store = Store()
    store.insert(*a_chat("chat", text), {})
    app = make_app(FakeEngine(), replace(LAUNCH, store=store))
    opened: list[str] = []
    app.open_url = lambda url, **_: opened.append(url)  # type: ignore[method-assign]
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        app.chat.post_message(Sidebar.Chosen("chat", None))
        await pilot.press("ctrl+b")
        await pilot.pause()
        for y, row in enumerate(check(app).split("\n")):
            for word in ("here", "there", "javascript", " b "):
                if (x := row.find(word)) >= 0:
                    await pilot.click(offset=(x + 1, y))
        await pilot.pause()
        assert app.is_running
        assert opened == []
