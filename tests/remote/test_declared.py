"""Remote pairs in models.toml, in the lists of models, and where other commands meet them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specchat.config.catalog import load_catalog
from specchat.config.errors import ConfigError
from specchat.doctor.configuration import pairs
from specchat.engine.errors import ModelError
from specchat.engine.fetch.hub import locate
from specchat.engine.loading import load
from specchat.engine.protocol.options import Message
from specchat.engine.protocol.pair import ModelSource, Server, ServerKind
from specchat.engine.protocol.ranges import SAMPLING
from specchat.engine.protocol.requests import Generate
from specchat.models import words
from specchat.models.library import Library
from specchat.models.machine import FreeMemory
from specchat.models.offers import offers
from specchat.remote.kinds import DIALECTS
from specchat.service.settings import ChatSettings, Preferences, as_data, from_data
from specchat.tui.settings import FIELDS

HEAD = 'schema = 1\n[[pair]]\nid = "box"\nbackend = "remote"\n'


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def written(lines: str) -> Path:
        file = tmp_path / "models.toml"
        file.write_text(lines, "utf-8")
        return file

    return written


def test_all_keys_are_read(write: Callable[[str], Path]) -> None:
    lines = 'url = "https://box:8080/v1"\nkind = "vllm"\nmodel = "Qwen/Qwen3-8B"\n'
    lines += 'key_env = "BOX_KEY"\nkeyring = "box"\ntokenizer = "qwen"'
    file = write(HEAD + lines)
    pair = load_catalog(file).find("box")
    server = Server("https://box:8080/v1", "vllm", "Qwen/Qwen3-8B", "BOX_KEY", "box", str(file.parent / "qwen"))
    assert pair.spec.target == ModelSource(server=server)
    assert pair.strategy == "plain"
    assert pair.spec.target.label == "Qwen/Qwen3-8B at https://box:8080/v1"


def test_a_pair_names_the_one_that_does_not_draft(write: Callable[[str], Path]) -> None:
    other = '[[pair]]\nid = "slow"\nbackend = "remote"\nurl = "http://slow"\n'
    catalog = load_catalog(write(f'{HEAD}url = "http://box"\nplain = "slow"\n{other}'))
    server = catalog.find("box").spec.target.server
    assert server == Server("http://box", undrafted=Server("http://slow"))
    assert catalog.find("slow").plain == ""
    for name in ("slwo", "box", "demo"):
        with pytest.raises(ConfigError, match=f'plain = "{name}" is no other pair on a server'):
            load_catalog(write(f'{HEAD}url = "http://box"\nplain = "{name}"\n{other}'))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "pair[0].url (pair box) is missing."),
        ('url = "box:8080"', "pair[0].url (pair box) should be an address like http://127.0.0.1:8080, not 'box:8080'."),
        ('url = "file:///etc/passwd"', "should be an address like"),
        ('url = "http://"', "should be an address like"),
        ('url = "http://a b"', "should be an address like"),
        ('url = "http://[::1"', "should be an address like"),
        ('url = "http://box:99999"', "should be an address like"),
        ('url = "http://b\\u0000x"', "should be an address like"),
        ('url = "https://me:secret@box"', "a key in an address would be shown: put it into an environment variable"),
        ('url = "https://box?key=secret"', "an address ends with its path: leave out what follows ? or #."),
        ('url = "http://box"\nkind = "vlm"', """not 'vlm'. Did you mean "vllm"?"""),
        ('url = "http://box"\nkey_env = "sk-abc"', "should be the name of an environment variable, not 'sk-abc'."),
        ('url = "http://box"\nurk = 1', 'urk (pair box) is not a known key. Did you mean "url"?'),
        ('url = "http://box"\ntarget = { path = "x" }', 'target does not go with backend = "remote".'),
        ('url = "http://box"\ndraft = { path = "x" }', 'draft does not go with backend = "remote".'),
        ('url = "http://box"\nstrategy = "auto"', 'strategy "auto" cannot be used: the server drafts by itself'),
    ],
)
def test_mistakes_are_told_with_file_and_key(lines: str, message: str, write: Callable[[str], Path]) -> None:
    file = write(HEAD + lines)
    with pytest.raises(ConfigError) as error:
        load_catalog(file)
    assert error.value.message.startswith(f"{file}: pair[0]")
    assert message in error.value.message


def test_other_pairs_have_no_address(write: Callable[[str], Path]) -> None:
    with pytest.raises(ConfigError, match='url goes with backend = "remote" only'):
        load_catalog(write('schema = 1\n[[pair]]\nid = "x"\ntarget = { path = "x" }\nurl = "http://box"'))


@pytest.mark.parametrize("kind", [kind for kind in DIALECTS if kind != "triton"])
def test_sampling_that_nobody_set_is_the_servers(kind: ServerKind, write: Callable[[str], Path]) -> None:
    pair = load_catalog(write(f'{HEAD}url = "http://box"\n[pair.sampling]\ntop_p = 0.9')).find("box")
    settings = Preferences(seed=7).settings(pair)
    assert settings.usable
    assert settings.sampling.unset == tuple(name for name in SAMPLING if name != "top_p")
    dialect = DIALECTS[kind](Server("http://box"))

    def sent(settings: ChatSettings) -> dict[str, Any]:
        body = dialect.body(Generate(0, (Message("user", "Hi"),), settings.sampling_with(None)), "m")
        names = {dialect.options.get(name, name): name for name in SAMPLING}
        return {names[field]: value for field, value in body.items() if field in names}

    assert sent(settings) == {"top_p": 0.9}
    kept = from_data(json.loads(json.dumps(as_data(settings))))
    assert kept == settings
    for field, text in (("temperature", "0"), ("top_p", "1"), ("min_p", "")):
        settings = next(one for one in FIELDS if one.key == field).store(settings, text)
    assert sent(settings) == {"temperature": 0.0, "top_p": 1.0}


def test_lists_of_models_say_where_it_runs(write: Callable[[str], Path]) -> None:
    catalog = load_catalog(write(HEAD + 'url = "http://box"'))
    (offer,) = (o for o in offers(catalog, Library((), ()), FreeMemory(None, 0)) if o.pair.id == "box")
    assert (offer.fit.verdict, words.fits(offer), words.amount(offer), offer.missing) == ("server", "server", "", ())
    assert words.drafting(offer) == "the server's own"
    assert ("server", "http://box") in words.about(offer)
    assert offer.strategies == ("plain",)


def test_what_loads_pairs_here_refuses_it(write: Callable[[str], Path]) -> None:
    spec = load_catalog(write(HEAD + 'url = "http://box"')).find("box").spec
    with pytest.raises(ModelError) as error:
        load(spec, lambda _: None)
    assert error.value.message == 'Pair "box" runs on a server (http://box): chats use it, nothing else can.'
    with pytest.raises(ModelError) as error:
        locate(spec.target, lambda _: None)
    assert error.value.message == "http://box is a model on a server: it has no files here."


def test_the_doctor_says_which_run_on_servers_and_lack_a_key(write: Callable[[str], Path]) -> None:
    file = write(HEAD + 'url = "http://box"\nkey_env = "BOX_KEY"')
    catalog = load_catalog(file)
    found = pairs(catalog, file, {"BOX_KEY": "secret"})
    assert (found.status, "and box runs on a server; with those of" in found.text) == ("ok", True)
    found = pairs(catalog, file, {})
    assert found.status == "note"
    assert found.text.endswith("Pair box cannot be loaded: its key_env BOX_KEY is not set.")
