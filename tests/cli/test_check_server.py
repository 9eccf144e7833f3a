"""`specchat check` of pairs that servers run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from specchat.cli import check_server
from specchat.cli.exit_codes import ExitCode
from tests.cli.conftest import Run, configure
from tests.remote.server import Scripted
from tests.remote.talker import Talker, swapped, talking, tied

Declared = Callable[..., None]


@pytest.fixture
def declared(home: Path, monkeypatch: pytest.MonkeyPatch) -> Declared:
    """Writes pairs called box and slow into models.toml, and keeps the check small."""
    monkeypatch.setattr(check_server, "QUICK_TOKENS", 10)
    monkeypatch.setattr(check_server, "SAMPLED_TOKENS", 10)
    monkeypatch.setattr(check_server, "QUICK_DRAWS", 5)

    def write(box: Scripted, slow: Scripted | None = None, more: str = "") -> None:
        lines = f'schema = 1\n[[pair]]\nid = "box"\nbackend = "remote"\nurl = "{box.url}"\n{more}'
        if slow is not None:
            lines += f'[[pair]]\nid = "slow"\nbackend = "remote"\nurl = "{slow.url}"\n'
        configure(home, models=lines)

    return write


def prompts(tmp_path: Path, count: int = 5) -> str:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(f'{{"id": "p{n}", "turns": ["Question {n}"]}}\n' for n in range(count)))
    return str(path)


def test_a_server_that_keeps_its_promise(run: Run, declared: Declared, tmp_path: Path) -> None:
    with talking(Talker(swapped(4))) as box, talking(Talker(tied(4))) as slow:
        declared(box, slow)
        result = run("check", "--pair", "box", "--against", "slow", "--prompts", prompts(tmp_path))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[:2] == [
        f"box: a server with OpenAI's API at {box.url}, m",
        f"against slow: a server with OpenAI's API at {slow.url}, m",
    ]
    assert lines[2] == "p0  repeated: equal  without drafting: equal but for a near tie"
    assert lines[3] == "  first difference at token 4, margin 0"
    assert lines[4].startswith("  box   ' ")
    assert "5 of 5 greedy replies were the same when repeated." in lines
    assert "0 of 5 greedy replies are those without drafting, 5 but for a near tie." in lines
    assert "sampled at T=0.8: box repeats a reply by its seed; slow repeats a reply by its seed." in lines
    assert lines[-2].startswith("sampled texts follow one distribution: yes  (25 replies each, ")
    assert lines[-1] == "Drafting does not change the text of box, as far as these prompts show."


def test_wrong_text_above_temperature_0_has_its_exit_code(run: Run, declared: Declared, tmp_path: Path) -> None:
    with talking(Talker(salad=0.5)) as box, talking(Talker()) as slow:
        declared(box, slow, 'plain = "slow"\n')
        result = run("check", "--pair", "box", "--prompts", prompts(tmp_path))
    assert result.exit_code == ExitCode.DIFFERENT
    assert "5 of 5 greedy replies are those without drafting." in result.stdout
    assert "box does not repeat a reply by its seed; slow repeats" in result.stdout
    assert "sampled texts follow one distribution: no" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("Do not sample from box with drafting until that is fixed")


def test_wrong_greedy_text_has_its_exit_code(run: Run, declared: Declared, tmp_path: Path) -> None:
    with talking(Talker(swapped(2))) as box, talking(Talker()) as slow:
        declared(box, slow)
        result = run("check", "--pair", "box", "--against", "slow", "--prompts", prompts(tmp_path, 1))
    assert result.exit_code == ExitCode.DIFFERENT
    assert "  first difference at token 2, margin 0.693" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("Do not use box with drafting until that is fixed")


def test_without_a_server_to_compare_with_it_says_what_it_takes(run: Run, declared: Declared, tmp_path: Path) -> None:
    with talking(Talker()) as box:
        declared(box)
        result = run("check", "--pair", "box", "--prompts", prompts(tmp_path, 2))
    assert result.exit_code == ExitCode.USAGE
    assert "2 of 2 greedy replies were the same when repeated." in result.stdout
    assert "Whether drafting changes its text was not checked" in result.stderr
    assert "--against" in result.stderr


def test_a_server_that_does_not_draft_is_not_checked(run: Run, declared: Declared, tmp_path: Path) -> None:
    page = {"metrics": "vllm-none-metrics.txt"}
    with talking(Talker(), **page) as box:
        declared(box, more='kind = "vllm"\n')
        result = run("check", "--pair", "box", "--prompts", prompts(tmp_path))
    assert result.exit_code == ExitCode.USAGE
    assert "box was started without drafting" in result.stderr


def test_other_pairs_are_compared_with_plain_decoding(run: Run, declared: Declared) -> None:
    with talking(Talker()) as box:
        declared(box)
        result = run("check", "--pair", "demo", "--against", "box")
    assert result.exit_code == ExitCode.USAGE
    assert "--against goes with a pair that a server runs" in result.stderr


def test_a_server_that_is_gone_has_its_exit_code(run: Run, declared: Declared, tmp_path: Path) -> None:
    with talking(Talker()) as box:
        declared(box)
    assert run("check", "--pair", "box", "--prompts", prompts(tmp_path)).exit_code == ExitCode.SERVER


def test_a_pair_of_this_machine_tells_its_likeliest_tokens() -> None:
    """As transformers computes them."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from specchat.cli.local_replies import LocalReplies
    from specchat.config.paths import demo_model
    from specchat.engine.loading import load
    from specchat.engine.protocol.options import Message, Sampling
    from specchat.engine.protocol.pair import ModelSource, PairSpec

    pair = PairSpec("demo", "Demo", ModelSource(path=str(demo_model("target"))))
    local = LocalReplies(pair, load(pair, lambda _: None))
    chat = (Message("user", "Tell me a story about a cat."),)
    text = local.write(chat, Sampling(), 12)
    told = local.options(chat, 12, text.index(" time"))
    tokenizer = AutoTokenizer.from_pretrained(demo_model("target"))
    model = AutoModelForCausalLM.from_pretrained(demo_model("target"), dtype=torch.float32)
    turns = [{"role": "user", "content": chat[0].content}]
    ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=False)
    with torch.no_grad():
        written = model.generate(ids, max_new_tokens=12, do_sample=False)
        row = model(written).logits[0, ids.shape[1] + 2].log_softmax(-1)
    assert text == tokenizer.decode(written[0, ids.shape[1] :], skip_special_tokens=True)
    assert told is not None
    assert (told.index, told.options[0].text) == (3, b" time")
    assert [option.logprob for option in told.options] == pytest.approx(row.topk(5).values.tolist(), abs=1e-3)
