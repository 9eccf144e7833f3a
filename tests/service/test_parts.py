"""Parts of a service by themselves: counts of the next prompt, and the tools of chats."""

from dataclasses import replace
from typing import Any

import pytest

from specchat.chat.store import Store
from specchat.engine.protocol.events import Counted, Failed, Loading
from specchat.engine.protocol.options import Limits, Sampling
from specchat.engine.protocol.pair_info import TemplateFacts
from specchat.engine.protocol.requests import Forget, Remember
from specchat.service.chat_tools import ChatTools, ToolChoices
from specchat.service.loaded_pair import LoadedPair
from specchat.service.prompt_count import PromptCount
from specchat.service.saved_replies import SavedReplies
from specchat.service.settings import ChatSettings, Preferences, as_data, from_data
from tests.fake import INFO, FakeEngine
from tests.service.made import CATALOG
from tests.service.tool_servers import READ, ScriptedServers


def test_a_count_is_of_the_text_that_was_asked_for_last() -> None:
    count = PromptCount()
    count.begin(1, "one")
    count.begin(2, "two")
    count.end(1, Counted(1, 3, 10))
    assert (count.waiting, count.counted) == (True, None)
    count.end(2, Counted(2, 10, 10))
    assert (count.waiting, count.known("two"), count.too_long("two")) == (False, True, True)
    count.begin(3, "three")
    count.end(3, Failed(3, "request", "No."))
    assert (count.waiting, count.known("two"), count.known("three")) == (False, True, False)


def test_progress_is_shown_on_one_line() -> None:
    loaded = LoadedPair(FakeEngine())
    loaded.progress(Loading("reading\nm.gguf", 0.5))
    assert loaded.loading == Loading("reading m.gguf", 0.5)


def test_a_model_without_tools_is_told_once_for_each_pair() -> None:
    loaded = LoadedPair(FakeEngine())
    assert (loaded.calls_tools, loaded.continues, loaded.about_tools()) == (False, True, "")
    with_tools = replace(INFO, template=TemplateFacts(tools=True))
    without = replace(INFO, template=TemplateFacts())
    elsewhere = replace(without, server=replace(INFO.server, name="box", continues=False))
    for pair, info, words in (
        (CATALOG.pairs[0], without, "demo is not offered the tools of this chat: its chat template shows none"),
        (CATALOG.pairs[1], elsewhere, "Qwen3 8B + 0.6B is not offered the tools of this chat: its server takes none"),
        (CATALOG.pairs[0], with_tools, ""),
    ):
        loaded.load(pair)
        loaded.loaded(info)
        assert (loaded.about_tools(), loaded.about_tools()) == (words, "")
        assert (loaded.calls_tools, loaded.continues) == (info is with_tools, info is not elsewhere)


@pytest.mark.parametrize(
    "wrong",
    [
        {"strategy": "gone"},
        {"draft_length": -1},
        {"seed": -1},
        {"limits": Limits(max_tokens=-1)},
        {"sampling": Sampling(temperature=-1.0)},
        {"sampling": Sampling(top_p=2.0)},
    ],
)
def test_settings_out_of_range_are_not_read(wrong: dict[str, Any]) -> None:
    right = ChatSettings("draft", 5, sampling=Sampling(temperature=0.5), seed=7, limits=Limits(9))
    assert from_data(as_data(right)) == right
    assert from_data(as_data(replace(right, **wrong))) is None


def test_preferences_count_before_what_the_pair_says() -> None:
    pair = CATALOG.pairs[0]
    usual = Preferences().settings(pair)
    assert (usual.strategy, usual.draft_length, usual.acceptance) == ("draft", 5, pair.acceptance)
    assert usual.sampling == pair.sampling
    own = Preferences(strategy="lookup", draft_length=3, acceptance="ratio", sampling=Sampling(temperature=0.1))
    chosen = own.settings(pair)
    assert (chosen.strategy, chosen.draft_length, chosen.acceptance) == ("lookup", 3, "ratio")
    assert chosen.sampling == own.sampling


@pytest.mark.parametrize(("more", "outdated"), [(2_000, False), (2_001, True)])
def test_a_large_paste_makes_a_count_old(more: int, outdated: bool) -> None:
    count = PromptCount()
    count.begin(1, "x" * more)
    assert count.outdated == outdated


@pytest.mark.parametrize(
    ("data", "choices"),
    [
        ({"on": True, "without": ["web", 5], "always": "x"}, ToolChoices(True, frozenset({"web"}))),
        ({"on": "yes", "without": ["web"]}, ToolChoices(False)),
        (None, ToolChoices(False)),
    ],
)
def test_choices_of_a_chat_are_read_as_far_as_they_can_be(data: Any, choices: ToolChoices) -> None:
    tools = ChatTools(ScriptedServers())
    tools.opened("a", data)
    assert tools.of("a") == choices
    tools.opened("a", {"on": True, "always": ["x"]})
    assert tools.of("a") == choices, "what was chosen since counts more"


def test_a_server_is_started_where_its_chat_uses_tools_and_what_is_permitted_stays() -> None:
    servers = ScriptedServers()
    tools = ChatTools(servers)
    tools.use_server("a", "files", on=True)
    assert servers.started == []
    tools.use("a", on=True)
    tools.permit("a", READ)
    tools.use_server("a", "files", on=True)
    assert (servers.started, tools.permitted("a", READ)) == (["files"], True)


def test_a_server_that_has_ended_with_tools_or_without_a_reason_is_no_problem() -> None:
    servers = ScriptedServers(starts=False)
    tools = ChatTools(servers, usual=True)
    servers.stop("web")
    servers.come_up("files", problem="It is not there.")
    assert tools.problems("a") == ["The tools of files cannot be used: It is not there."]
    servers.come_up("files")
    servers.come_up("files", problem="It has ended.")
    assert tools.problems("a") == []


def test_a_chat_that_is_deleted_is_forgotten_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []
    monkeypatch.setattr("specchat.service.saved_replies.remove_chat", removed.append)
    engine = FakeEngine()
    saved = SavedReplies(engine, Store(), wanted=True)
    saved.deleted("a")
    assert (engine.requests, removed) == ([Forget("a")], ["a"])
    saved.restored("a")
    assert engine.requests[1:] == [Remember("a", ())]
