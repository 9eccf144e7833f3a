"""What `specchat serve-command` writes, read by the parsers of its formats and as specchat's own configuration."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from specchat.cli.exit_codes import ExitCode
from specchat.config.catalog import load_catalog
from specchat.config.paths import demo_model
from specchat.serve_command.engines import ENGINES
from tests.cli.conftest import Run, configure, home, run

__all__ = ["home", "run"]
TRITON_VENV = os.environ.get("SPECCHAT_TRITON_VENV", "")
TARGET, HEADS, DRAFT = (str(demo_model(role)) for role in ("target", "eagle3", "draft"))


def command_of(stdout: str, program: str) -> list[str]:
    """The arguments of the command line that starts with `program`."""
    lines = stdout.replace("\\\n", " ").splitlines()
    return shlex.split(next(line for line in lines if line.startswith(program)))


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def pasted(run: Run, tmp_path: Path, *arguments: str) -> tuple[str, Any]:
    """What a command prints, and the remote pair in it as models.toml reads it."""
    result = run("serve-command", "demo", *arguments)
    assert result.exit_code == 0, result.output
    file = tmp_path / "pasted.toml"
    file.write_text("schema = 1\n" + result.stdout[result.stdout.index("[[pair]]") :])
    (pair,) = (pair for pair in load_catalog(file).pairs if pair.spec.target.server is not None)
    return result.stdout, pair


@pytest.mark.parametrize("engine", ENGINES)
def test_the_pair_to_paste_is_one(engine: str, run: Run, tmp_path: Path) -> None:
    _, pair = pasted(run, tmp_path, "--engine", engine)
    server = pair.spec.target.server
    assert (server.kind, server.url) == (engine, "http://127.0.0.1:8000")
    assert pair.sampling.temperature == 0.3
    if engine == "triton":
        assert (server.model, server.tokenizer) == ("demo", TARGET)
    _, plain = pasted(run, tmp_path, "--engine", engine, "--strategy", "plain")
    assert plain.id == f"{pair.id}-plain"


def test_vllm_drafts_with_the_pairs_heads(run: Run, tmp_path: Path) -> None:
    stdout, _ = pasted(run, tmp_path, "--engine", "vllm", "--strategy", "eagle3", "--draft-length", "4")
    command = command_of(stdout, "vllm serve")
    assert command[2] == TARGET
    config = json.loads(option(command, "--speculative-config"))
    assert config == {"method": "eagle3", "num_speculative_tokens": 4, "model": HEADS}
    assert option(command, "--per-request-spec-decode-metrics") == "detailed"
    stdout, _ = pasted(run, tmp_path, "--engine", "vllm", "--strategy", "draft")
    assert json.loads(option(command_of(stdout, "vllm serve"), "--speculative-config"))["model"] == DRAFT
    stdout, _ = pasted(run, tmp_path, "--engine", "vllm", "--strategy", "plain")
    assert not [word for word in command_of(stdout, "vllm serve") if word.startswith("--") and "spec" in word]


def test_several_hosts_of_vllm_meet_by_ray(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    stdout, _ = pasted(run, tmp_path, "--engine", "vllm", "--hosts", "2", "--gpus", "4", "--write", str(folder))
    command = command_of(stdout, "vllm serve")
    assert (option(command, "--tensor-parallel-size"), option(command, "--pipeline-parallel-size")) == ("4", "2")
    assert option(command, "--distributed-executor-backend") == "ray"
    assert command_of(stdout, "ray start --address")[2] == "--address=FIRST_HOST:6379"
    config = yaml.safe_load((folder / "ray-serve.yaml").read_text())
    (application,) = config["applications"]
    (model,) = application["args"]["llm_configs"]
    assert application["import_path"] == "ray.serve.llm:build_openai_app"
    assert model["model_loading_config"] == {"model_id": "demo", "model_source": TARGET}
    assert model["engine_kwargs"]["speculative_config"]["model"] == HEADS


def test_each_host_of_sglang_has_its_line(run: Run, tmp_path: Path) -> None:
    stdout, _ = pasted(run, tmp_path, "--engine", "sglang", "--hosts", "2", "--gpus", "8", "--draft-length", "3")
    lines = [shlex.split(line) for line in stdout.replace("\\\n", " ").splitlines() if line.startswith("python3")]
    assert [option(line, "--node-rank") for line in lines] == ["0", "1"]
    assert {option(line, "--tp-size") for line in lines} == {"16"}
    first = lines[0]
    assert (option(first, "--speculative-algorithm"), option(first, "--speculative-draft-model-path")) == (
        "EAGLE3",
        HEADS,
    )
    numbers = [option(first, f"--speculative-{name}") for name in ("num-steps", "eagle-topk", "num-draft-tokens")]
    assert numbers == ["3", "1", "4"]


def test_tensorrt_llm_reads_its_file(run: Run, tmp_path: Path) -> None:
    stdout, _ = pasted(run, tmp_path, "--engine", "trtllm", "--strategy", "draft", "--write", str(tmp_path / "t"))
    assert option(command_of(stdout, "trtllm-serve"), "--config") == "trtllm.yaml"
    config = yaml.safe_load((tmp_path / "t/trtllm.yaml").read_text())
    assert config["enable_iter_perf_stats"] is True
    assert config["speculative_config"] == {
        "decoding_type": "Draft_Target",
        "max_draft_len": 15,
        "speculative_model": DRAFT,
    }
    stdout, _ = pasted(run, tmp_path, "--engine", "trtllm", "--hosts", "2", "--gpus", "4")
    assert command_of(stdout, "mpirun")[:6] == ["mpirun", "-n", "8", "-H", "HOST_1:4,HOST_2:4", "trtllm-llmapi-launch"]


def test_triton_gets_a_repository(run: Run, tmp_path: Path) -> None:
    pasted(run, tmp_path, "--engine", "triton", "--strategy", "dflash", "--write", str(tmp_path))
    model = tmp_path / "triton/demo"
    arguments = json.loads((model / "1/model.json").read_text())
    assert arguments["model"] == TARGET
    assert arguments["speculative_config"]["method"] == "dflash"
    text = (model / "config.pbtxt").read_text()
    assert re.search(r'backend: "vllm"', text)
    refused = run("serve-command", "demo", "--engine", "triton", "--hosts", "2")
    assert refused.exit_code == ExitCode.UNUSABLE
    assert "one host" in refused.stderr


@pytest.mark.skipif(not TRITON_VENV, reason="needs nvidia-pytriton, see tests/remote/test_triton.py")
def test_tritons_own_schema_takes_the_configuration(run: Run, tmp_path: Path) -> None:
    pasted(run, tmp_path, "--engine", "triton", "--write", str(tmp_path))
    code = (
        "import sys; from google.protobuf import text_format; from tritonclient.grpc import model_config_pb2 as m;"
        "c = text_format.Parse(open(sys.argv[1]).read(), m.ModelConfig());"
        "print(c.backend, c.model_transaction_policy.decoupled, c.parameters['REPORT_CUSTOM_METRICS'].string_value)"
    )
    python = Path(TRITON_VENV) / "bin/python"
    file = tmp_path / "triton/demo/config.pbtxt"
    ran = subprocess.run([python, "-c", code, file], capture_output=True, text=True, cwd=tmp_path)
    assert ran.stdout == "vllm True true\n", ran.stderr


def test_llama_cpp_takes_the_files_that_convert_writes(run: Run, tmp_path: Path) -> None:
    stdout, _ = pasted(run, tmp_path, "--engine", "llama.cpp", "--hosts", "3")
    assert command_of(stdout, "specchat convert") == ["specchat", "convert", "demo", "--to", "gguf", "--out", "gguf"]
    command = command_of(stdout, "llama-server")
    assert (option(command, "--model"), option(command, "--spec-draft-model")) == (
        "gguf/demo-target-f16.gguf",
        "gguf/demo-draft-f16.gguf",
    )
    assert (option(command, "--spec-type"), option(command, "--rpc")) == ("draft-simple", "HOST_2:50052,HOST_3:50052")
    assert "rpc-server asks nobody for a key" in stdout


def test_gguf_files_are_served_as_they_are(run: Run, home: Path) -> None:
    lines = 'schema = 1\n[[pair]]\nid = "mine"\nbackend = "gguf"\ncontext = 4096\ntarget = { path = "/m/t.gguf" }\n'
    configure(home, models=lines)
    result = run("serve-command", "mine", "--engine", "llama.cpp", "--strategy", "lookup")
    assert result.exit_code == 0, result.output
    command = command_of(result.stdout, "llama-server")
    assert (option(command, "--model"), option(command, "--spec-type")) == ("/m/t.gguf", "ngram-simple")
    assert option(command, "--ctx-size") == "4096"
    assert "convert" not in result.stdout
    refused = run("serve-command", "mine", "--engine", "vllm")
    assert refused.exit_code == ExitCode.UNUSABLE
    assert "take llama.cpp" in refused.stderr


def test_a_context_as_long_as_fits_is_the_usual_one_there(run: Run, home: Path) -> None:
    """These servers take the model's own where none is named, and do not start where that does not fit."""
    configure(home, models='schema = 1\n[[pair]]\nid = "mine"\ncontext = "auto"\ntarget = { path = "/m/t" }\n')
    result = run("serve-command", "mine", "--engine", "vllm", "--strategy", "plain")
    assert option(command_of(result.stdout, "vllm serve"), "--max-model-len") == "8192"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_strategy_that_an_engine_lacks_is_refused_with_those_it_has(engine: str, run: Run) -> None:
    refused = run("serve-command", "demo", "--engine", engine, "--strategy", "lookahead")
    assert refused.exit_code == ExitCode.UNUSABLE
    methods = ", ".join(ENGINES[engine].methods)
    assert f"{ENGINES[engine].title} has no lookahead; of specchat's strategies it has {methods}." in refused.stderr


