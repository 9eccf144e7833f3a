"""The developer's hour on a GPU, without one: how it goes on, and what its own checks compare."""

import json
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace

import click
import pytest
import torch
from click.testing import CliRunner

from measure.gpu import __main__ as command
from measure.gpu import ahead, experts, faults, heads, kernels, prompts, recurrent, sessions, steps
from measure.gpu.checks import write
from measure.gpu.parts import PARTS
from measure.gpu.record import LIMIT_S, OtherCommit, Part, Record, run_all
from specchat.bench import prefetch, published
from specchat.bench import shapes as shapes_module
from specchat.bench.published import PUBLISHED, shaped
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.formats.quantise import dequantised
from specchat.engine.hardware import gpu
from specchat.engine.kernels.ahead import NONE, Memory, memory_of
from specchat.engine.kernels.products import multiply, splits

ROOT = Path(__file__).parents[1]
CPU, H200 = torch.device("cpu"), Memory(4.9e6, 50 << 20)
VERSIONS = {"torch": "2.13", "GPU": "none"}


def script(name: str, source: str, **settings: object) -> Part:
    return Part(name, f"does {name}", ("{python}", "-c", source), **settings)  # type: ignore[arg-type]


GOOD = script("good", "import pathlib; open(pathlib.Path(r'{out}') / 'ran', 'a').write('x'); print('fine')")
BAD = script("bad", "print('before'); print('wrong: ' + chr(27) + '[31mrows differ'); raise SystemExit(4)")
LAST = script("last", "print('last')")


def record(root: Path, *parts: Part, commit: str = "c0ffee") -> Record:
    return Record(root, parts, VERSIONS, commit)


def test_all_parts_run_and_what_did_not_pass_runs_again(tmp_path: Path) -> None:
    said: list[str] = []
    first = record(tmp_path, GOOD, BAD, LAST)
    run_all(first, said.append)
    assert {name: outcome.state for name, outcome in first.outcomes.items()} == {
        "good": "passed",
        "bad": "failed",
        "last": "passed",
    }
    assert first.bad() == [BAD]
    trouble = first.trouble(BAD)
    for needed in (
        "-c",
        "exit code 4",
        "before\nwrong: ␛[31mrows differ",
        "torch: 2.13",
        str(tmp_path / "bad" / "output.log"),
    ):
        assert needed in trouble, trouble
    assert "\x1b" not in trouble

    mended = replace(BAD, command=LAST.command)
    again = record(tmp_path, GOOD, mended, LAST)
    assert again.left() == [mended]
    run_all(again, said.append)
    assert (tmp_path / "good" / "ran").read_text() == "x", "what passed was run again"
    assert not record(tmp_path, GOOD, mended, LAST).left()
    assert {p["state"] for p in json.loads((tmp_path / "summary.json").read_text())["parts"].values()} == {"passed"}


def test_a_part_that_is_asked_for_runs_again(tmp_path: Path) -> None:
    one = record(tmp_path, GOOD)
    for _ in range(2):
        assert one.run(GOOD).state == "passed"
    assert (tmp_path / "good" / "ran").read_text() == "xx"


def test_a_part_that_takes_too_long_is_ended_with_all_it_started_and_left_to_do(tmp_path: Path) -> None:
    source = "print('begun', flush=True); import subprocess, sys, time; "
    source += "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); time.sleep(60)"
    slow = script("slow", source)
    one = record(tmp_path, slow, LAST)
    run_all(one, lambda _: None, limit_s=2.0)
    assert one.outcomes["slow"].state == "out of time"
    assert "begun" in one.trouble(slow)
    assert one.left() == [slow]
    assert LIMIT_S <= 540


def test_a_part_whose_program_is_missing_is_skipped_and_still_to_do(tmp_path: Path) -> None:
    skipped = script("profile", "", needs="no-such-program")
    one = record(tmp_path, skipped, LAST)
    run_all(one, lambda _: None)
    assert one.outcomes["profile"].tail == "no-such-program is not on PATH"
    assert (one.left(), one.bad()) == ([skipped], [])
    missing = Part("missing", "runs nothing", ("/no/such/program",))
    assert record(tmp_path, missing).run(missing).state == "failed"


