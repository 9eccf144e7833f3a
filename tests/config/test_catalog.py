"""A user's models.toml: what it adds, and how its mistakes are reported."""

from pathlib import Path

import pytest

from specchat.config.catalog import Catalog, Pair, Requires, folder_source, load_catalog, local_pair
from specchat.config.errors import ConfigError
from specchat.config.paths import demo_model
from specchat.engine.backends import BACKENDS, REMOTE_BACKEND
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.pair import QUANTS, GgufOptions, ModelSource, PairSpec
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import SkippedLayers
from tests.config.conftest import Write

FULL = """
    schema = 1
    default = "second"
    [[pair]]
    id = "first"
    aliases = ["one"]
    name = "First"
    target = { path = "models/target", device = "cpu", quant = "fp4" }
    draft = { repo = "a/b", revision = "abc", device = "cuda", activations = "float32", head = "int8" }
    draft_vocabulary = "first.json"
    cache = "int8"
    activations = "int8"
    head = "int8"
    exit_layer = 4
    exit = { path = "adapter" }
    skip = { attention = [2, 4], mlp = [3] }
    template = { enable_thinking = false, reasoning_effort = "low" }
    context = 512
    strategy = "lookup"
    acceptance = "ratio"
    [pair.strategies.lookup]
    length = 7
    [pair.strategies.draft]
    length = 3
    [pair.requires]
    vram_gib = 4
    [pair.sampling]
    temperature = 0.7
    top_k = 5
    [[pair]]
    id = "second"
    target = { path = "/absolute" }
    context = "auto"
"""


def local(*folders: Path) -> Pair:
    """The pair that `--target` and `--draft` name."""
    target, draft = (*map(folder_source, folders), None)[:2]
    assert target is not None
    return local_pair(target, draft)


HEAD = """
    schema = 1
    [[pair]]
    id = "mine"
"""


def test_all_keys_arrive(write: Write, tmp_path: Path) -> None:
    catalog = load_catalog(write("models.toml", FULL))
    pair = catalog.find("one")
    assert pair.spec == PairSpec(
        id="first",
        name="First",
        target=ModelSource(path=str(tmp_path / "models" / "target"), quant="fp4", device="cpu"),
        draft=ModelSource(repo="a/b", revision="abc", device="cuda", activations="float32", head="int8"),
        context=512,
        draft_vocabulary=str(tmp_path / "first.json"),
        cache="int8",
        activations="int8",
        head="int8",
        exit_layer=4,
        exit=str(tmp_path / "adapter"),
        skip=SkippedLayers((2, 4), (3,)),
        template={"enable_thinking": False, "reasoning_effort": "low"},
    )
    assert (pair.strategy, pair.draft_length, pair.acceptance) == ("lookup", 7, "ratio")
    assert pair.lengths == {"lookup": 7, "draft": 3}
    assert pair.sampling == Sampling(temperature=0.7, top_k=5)
    assert pair.requires == Requires(vram_gib=4)
    assert pair.unsupported == ""


def test_what_is_left_out_has_defaults(write: Write) -> None:
    pair = load_catalog(write("models.toml", FULL)).find("second")
    assert (pair.name, pair.strategy, pair.draft_length, pair.acceptance) == ("second", "auto", None, "coupled")
    assert pair.spec.target == ModelSource(path="/absolute")
    assert pair.sampling == Sampling()


def test_a_context_as_long_as_fits_is_auto(write: Write) -> None:
    spec = load_catalog(write("models.toml", FULL)).find("second").spec
    assert (spec.context, spec.long_context) == (None, True)


def test_own_pairs_are_added_to_the_shipped_ones(write: Write) -> None:
    shipped = load_catalog(None)
    catalog = load_catalog(write("models.toml", FULL))
    assert [pair.id for pair in catalog.pairs] == [pair.id for pair in shipped.pairs] + ["first", "second"]
    assert (shipped.default, catalog.default) == ("demo", "second")


def test_an_own_pair_replaces_a_shipped_one_in_its_place(write: Write) -> None:
    catalog = load_catalog(write("models.toml", 'schema = 1\n[[pair]]\nid = "demo"\ntarget = { path = "x" }\n'))
    assert catalog.pairs[0].spec.draft is None
    assert len(catalog.pairs) == len(load_catalog(None).pairs)
    assert catalog.default == "demo"


def test_an_own_alias_is_taken_from_the_shipped_pair(write: Write) -> None:
    assert load_catalog(None).find("coder").id == "qwen2.5-coder-7b"
    catalog = load_catalog(write("models.toml", HEAD + '    aliases = ["coder"]\n    target = { path = "x" }\n'))
    assert catalog.find("coder").id == "mine"


