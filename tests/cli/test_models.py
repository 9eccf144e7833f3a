"""`specchat models` and its commands, against a hub on loopback."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, perf_counter, sleep

import pytest
from rich.cells import cell_len

from specchat.cli.exit_codes import ExitCode
from specchat.cli.prepare import prepare
from specchat.cli.wishes import Wishes
from specchat.config.catalog import load_catalog
from specchat.config.errors import ConfigError
from specchat.engine.errors import EngineError
from specchat.engine.fetch.source import Hub
from specchat.models import machine
from specchat.models.search import PATIENCE_S, search
from tests.cli.conftest import BIG, OTHER, SMALL, Run, configure, own
from tests.engine.tiny import SPECIAL, checkpoint
from tests.hub.server import LoopbackHub, sha256
from tests.models.made import gguf

pytestmark = pytest.mark.usefixtures("hub")


def test_a_pull_asks_first_and_says_how_much_and_where(run: Run, hub: LoopbackHub, tmp_path: Path) -> None:
    refused = run("models", "pull", BIG)
    assert refused.exit_code == ExitCode.USAGE
    size = sum(map(len, hub.repos[BIG].values()))
    assert f"{BIG}: {size / 1e6:.1f} MB to download." in refused.stderr
    assert f"It goes to {tmp_path / 'cache'}, where " in refused.stderr
    assert "Licence: apache-2.0." in refused.stderr
    assert "Add --yes to agree." in refused.stderr
    assert "model.safetensors" not in hub.sent
    pulled = run("models", "pull", BIG, "--yes")
    assert pulled.exit_code == 0, pulled.stderr
    folder = Path(pulled.stdout.strip())
    assert (folder / "model.safetensors").read_bytes() == hub.repos[BIG]["model.safetensors"]
    again = run("models", "pull", BIG)
    assert again.stdout == f"{BIG} is all here.\n"


def test_a_package_that_is_missing_is_told_before_a_download(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = f'target = {{ repo = "{BIG}", quant = "nf4" }}'
    configure(home, models=f'schema = 1\n[[pair]]\nid = "four-bits"\n{target}\n')
    for missing in (True, False):
        monkeypatch.setattr(machine, "missing_packages", lambda missing=missing: {"bitsandbytes"} if missing else set())
        told = run("models", "pull", "four-bits").stderr
        assert ("Before it can be loaded, it needs bitsandbytes for its quant: " in told) == missing


def test_a_gated_model_is_told_before_it_is_asked_for(run: Run, hub: LoopbackHub) -> None:
    hub.gated = True
    assert f"{BIG} is gated: its terms must be accepted at 127.0.0.1" in run("models", "pull", BIG).stderr


def test_failures_end_with_their_exit_code(run: Run, hub: LoopbackHub) -> None:
    assert run("models", "pull", "someone/none", "--yes").exit_code == ExitCode.DOWNLOAD
    hub.repos["someone/pickled"] = {"config.json": b"{}", "pytorch_model.bin": b"x"}
    result = run("models", "pull", "someone/pickled", "--yes")
    assert result.exit_code == ExitCode.UNUSABLE
    assert "it has .bin files, which are not read" in result.stderr
    hub.status = 429
    result = run("models", "pull", BIG, "--yes")
    assert result.exit_code == ExitCode.DOWNLOAD
    assert "was asked too often" in result.stderr


def test_a_pair_is_added_checked_and_comments_stay(run: Run, hub: LoopbackHub, home: Path) -> None:
    configure(
        home, models='# mine\nschema = 1 # the version\n\n[[pair]] # first\nid = "a"\ntarget = { path = "x" } # here\n'
    )
    result = run("models", "add", BIG, "--draft", SMALL)
    assert result.exit_code == 0, result.stderr
    text = own(home).read_text()
    assert text.startswith(
        '# mine\nschema = 1 # the version\n\n[[pair]] # first\nid = "a"\ntarget = { path = "x" } # here\n'
    )
    pair = load_catalog(own(home)).find("big")
    assert (pair.spec.target.repo, pair.spec.draft and pair.spec.draft.repo) == (BIG, SMALL)
    assert (pair.name, pair.licence) == ("big + small", "apache-2.0")
    assert "specchat models pull big downloads it." in result.stdout
    assert "model.safetensors" not in hub.sent
    assert run("models", "add", BIG).exit_code == 0
    assert load_catalog(own(home)).find("big-2").spec.draft is None
    again = run("models", "add", BIG)
    assert (again.exit_code, again.stderr[:40]) == (ExitCode.UNUSABLE, "Error: Pair big-2 has these models alrea")
    assert run("models", "add", BIG, "--id", "third").exit_code == 0


def test_a_draft_with_other_tokens_is_added_with_what_it_costs(run: Run, home: Path) -> None:
    result = run("models", "add", BIG, "--draft", OTHER)
    assert result.exit_code == 0
    assert f"{OTHER.split('/')[1]} drafts, but its tokens are others, so that fewer of its drafts" in result.stdout
    draft = load_catalog(own(home)).find("big").spec.draft
    assert draft is not None
    assert draft.repo == OTHER


def test_an_architecture_that_transformers_runs_is_added_for_that(run: Run, tmp_path: Path, home: Path) -> None:
    folder = checkpoint(tmp_path / "gemma")
    (folder / "config.json").write_text('{"model_type": "gemma3"}')
    assert run("models", "add", str(folder)).exit_code == 0
    assert load_catalog(own(home)).find("gemma").spec.backend == "hf"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ('{"model_type": "gpt9"}', "does not know model_type 'gpt9'. A newer one may"),
        ('{"model_type": "llama"}', "config.json"),
    ],
    ids=["nothing runs it", "damaged"],
)
def test_settings_of_no_model_are_refused(settings: str, words: str, run: Run, tmp_path: Path, home: Path) -> None:
    folder = checkpoint(tmp_path / "new")
    (folder / "config.json").write_text(settings)
    result = run("models", "add", str(folder))
    assert result.exit_code == ExitCode.UNUSABLE
    assert words in result.stderr
    assert not own(home).exists()


def test_a_file_of_a_checkpoint_is_met_with_its_folder(run: Run, tmp_path: Path, home: Path) -> None:
    folder = checkpoint(tmp_path / "big")
    result = run("models", "add", str(folder / "model.safetensors"))
    assert result.exit_code == ExitCode.UNUSABLE
    assert f"model.safetensors is a file of a checkpoint. Give the folder, {folder}." in result.stderr
    assert not own(home).exists()


def test_columns_stand_below_each_other_whatever_the_script_of_a_name(run: Run, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "Dürer モデル 🦊")
    assert 'id = "durer"' in run("models", "add", str(folder)).stdout
    head, *rows = run("models", "list").stdout.splitlines()
    (row,) = (row for row in rows if row.strip().startswith("durer "))
    assert cell_len(row[: row.index("CPU")]) == head.index("fits")


def test_weights_that_are_cut_short_are_refused(run: Run, tmp_path: Path, home: Path) -> None:
    folder = checkpoint(tmp_path / "cut", num_hidden_layers=1)
    weights = folder / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 1)
    result = run("models", "add", str(folder))
    assert result.exit_code == ExitCode.UNUSABLE
    assert f"{weights} is cut short: not all of its weights are there. Download it again." in result.stderr
    weights.unlink()
    assert run("models", "add", str(folder)).exit_code == ExitCode.UNUSABLE
    assert not own(home).exists()


def test_a_draft_as_large_as_its_target_is_added_with_what_it_costs(run: Run, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", num_hidden_layers=1)
    result = run("models", "add", str(folder), "--draft", str(folder))
    assert result.exit_code == 0
    assert "m drafts, but it is too large (1.0x this model's size)" in result.stdout


def test_a_folder_of_files_and_checkpoints_is_not_guessed_at(run: Run, tmp_path: Path) -> None:
    gguf(tmp_path / "all" / "small.gguf")
    checkpoint(tmp_path / "all" / "big", num_hidden_layers=1)
    result = run("models", "add", str(tmp_path / "all"))
    assert result.exit_code == ExitCode.UNUSABLE
    assert "has GGUF files and checkpoints: small.gguf, big. Give the path of one." in result.stderr


def test_a_folder_is_added_by_its_full_path_and_drafts_are_proposed(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "models"
    checkpoint(root / "big", num_hidden_layers=12)
    checkpoint(root / "small", num_hidden_layers=1)
    checkpoint(root / "other", num_hidden_layers=1, special=[*SPECIAL[:-1], "<|else|>"])
    configure(home, config=f'model_folders = ["{root}"]\n')
    monkeypatch.chdir(root)
    result = run("models", "add", "big")
    assert result.exit_code == 0, result.stderr
    assert load_catalog(own(home)).find("big").spec.target.path == str(root / "big")
    assert f"small could draft for it: --draft {root / 'small'}" in result.stdout
    assert "other could draft for it, but its tokens are others, so that fewer of its drafts are kept" in result.stdout


def test_a_mistake_in_the_users_file_is_told_and_the_file_left(run: Run, home: Path) -> None:
    configure(home, models="schema = 1\n[[pair]]\nid = 3\n")
    before = own(home).read_bytes()
    result = run("models", "add", BIG)
    assert result.exit_code == ExitCode.UNUSABLE
    assert own(home).read_bytes() == before
    assert [path.name for path in own(home).parent.iterdir()] == ["models.toml"]


@pytest.mark.parametrize("id_", ["mine", "no good"])
def test_a_pair_that_the_file_cannot_have_is_not_written(run: Run, home: Path, id_: str) -> None:
    configure(home, models='schema = 1\n[[pair]]\nid = "mine"\ntarget = { path = "x" }\n')
    before = own(home).read_bytes()
    result = run("models", "add", BIG, "--id", id_)
    assert result.exit_code == ExitCode.UNUSABLE
    assert str(own(home)) in result.stderr
    assert ".new" not in result.stderr
    assert own(home).read_bytes() == before
    assert [path.name for path in own(home).parent.iterdir()] == ["models.toml"]


def test_removing_asks_says_what_it_frees_and_keeps_what_others_need(
    run: Run, hub: LoopbackHub, home: Path, tmp_path: Path
) -> None:
    for arguments in (("add", BIG, "--draft", SMALL), ("add", OTHER)):
        assert run("models", *arguments).exit_code == 0
    run("models", "add", SMALL, "--id", "mini")
    for repo in (BIG, SMALL):
        assert run("models", "pull", repo, "--yes").exit_code == 0
    refused = run("models", "rm", "big")
    assert refused.exit_code == ExitCode.USAGE
    assert "Add --yes" in refused.stderr
    assert (tmp_path / "cache" / "models--someone--big").exists()
    before = sum(path.stat().st_size for path in (tmp_path / "cache").rglob("blobs/*"))
    removed = run("models", "rm", "big", "--yes")
    assert removed.exit_code == 0, removed.stderr
    assert "someone/small stays: small uses it." in removed.stderr
    assert "are free again" in removed.stdout
    assert not (tmp_path / "cache" / "models--someone--big").exists()
    left = sum(path.stat().st_size for path in (tmp_path / "cache").rglob("blobs/*"))
    assert before - left == sum(map(len, hub.repos[BIG].values()))
    assert "big" not in [pair.id for pair in load_catalog(own(home)).pairs]
    assert run("models", "rm", "someone/none", "--yes").exit_code == ExitCode.USAGE


def test_other_programs_models_are_not_deleted(run: Run, tmp_path: Path) -> None:
    file = gguf(tmp_path / "user" / ".lmstudio" / "models" / "maker" / "tiny" / "m.gguf")
    result = run("models", "rm", "maker/tiny/m.gguf", "--yes")
    assert result.exit_code == ExitCode.USAGE
    assert "It is kept by LM Studio: delete it there." in result.stderr
    assert file.exists()


def test_the_list_tells_size_fit_strategies_and_licence(run: Run, tmp_path: Path) -> None:
    gguf(tmp_path / "user" / ".lmstudio" / "models" / "maker" / "tiny" / "m.gguf")
    rows = run("models", "list").stdout.splitlines()
    assert rows[0].split() == ["id", "name", "size", "fits", "plain", "strategies", "licence"]
    assert rows[1].split()[:2] == ["*", "demo"]
    listed = json.loads(run("models", "list", "--json").stdout)
    by_id = {model["id"]: model for model in listed["models"]}
    assert by_id["demo"]["missing"] == []
    assert by_id["qwen3-8b"]["missing"] == ["Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B"]
    assert by_id["maker-tiny-m.gguf"]["format"] == "GGUF"
    assert not by_id["maker-tiny-m.gguf"]["declared"]
    order = [(bool(model["missing"]), model["fits"]) for model in listed["models"]]
    assert order == sorted(order, key=lambda row: (row[0], {"GPU": 0, "CPU": 0, "?": 1, "no": 2}[row[1]]))


def test_a_pair_a_found_model_and_a_repository_are_shown(run: Run) -> None:
    shown = run("models", "show", "demo").stdout
    assert "strategies    plain, auto, cascade, draft" in shown
    assert "licence       apache-2.0" in shown
    assert "turn end      <|end|>" in shown
    assert "system prompt has a role of its own" in shown
    assert json.loads(run("models", "show", "demo", "--json").stdout)["template"]["turn end"] == "<|end|>"
    repo = run("models", "show", BIG).stdout
    assert repo.startswith(f"{BIG}: ")
    assert "model.safetensors" in repo
    assert run("models", "show", "nothing").exit_code == ExitCode.USAGE


def test_a_model_is_shown_by_its_path(run: Run, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "mine")
    shown = run("models", "show", str(folder)).stdout
    assert "name          mine" in shown
    assert f"target        {folder}" in shown
    assert json.loads(run("models", "show", str(folder), "--json").stdout)["architecture"] == "llama"
    (folder / "config.json").unlink()
    result = run("models", "show", str(folder))
    assert result.exit_code == ExitCode.UNUSABLE
    assert "config.json is missing" in result.stderr


def test_models_are_found_on_the_hub(run: Run) -> None:
    (hit,) = json.loads(run("models", "find", "small", "--json").stdout)
    assert (hit["repo"], hit["format"], hit["file"]) == (SMALL, "safetensors", "")
    assert hit["size"] > 100_000
    assert SMALL in run("models", "find", "small").stdout
    assert run("models", "find", "no", "such").exit_code == ExitCode.DOWNLOAD


def test_downloads_of_one_model_are_one_row_and_named_by_show(run: Run) -> None:
    rows = [row.split()[0] for row in run("models").stdout.splitlines()]
    assert "qwen3-8b-gguf" in rows
    assert "qwen3-8b" not in rows
    listed = {model["id"]: model for model in json.loads(run("models", "--json").stdout)["models"]}
    assert listed["qwen3-8b-gguf"]["variant_of"] == "qwen3-8b"
    assert listed["qwen3-8b"]["variant_of"] is None
    shown = run("models", "show", "qwen3-8b").stdout
    assert "or            qwen3-8b-gguf, download 5.7 GB" in shown


def test_a_search_that_nobody_answers_ends_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hub = Hub("http://127.0.0.1:9", tmp_path)
    started = perf_counter()
    with pytest.raises(EngineError, match="No connection to 127"):
        search(hub, "qwen")
    assert perf_counter() - started < PATIENCE_S
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(EngineError, match="HF_HUB_OFFLINE keeps 127"):
        search(hub, "qwen")


def test_ctrl_c_stops_a_pull_and_the_same_command_goes_on(hub: LoopbackHub, tmp_path: Path) -> None:
    hub.stalls.set()
    environment = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HUB_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "specchat", "models", "pull", BIG, "--yes"]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    running = start()
    weights = hub.repos[BIG]["model.safetensors"]
    part = Hub(hub.endpoint, tmp_path / "cache").partial(BIG, sha256(weights))
    until = monotonic() + 60
    while not part.exists() or part.stat().st_size < 200_000:
        assert monotonic() < until, "nothing came"
        sleep(0.01)
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=300)
    assert running.returncode == ExitCode.INTERRUPTED
    assert told.endswith("Stopped. The same command goes on where it was.\n")
    hub.stalls.clear()
    hub.sent = {}
    again = start()
    folder, told = again.communicate(timeout=300)
    assert again.returncode == 0, told
    assert "in all; the rest is here" in told
    assert (Path(folder.strip()) / "model.safetensors").read_bytes() == weights
    assert hub.sent["model.safetensors"] < len(weights) - 100_000


def test_a_first_download_that_was_stopped_is_told_and_can_be_deleted(
    run: Run, hub: LoopbackHub, tmp_path: Path
) -> None:
    cache = Hub(hub.endpoint, tmp_path / "cache")
    part = cache.partial("someone/large", "a" * 64)
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(5_000_000))
    listed = run("models", "list")
    assert "someone/large is here in part: models pull someone/large goes on with it" in listed.stderr
    assert "Snapshots dir" not in listed.stderr
    removed = run("models", "rm", "someone/large", "--yes")
    assert removed.exit_code == 0, removed.stderr
    assert "5.0 MB are free again" in removed.stdout
    assert not cache.folder("someone/large").exists()


def test_an_unknown_pair_is_met_with_the_nearest(run: Run) -> None:
    result = run("models", "show", "qwen3-08b")
    assert result.exit_code == ExitCode.USAGE
    assert 'There is no pair, model or path "qwen3-08b" here. Did you mean "qwen3-8b"?' in result.stderr


def test_a_model_that_was_found_is_used_by_the_id_that_is_listed(run: Run, tmp_path: Path) -> None:
    file = gguf(tmp_path / "user" / ".lmstudio" / "models" / "maker" / "Tiny GGUF" / "m.gguf")
    listed = [line.split()[0] for line in run("models", "list").stdout.splitlines()]
    assert "maker-Tiny-GGUF-m.gguf" in listed
    pair = prepare(Wishes(pair="maker-Tiny-GGUF-m.gguf")).pair
    assert (pair.spec.target.path, pair.spec.backend) == (str(file), "gguf")
    added = run("models", "add", "maker-Tiny-GGUF-m.gguf")
    assert added.exit_code == 0, added.stderr
    assert str(file) in added.stdout
    with pytest.raises(ConfigError, match='There is no pair "maker-Tiny"'):
        prepare(Wishes(pair="maker-Tiny"))


def test_a_pair_whose_files_stay_frees_nothing(run: Run, tmp_path: Path) -> None:
    assert run("models", "add", str(checkpoint(tmp_path / "mine"))).exit_code == 0
    removed = run("models", "rm", "mine", "--yes")
    assert (removed.exit_code, removed.stdout.split(" in ")[0]) == (0, "Deleted pair mine")
    assert "free" not in removed.stdout
    assert (tmp_path / "mine" / "config.json").exists()