def test_results_of_another_commit_are_not_gone_on_with(tmp_path: Path) -> None:
    record(tmp_path, GOOD).run(GOOD)
    assert "- commit: c0ffee" in (tmp_path / "summary.md").read_text()
    with pytest.raises(OtherCommit, match="c0ffee"):
        record(tmp_path, GOOD, commit="decaf")


def test_parts_get_their_folders_and_a_fresh_one_is_emptied(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "old").touch()
    source = "import os; print(os.listdir(os.environ['PLACE']) if os.path.exists(os.environ['PLACE']) else 'empty')"
    part = script("cold", source, environment={"PLACE": "{root}/kept"}, fresh="kept")
    record(tmp_path, part).run(part)
    assert (tmp_path / "cold" / "output.log").read_text() == "empty\n"


def test_the_summary_holds_parts_and_their_tables(tmp_path: Path) -> None:
    one = record(tmp_path, GOOD, LAST)
    one.run(GOOD)
    write(tmp_path / "good", "errors", [{"rows": 1, "error": 1e-7}, {"kernel": "a|b"}])
    text = one.table()
    assert "| good | passed |" in text
    assert "| last | to do |" in text
    assert "- torch: 2.13" in text
    assert "| 1 | 1e-07 |" in text
    assert "a\\|b" in text


def test_the_parts_can_be_run() -> None:
    """No GPU has seen them: at least what they name is there."""
    assert len({part.name for part in PARTS}) == len(PARTS)
    modules = {"steps": steps, "sessions": sessions, "faults": faults, "kernels": kernels, "experts": experts}
    modules |= {"recurrent": recurrent, "heads": heads, "ahead": ahead, "prompts": prompts}
    checks = {name: module.CHECKS for name, module in modules.items()}
    for part in PARTS:
        words = list(part.command)
        for path in (word for word in words if word.startswith("tests/")):
            assert (ROOT / path).exists(), path
        module = next((word.removeprefix("measure.gpu.") for word in words if word.startswith("measure.gpu.")), None)
        if module is not None:
            assert words[words.index(f"measure.gpu.{module}") + 1] in checks[module], part