def test_the_default_may_be_an_alias(write: Write) -> None:
    assert load_catalog(write("models.toml", 'schema = 1\ndefault = "coder"\n')).default == "qwen2.5-coder-7b"


def test_a_home_folder_is_expanded(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    pair = load_catalog(write("models.toml", HEAD + '    target = { path = "~/t" }\n')).find("mine")
    assert pair.spec.target.path == "/home/me/t"


def test_heads_are_found_as_models_are(write: Write) -> None:
    lines = """
    target = { path = "x" }
    strategy = "eagle3-tree"
    [pair.heads]
    medusa = { path = "h" }
    dflash = { builtin = "dflash" }
    eagle3 = { repo = "a/b", revision = "v1" }"""
    file = write("models.toml", HEAD + lines)
    assert load_catalog(file).find("mine").spec.heads == {
        "medusa": ModelSource(path=str(file.parent / "h")),
        "dflash": ModelSource(path=str(demo_model("dflash"))),
        "eagle3": ModelSource(repo="a/b", revision="v1"),
    }


def test_what_the_target_may_bring_along_need_not_be_named(write: Write) -> None:
    lines = 'target = { path = "x" }\n    strategy = "mtp"\n'
    assert load_catalog(write("models.toml", HEAD + lines)).find("mine").strategy == "mtp"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('heads.medusaa = { path = "h" }', 'Did you mean "medusa"?'),
        ('heads.medusa = { path = "h", repo = "a/b" }', "give one of repo, path and builtin."),
        ("heads.medusa = {}", "give one of repo, path and builtin."),
        ('heads.medusa = { path = "h", revision = "v1" }', "revision goes with repo only."),
        ('heads.medusa = { path = "h", quant = "nf4" }', "medusa.quant (pair mine) is not a known key"),
        ('strategy = "eagle2"', 'strategy "eagle2" cannot be used: this pair has no such heads; [pair.heads]'),
    ],
)
def test_mistakes_about_heads_are_reported(lines: str, words: str, write: Write) -> None:
    with pytest.raises(ConfigError) as error:
        load_catalog(write("models.toml", HEAD + f'    target = {{ path = "x" }}\n    {lines}'))
    assert words in error.value.message


def test_every_backend_that_exists_may_be_named(write: Write) -> None:
    for name in BACKENDS:
        place = 'url = "http://127.0.0.1:8080"' if name == REMOTE_BACKEND else 'target = { path = "x" }'
        lines = f'    {place}\n    backend = "{name}"'
        assert load_catalog(write("models.toml", HEAD + lines)).find("mine").spec.backend == name


def test_how_llama_cpp_runs_a_file_is_said_of_each_model(write: Write) -> None:
    lines = """    backend = "gguf"
    target = { repo = "a/b", file = "x-Q4_K_M.gguf", gpu_layers = 20, cache = "q8_0", flash_attention = true }
    draft = { path = "y.gguf", threads = 2 }"""
    file = write("models.toml", HEAD + lines)
    spec = load_catalog(file).find("mine").spec
    assert spec.target == ModelSource(
        repo="a/b", file="x-Q4_K_M.gguf", gguf=GgufOptions(gpu_layers=20, cache="q8_0", flash_attention=True)
    )
    assert spec.draft == ModelSource(path=str(file.parent / "y.gguf"), gguf=GgufOptions(threads=2))
    assert spec.backend == "gguf"
    assert spec.target.label == "a/b/x-Q4_K_M.gguf"


def test_a_gguf_file_on_the_command_line_needs_no_backend(tmp_path: Path) -> None:
    assert local(tmp_path / "x.GGUF").spec.backend == "native"
    assert local(tmp_path / "x").spec.backend == "native"


