"""Keys from the system's keyring."""

import sys
from importlib.util import find_spec

import pytest

from specchat.engine.protocol.events import Failed, Loaded
from specchat.engine.protocol.pair import Server
from specchat.installing import install_command
from specchat.models.words import _key
from specchat.remote.keys import find_key
from tests.remote.conftest import Chatting
from tests.remote.server import serving

needs_keyring = pytest.mark.skipif(find_spec("keyring") is None, reason="needs keyring: pip install keyring")
MODELS = {"data": [{"id": "m"}]}


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], str]:
    """The entries of a keyring of the test's own."""
    import keyring
    from keyring.backend import KeyringBackend

    entries: dict[tuple[str, str], str] = {}

    class Own(KeyringBackend):
        priority = 1.0  # type: ignore[assignment]

        def get_password(self, service: str, username: str) -> str | None:
            return entries.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None:
            entries[service, username] = password

        def delete_password(self, service: str, username: str) -> None:
            del entries[service, username]

    before = keyring.get_keyring()
    monkeypatch.setattr(keyring.core, "_keyring_backend", Own())
    assert keyring.get_keyring() is not before
    return entries


@needs_keyring
def test_the_keyrings_key_is_sent(stored: dict[tuple[str, str], str], chatting: Chatting) -> None:
    stored["specchat", "box"] = " from-keyring \n"
    with serving(v1__models=MODELS) as one:
        chatting.load(one.url, keyring="box")
        assert {call.headers["authorization"] for call in one.calls} == {"Bearer from-keyring"}


@needs_keyring
def test_the_environment_counts_first(stored: dict[tuple[str, str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    stored["specchat", "box"] = "from-keyring"
    server = Server("http://box", key_env="BOX_KEY", keyring="box")
    assert find_key(server) == "from-keyring"
    monkeypatch.setenv("BOX_KEY", "from-variable")
    assert find_key(server) == "from-variable"
    assert _key(server) == "the environment variable BOX_KEY, else box in the keyring"


@needs_keyring
def test_an_entry_that_is_not_there_is_told_and_none_is_shown(
    stored: dict[tuple[str, str], str], chatting: Chatting
) -> None:
    with serving(v1__models=MODELS) as one:
        event = chatting.tried(one.url, keyring="box")
        words = "The keyring has no key called box: keyring set specchat box stores it."
        assert event == Failed(None, "config", words)
        stored["specchat", "box"] = "se\ncret"
        event = chatting.tried(one.url, keyring="box")
        assert event == Failed(None, "config", "The entry box of the keyring holds no key.")
        assert one.calls == []
        stored["specchat", "box"] = "wrong"
        one.pages["/v1/models"] = lambda call: call.json({"error": {"message": "no"}}, "401 Unauthorized")
        event = chatting.tried(one.url, keyring="box")
        assert event == Failed(None, "config", f"{one.url} refuses the key in the keyring under box (401: no).")


@needs_keyring
def test_a_keyring_that_cannot_be_read_is_a_sentence(chatting: Chatting, monkeypatch: pytest.MonkeyPatch) -> None:
    import keyring
    from keyring.backends.fail import Keyring

    monkeypatch.setattr(keyring.core, "_keyring_backend", Keyring())
    with serving(v1__models=MODELS) as one:
        event = chatting.tried(one.url, keyring="box")
    assert isinstance(event, Failed)
    assert event.message.startswith("The keyring cannot be read (")
    assert event.message.endswith("Name a variable as key_env instead.")


def test_without_the_package_it_is_named(chatting: Chatting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with serving(v1__models=MODELS) as one:
        event = chatting.tried(one.url, keyring="box")
        assert isinstance(event, Failed)
        assert event.message.startswith(f'keyring = "box" needs the package keyring: {install_command("keyring")}')
        assert isinstance(chatting.tried(one.url), Loaded)
