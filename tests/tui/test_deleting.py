"""A deleted chat from which something was trained."""

from pathlib import Path

from conftest import ask, loaded, make_app, wait_until
from tunes import Jobs, tunes

from specchat.tune.shelf import Tuned
from tests.fake import FakeEngine


async def test_deleting_a_chat_names_what_learnt_from_it(tmp_path: Path) -> None:
    app = make_app(FakeEngine(), tunes(tmp_path, Jobs(), prompts=0))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hello")
        key = app.session.conversation.key
        for name, used in (("mine-draft", {key: "hello"}), ("other-draft", {"another": "chat"})):
            (tmp_path / "tuned" / name).mkdir(parents=True)
            Tuned(name, "draft", "demo", 0.0, "prompts", used, folder=tmp_path / "tuned" / name).note()
        await app.chat.do("delete-chat")
        await wait_until(pilot, lambda: 'mine-draft learnt from it: "specchat tune remove' in app.chat.notice.text)
        assert "other-draft" not in app.chat.notice.text