def test_quantised_weights_and_devices_are_no_hindrance(write: Write) -> None:
    for quant in QUANTS:
        lines = f'    target = {{ path = "x", quant = "{quant}", device = "cuda" }}'
        assert load_catalog(write("models.toml", HEAD + lines)).find("mine").unsupported == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("schema = 2\n", "schema should be 1, not 2"),
        ("", "schema is missing. Begin the file with the line schema = 1."),
        ('schema = 1\ndefualt = "demo"\n', 'defualt is not a known key. Did you mean "default"?'),
        (HEAD, "pair[0].target (pair mine) is missing"),
        (
            HEAD + '    target = { repoo = "a/b" }',
            'pair[0].target.repoo (pair mine) is not a known key. Did you mean "repo"?',
        ),
        (HEAD + "    target = {}", "pair[0].target (pair mine): give one of repo, path and builtin"),
        (HEAD + '    target = { repo = "a/b", path = "x" }', "give one of repo, path and builtin"),
        (HEAD + '    target = { path = "x", revision = "y" }', "revision goes with repo only"),
        (HEAD + '    target = { repo = "qwen" }', "pair[0].target.repo (pair mine) should be OWNER/NAME"),
        (HEAD + '    target = { path = "" }', "target.path (pair mine) should have at least 1 character"),
        (HEAD + '    target = { path = "x", quant = "nf5" }', "not 'nf5'. Did you mean \"nf4\"?"),
        (HEAD + '    target = { path = "x", device = "gpu" }', "not 'gpu'"),
        (HEAD + '    target = { path = "x" }\n    backend = "Native"', 'Did you mean "native"?'),
        (
            HEAD + '    target = { path = "x" }\n    backend = "mlx"',
            'pair[0].backend (pair mine): there is no backend "mlx" (native, gguf, hf, remote).',
        ),
        (
            HEAD + '    target = { path = "x.gguf" }\n    backend = "hf"',
            'a .gguf file runs without a backend or with backend = "gguf"',
        ),
        (HEAD + '    target = { repo = "a/b" }\n    backend = "gguf"', "backend gguf needs a .gguf file as its target"),
        (
            HEAD + '    target = { path = "x" }\n    draft = { path = "y.gguf" }\n    backend = "hf"',
            "a .gguf file runs without a backend",
        ),
        (HEAD + '    target = { path = "x", threads = 2 }', 'threads goes with backend = "gguf" only'),
        (HEAD + '    target = { path = "x.gguf", quant = "nf4" }', "a .gguf file is quantised when it is made"),
        (HEAD + '    target = { path = "x", file = "y.gguf" }', "file goes with repo only"),
        (HEAD + '    target = { repo = "a/b", file = "sub/y.gguf" }', "at the top of a repository"),
        (HEAD + '    target = { repo = "a/b", file = "y.bin" }', '"y.bin" is no name of a .gguf file'),
        (
            HEAD + '    backend = "gguf"\n    target = { path = "x.gguf", cache = "q8_0" }',
            'cache = "q8_0" needs flash_attention = true',
        ),
        (HEAD + '    target = { path = "x.gguf", cache = "q4" }', "not 'q4'"),
        (
            HEAD + '    target = { path = "x" }\n    strategy = "lokup"',
            f'no strategy "lokup" ({", ".join(STRATEGIES)})',
        ),
        (
            HEAD + '    target = { path = "x" }\n    strategy = "draft"',
            "cannot be used: this pair has no draft model",
        ),
        (HEAD + '    target = { path = "x" }\n    template = { "a b" = 1 }', "template"),
        (HEAD + '    target = { path = "x" }\n    exit_layer = 0', "greater than or equal to 1, not 0"),
        (HEAD + '    target = { path = "x" }\n    backend = "hf"\n    exit_layer = 2', "exit_layer goes with backend"),
        (HEAD + '    target = { path = "x" }\n    backend = "hf"\n    cache = "int8"', "cache goes with backend"),
        (HEAD + '    target = { path = "x" }\n    cache = "int4"', 'must be "int8"'),
        (
            HEAD + '    target = { path = "x" }\n    backend = "hf"\n    activations = "int8"',
            "activations goes with backend",
        ),
        (HEAD + '    target = { path = "x", head = "int8" }\n    backend = "hf"', "head goes with backend"),
        (HEAD + '    target = { path = "x" }\n    activations = "fp8"', 'must be "float32", "int8" or "bfloat16"'),
        (HEAD + '    target = { path = "x", head = "int4" }', 'must be "int8"'),
        (HEAD + '    target = { path = "x" }\n    backend = "hf"\n    skip = { mlp = [1] }', "skip goes with backend"),
        (HEAD + '    target = { path = "x" }\n    skip = { mlp = [-1] }', "greater than or equal to 0, not -1"),
        (HEAD + '    target = { path = "x" }\n    skip = { head = [1] }', "skip.head"),
        (HEAD + '    target = { path = "x" }\n    strategies.lokup.length = 3', 'Did you mean "lookup"?'),
        (HEAD + '    target = { path = "x" }\n    strategies.draft.len = 3', 'Did you mean "length"?'),
        (HEAD + '    target = { path = "x" }\n    strategies.draft.length = 16', "less than or equal to 15, not 16"),
        (HEAD + '    target = { path = "x" }\n    strategies.draft.length = "4"', "a valid integer, not '4'"),
        (HEAD + '    target = { path = "x" }\n    requires.vram = 3', 'Did you mean "vram_gib"?'),
        (HEAD + '    target = { path = "x" }\n    requires.vram_gib = nan', "pair[0].requires.vram_gib (pair mine)"),
        (HEAD + '    target = { path = "x" }\n    sampling.temprature = 1', 'Did you mean "temperature"?'),
        (HEAD + '    target = { path = "x" }\n    sampling.temperature = nan', "a finite number"),
        (HEAD + '    target = { path = "x" }\n    sampling.top_p = 0', "greater than 0"),
        (HEAD + '    target = { path = "x" }\n    context = 15', 'tokens, 16 or more, or "auto", not 15.'),
        (HEAD + '    target = { path = "x" }\n    context = "many"', "or \"auto\", not 'many'."),
        (HEAD + '    target = { path = "x" }\n    backend = "hf"\n    context = "auto"', '"auto" goes with backend'),
        (
            'schema = 1\n[[pair]]\nid = "a b"\ntarget = { path = "x" }',
            "pair[0].id (pair a b) should be letters and digits",
        ),
        ('schema = 1\ndefault = "dmeo"\n', 'default: there is no [[pair]] "dmeo". Did you mean "demo"?'),
        (
            'schema = 1\ndefault = "me/XYZ"\n',
            'default: there is no [[pair]] "me/XYZ". A model that was found is named by pair in config.toml.',
        ),
        ("schema = 1\npair = 3\n", "pair should be a list in [ ], not 3"),
        ('schema = 1\n[pair]\nid = "x"\n', "pair should be a list of tables: write [[pair]], in double brackets."),
        (HEAD + '    target = "x"', "target (pair mine) should be a table, not 'x'."),
        ("schema = 1\n[[pair]\n", "line 2"),
    ],
)
def test_mistakes_are_told_with_file_key_and_nearest(write: Write, text: str, words: str) -> None:
    path = write("models.toml", text)
    with pytest.raises(ConfigError) as caught:
        load_catalog(path)
    assert str(path) in caught.value.message
    assert words in caught.value.message
    assert "\n" not in caught.value.message