def test_what_a_pair_lacks_is_told(run: Run, home: Path) -> None:
    configure(home, models='schema = 1\n[[pair]]\nid = "bare"\ntarget = { path = "/m/t", quant = "nf4" }\n')
    refused = run("serve-command", "bare", "--engine", "vllm", "--strategy", "eagle3")
    assert refused.exit_code == ExitCode.UNUSABLE
    assert 'strategy "eagle3" cannot be used: this pair has no such heads' in refused.stderr
    result = run("serve-command", "bare", "--engine", "vllm")
    assert "# It drafts by lookup: auto is specchat's own choice at each step." in result.stdout
    assert "quant is a setting of specchat's own engine" in result.stdout


def test_a_pair_on_a_server_is_served_already(run: Run, home: Path) -> None:
    configure(home, models='schema = 1\n[[pair]]\nid = "box"\nbackend = "remote"\nurl = "http://box"\n')
    refused = run("serve-command", "box", "--engine", "vllm")
    assert refused.exit_code == ExitCode.UNUSABLE
    assert "runs on a server already" in refused.stderr


def test_a_folder_that_cannot_be_written_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = run("serve-command", "demo", "--engine", "trtllm", "--write", str(tmp_path / "file/below"))
    assert refused.exit_code == ExitCode.USAGE
    assert "cannot be written" in refused.stderr


def test_the_page_lists_the_methods() -> None:
    page = (Path(__file__).parents[2] / "docs/beyond-one-machine.md").read_text("utf-8")
    rows = [line.strip("| \n").split("|") for line in page.splitlines() if line.startswith("| `") and "--" not in line]
    shown = {cells[0].strip(" `"): [cell.strip(" `") for cell in (*cells[1:], "", "", "", "")[:4]] for cells in rows}
    engines = [ENGINES[name].methods for name in ("vllm", "sglang", "trtllm", "llama.cpp")]
    assert ENGINES["triton"].methods == engines[0]
    assert shown == {
        name: [methods.get(name, "") for methods in engines] for name in shown.keys() | set().union(*engines)
    }