def test_the_options_that_parts_use_are_there() -> None:
    from specchat.cli.root import specchat

    for part in PARTS:
        if "specchat" not in part.command:
            continue
        words = list(part.command[part.command.index("specchat") + 1 :])
        found: click.Command = specchat
        while words and isinstance(found, click.Group) and not words[0].startswith("-"):
            inner = found.get_command(click.Context(found), words.pop(0))
            assert inner is not None, part
            found = inner
        known = {option for parameter in found.params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known, part


def test_prompts_are_read_by_two_widths_and_steps_timed_after_each(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[tuple[int, int]]()
    target = SimpleNamespace(model=SimpleNamespace(block=256), keep=lambda _: None)
    target.begin = lambda text: read.append((target.model.block, len(text)))
    pair = SimpleNamespace(target=target, drafters={"plain": None, "draft": None})
    outcome = SimpleNamespace(verify_ms=2.0)
    monkeypatch.setattr(prompts, "on_device", lambda *_: pair)
    monkeypatch.setattr(prompts, "timed_in_turn", lambda *_, tokens: [[(float(tokens), outcome)]] * 2)
    rows = prompts.prompts("qwen3-8b", PUBLISHED["qwen3-8b"], (9, 7), torch.device("cpu"), torch.float32, lambda: None)
    assert read == [(256, 9), (64, 9)] * 4 + [(256, 7), (64, 7)] * 4
    assert [row["rows a pass"] for row in rows[:4]] == [256, 64] * 2
    assert all(0 < row["least"] <= row["tokens/s"] <= row["most"] for row in rows[:4])
    assert [(row["after"], row["rows"], row["step ms"]) for row in rows[4:]] == [
        (9, 1, 9),
        (9, 8, 9),
        (7, 1, 7),
        (7, 8, 7),
    ]


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = CliRunner().invoke(command.main, ["--out", str(tmp_path / "new")])
    assert done.exit_code == 3
    assert "The parts need a CUDA GPU: " in done.output
    assert not (tmp_path / "new").exists()


def test_the_command_runs_lists_and_names_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PARTS", (GOOD, BAD, LAST))
    monkeypatch.setattr(command, "machine", lambda: VERSIONS)

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(command.main, [*arguments, "--out", str(tmp_path)])
        return done.exit_code, done.output

    code, output = run()
    assert (code, "exit code 4" in output, "Not passed: bad" in output) == (1, True, True)
    assert [line.split()[1] for line in run("--list")[1].splitlines()] == ["passed", "failed", "passed"]
    code, output = run("--part", "last")
    assert (output.splitlines()[0], "exit code 4" in output) == ("last: passed", False)
    assert run("--part", "bad")[0] == 1
    monkeypatch.setattr(command, "commit", lambda: "decaf")
    code, output = run()
    assert (code, "and this is decaf. Name a new folder." in output) == (3, True)
    code, output = run("--part", "none")
    assert code == 2
    assert "there is no part 'none'" in output
    assert CliRunner().invoke(command.main, []).exit_code == 2


def tiny() -> steps.Setting:
    """Qwen3 of one layer and a few heads, under the interpreter."""
    shapes = replace(PUBLISHED["qwen3-8b"], target=shaped("qwen3", 32, 64, 1, 2, 1, 16, 64, 40960, 1e6, False))
    return steps.Setting(torch.device("cpu"), torch.bfloat16, "nf4", shapes, prompt=6, tokens=3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the GPU here")
class TestChecksUnderTheInterpreter:
    """Against what they are to find, wrong results among them."""

    @pytest.fixture(autouse=True)
    def _interpreter(self) -> None:
        from tests.kernels.interpreter import complete

        complete()

    def test_texts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(steps, "LENGTHS", (2,))
        monkeypatch.setattr(steps, "SAMPLINGS", {"filtered": steps.SAMPLINGS["filtered"]})
        rows = steps.strategies(tiny())
        assert {row["strategy"] for row in rows} >= {"plain", "draft", "lookup"}
        assert steps.eager_step(tiny()) == [{"tokens": 4}]

    def test_texts_by_ratio(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(steps, "SAMPLINGS", dict(list(steps.SAMPLINGS.items())[:2]))
        assert all(row["same"] for row in steps.ratio(replace(tiny(), tokens=1)))
        monkeypatch.setattr(steps, "reply", lambda runner, *_: [id(runner)])
        with pytest.raises(AssertionError, match="something else than eager"):
            steps.ratio(tiny())

    def test_caches(self) -> None:
        assert [row["rows a pass"] for row in steps.caches(tiny(), (0,))] == [64, 1, 16, 32]

    def test_drafts_by_heads_are_timed_whole_and_beside_plain_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Random heads are sure of nothing, and none may end its draft for it."""
        for name, value in {"ROUNDS": 1, "WARM_UP": 0, "STEPS": 1, "PROMPT_TOKENS": 6}.items():
            monkeypatch.setattr(shapes_module, name, value)
        shape = shaped("qwen3", 32, 64, 4, 2, 1, 16, 64, 40960, 1e6, False)
        rows = heads.heads(replace(tiny(), shapes=replace(tiny().shapes, target=shape)))
        assert {row["step"]: row["drafted"] for row in rows} == {
            "plain": 0,
            "verify 8": 7,
            "verify 16": 15,
            **dict(heads.DRAFTS),
        }
        plain, *others = rows
        assert plain["pays from"] == 0
        assert all(row["pays from"] == max(0, row["step ms"] / plain["step ms"] - 1) for row in others)


def four(call: kernels.Call, copies: int) -> list[float]:
    """Launches on two of the copies, and says that each took 4 microseconds."""
    for copy in range(min(copies, 2)):
        call(copy)
    return [4.0, 4.0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the GPU here")
class TestTimedKernelsUnderTheInterpreter:
    @pytest.fixture(autouse=True)
    def _few_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kernels, "ROWS", (1, 3))

    def test_products_have_their_rivals_and_the_bytes_that_they_read(self) -> None:
        config = shaped("qwen3", 64, 64, 1, 4, 2, 16, 96, 256, 1e6, False)
        rows = kernels.products(config, torch.device("cpu"), torch.float32, four, 1)
        by = {row["product"]: [one["by"] for one in rows if one["product"] == row["product"]] for row in rows}
        assert len(by) == 4 * len(kernels.FORMATS) + 1
        for what, programs in by.items():
            rivals = ["cuBLAS"] if what.startswith("head") else ["bitsandbytes", "cuBLAS"]
            assert programs == [one for one in ("specchat", *rivals) for _ in kernels.ROWS]
        nf4 = next(row for row in rows if row["product"] == "down 64x64 nf4")
        # Half a byte a weight, a scale of 4 bytes for 64 of them, and the table of 16, in 4 microseconds.
        assert nf4["GB/s"] == pytest.approx((64 * 64 // 2 + 64 * 4 + 64) / 4e3)

    def test_experts_are_timed_by_kernel_and_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With the bytes of the experts that the rows have."""
        monkeypatch.setattr(experts, "ROWS", (1, 3))
        sizes = published.experts(4, 2, 64)
        config = shaped("qwen3_moe", 64, 64, 1, 4, 2, 16, 96, 256, 1e6, False, **sizes)
        rows = experts.experts(config, torch.device("cpu"), torch.float32, four, 1)
        kinds = [(row["weights"], row["rows"], row["kernel"]) for row in rows]
        kernels_of = ("choice", "gates", "down", "sum", "all")
        assert kinds == [
            (f, r, k) for f in ("16 bits", *kernels.FORMATS, experts.IN_MAIN) for r in (1, 3) for k in kernels_of
        ]
        down = next(row for row in rows if row["kernel"] == "down")
        assert down["experts"] == 2
        assert down["GB/s"] == pytest.approx(2 * 64 * 64 * 4 / 4e3)

    def test_recurrent_layers_are_timed_by_kernel_and_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With the bytes of a state."""
        monkeypatch.setattr(recurrent, "ROWS", (1, 3))
        rows = recurrent.recurrent((1, 16, 2, 8), torch.device("cpu"), torch.float32, four, 1)
        kernels_of = ("convolution", "states", "states, 16 tokens behind", "outputs")
        assert [(row["kernel"], row["rows"]) for row in rows] == [(k, r) for k in kernels_of for r in (1, 3)]
        assert next(row for row in rows if row["kernel"] == "states")["GB/s"] == pytest.approx(4 * 2 * 16 * 8 / 4e3)

    def test_passes_are_timed_with_weights_asked_for_ahead_and_without(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In turn; the same launches but for what is asked for."""
        monkeypatch.setattr(prefetch, "ROWS", (1, 3))
        monkeypatch.setattr(prefetch, "whole_memory", lambda _: H200)
        asked: list[tuple[str, Memory]] = []

        def in_turn(calls: Mapping[str, Callable[[], object]]) -> dict[str, list[float]]:
            for name, call in calls.items():
                with monkeypatch.context() as patched:
                    patched.setattr(
                        DeviceDecoder, "forward", lambda *_, name=name: asked.append((name, memory_of(CPU)))
                    )
                    call()
            return {"asked ahead": [3.0, 4.0, 5.0], "nothing ahead": [8.0, 8.0]}

        rows = prefetch.passes({"tiny": tiny().shapes.target}, torch.device("cpu"), torch.float32, in_turn)
        assert [(row["rows"], row["ratio"]) for row in rows] == [(1, 0.5), (3, 0.5)]
        assert asked == 2 * [("asked ahead", H200), ("nothing ahead", NONE)]

    def test_attention_is_timed_in_each_split(self) -> None:
        rows = kernels.attention(tiny().shapes.target, torch.device("cpu"), torch.float32, four, 1, (40,))
        assert [(row["split"], row["rows"]) for row in rows] == [(s, r) for s in kernels.SPLITS for r in (1, 3)]

    def test_a_rival_that_fails_has_its_reason_and_a_kernel_of_ours_ends_it(self) -> None:
        weight = kernels.quantised(torch.randn(64, 64), "nf4", True)

        def fails(at: int) -> kernels.Timer:
            left = [at]

            def timer(call: kernels.Call, copies: int) -> list[float]:
                left[0] -= 1
                if left[0] < 0:
                    raise RuntimeError("no kernel for this shape\nmore")
                return four(call, copies)

            return timer

        rows = list(kernels.product("down", weight, "nf4", torch.float32, fails(2), 1))
        assert [row["us"] for row in rows] == [4.0, 4.0, *["no kernel for this shape"] * 4]
        with pytest.raises(RuntimeError, match="no kernel"):
            list(kernels.product("down", weight, "nf4", torch.float32, fails(1), 1))


@pytest.mark.parametrize("name", kernels.FORMATS)
def test_bitsandbytes_multiplies_the_same_weights(name: str) -> None:
    quant, nested = kernels.FORMATS[name]
    weight = kernels.quantised(torch.randn(64, 128) / 11, quant, nested)
    x = torch.randn(3, 128)
    exact = x.double() @ dequantised(weight, torch.float32).double().t()
    theirs = kernels.bitsandbytes_call(weight, quant, torch.float32)(x)
    out = torch.empty(splits(weight), 3, 64)
    multiply(x, weight, None, out, 3)
    torch.testing.assert_close(out.sum(0).double(), exact, atol=1e-5, rtol=1e-5)
    # LLM.int8 rounds the activations too.
    loose = 0.05 if quant == "int8" else 1e-5
    torch.testing.assert_close(theirs.double(), exact, atol=loose, rtol=loose)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_a_timed_copy_takes_longer_the_more_it_copies() -> None:
    source = torch.zeros(1 << 28, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(source)
    few, many = (sum(kernels.replayed(lambda _, n=n: other[:n].copy_(source[:n]), 2)) for n in (1 << 24, 1 << 28))
    assert many > 4 * few


def test_fuzzed_replies_are_compared_with_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(row["replies"] for row in sessions.fuzz("cpu", rounds=4, tokens=24)) == 4
    plain = sessions.finished

    def spoilt(session: object, request: object, doings: sessions.Doings) -> object:
        made = plain(session, request, doings)  # type: ignore[arg-type]
        return replace(made, token_ids=(1, *made.token_ids[1:])) if doings.changes else made

    monkeypatch.setattr(sessions, "finished", spoilt)
    with pytest.raises(AssertionError, match="another text than the plain one"):
        sessions.fuzz("cpu", rounds=4, tokens=24)


def test_the_demo_is_asked_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process; another check of faults starts one."""
    if isinstance(gpu.find_gpu(), gpu.Gpu):
        pytest.skip("there is a GPU")

    def here(source: str) -> CompletedProcess[str]:
        with redirect_stdout(StringIO()) as said:
            exec(source, {})
        return CompletedProcess([], 0, said.getvalue(), "")

    monkeypatch.setattr(faults, "python", here)
    assert faults.where_the_demo_runs().startswith("cpu")


def test_two_engines_write_the_same() -> None:
    assert faults.second()[0]["engines"] == 2


def test_faults_are_found(tmp_path: Path) -> None:
    """Without a GPU none of them goes as it must."""
    if isinstance(gpu.find_gpu(), gpu.Gpu):
        pytest.skip("there is a GPU")
    for name in ("illegal", "no-compiler", "full"):
        with pytest.raises(AssertionError):
            faults.CHECKS[name](tmp_path)