def test_every_mistake_is_reported(write: Write) -> None:
    path = write("models.toml", 'schema = 1\n[[pair]]\nid = "a"\ntarget = { pth = "x" }\nbackend = 3\n')
    with pytest.raises(ConfigError, match=r"pair\[0\]\.backend.*pair\[0\]\.target\.pth"):
        load_catalog(path)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ('id = "mine"', 'the name "mine" is used twice'),
        ('id = "b"\naliases = ["demo"]', 'the name "demo" is used twice'),
    ],
)
def test_a_name_used_twice_is_refused(write: Write, second: str, words: str) -> None:
    text = f'schema = 1\n[[pair]]\nid = "mine"\ntarget.path = "x"\n[[pair]]\n{second}\ntarget.path = "x"\n'
    with pytest.raises(ConfigError, match=words):
        load_catalog(write("models.toml", text))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml does not exist"):
        load_catalog(tmp_path / "nowhere.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_catalog(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"schema = 1 # \xe9\n")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        load_catalog(tmp_path / "latin.toml")


def test_an_unknown_pair_is_told_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r'There is no pair "Qwen3-8". Did you mean "qwen3-8b"\?'):
        load_catalog(None).find("Qwen3-8")
    with pytest.raises(ConfigError, match=r'There is no pair "x"\. "specchat models" lists them'):
        Catalog((), "").find("x")


def test_a_pair_of_two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pair = local(Path("big"), Path("small"))
    assert pair.spec.target.path == str(tmp_path / "big")
    assert (pair.name, pair.strategy) == ("big + small", "auto")
    assert local(Path("big")).spec.draft is None


def test_the_id_of_a_folder_is_its_own_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one, other = Path("a") / "Big model", Path("b") / "Big model"
    ids = [local(*folders).id for folders in ((one,), (other,), (one, other), (other, one))]
    assert len(set(ids)) == 4
    assert all(id_.startswith("local-big-model-") for id_ in ids)
    assert local(tmp_path / "b" / ".." / one).id == ids[0]
    assert local(Path("/")).id.startswith("local-")


def test_a_folder_in_the_home_of_nobody_is_left_as_it_is_written(write: Write, tmp_path: Path) -> None:
    pair = load_catalog(write("models.toml", HEAD + '    target = { path = "~nobody-here/t" }\n')).find("mine")
    assert pair.spec.target.path == str(tmp_path / "~nobody-here" / "t")
    assert local(Path("~nobody-here")).spec.target.path == str(Path("~nobody-here").absolute())
