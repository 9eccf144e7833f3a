"""Times the host's part of a step on a GPU, without one: graphs run nothing, so that Python is what remains.

`python -m measure.gpu_host` prints processor time by strategy; docs/gpu-step.md has the figures. Launches, waits and
copies of a GPU are not in them.
"""

import argparse
from collections.abc import Callable, Hashable
from statistics import quantiles
from time import thread_time_ns

import torch

from specchat.config.paths import demo_model
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.decoding.step import Decoding
from specchat.engine.device.executor import DeviceExecutor
from specchat.engine.device.graphs import Graphs
from specchat.engine.gpu_checks.demo import decoder
from specchat.engine.protocol.options import Sampling
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.runner import Runner

HOST = torch.device("cpu")
CONTEXT, PROMPT = 1024, 256
STEPS, WARM_UP = 200, 20
"""Steps of a reply, and the first ones, which do not count."""
ACCEPTED = 2
"""Drafted tokens that each step accepts."""
SURE = 0.97
"""The probability of each drafted token."""
STRATEGIES = {"plain": 0, "draft": 4, "draft-tree": 6}
"""Strategies and draft lengths."""


class NoGraphs(Graphs):
    """Graphs that run nothing; `first` is when the first one was asked for."""

    first = 0

    def run(self, key: Hashable, body: Callable[[], None]) -> None:
        del key, body
        NoGraphs.first = NoGraphs.first or thread_time_ns()

    def eagerly(self, body: Callable[[], None]) -> None:
        del body


def pair() -> Runner:
    """The demo pair with graphs that run nothing, and a report as after a draft of which some tokens are accepted."""
    target, draft = (decoder(demo_model(part), None, HOST, CONTEXT) for part in ("target", "draft"))
    made = device_runner(target, draft, target.config.vocab, HOST, graphs=NoGraphs)
    executor = made.executor
    assert isinstance(executor, DeviceExecutor)
    executor.pretend()
    state = executor._state
    state.result[:3] = torch.tensor([ACCEPTED, ACCEPTED + 1, ACCEPTED + 1])
    executor.drafts._values.values.fill_(SURE)
    return made


def reply(runner: Runner, strategy: str, length: int) -> tuple[list[float], list[float]]:
    """Microseconds of the thread in each step, and of these from the report to the next launch."""
    executor, prompt = runner.executor, [7] * PROMPT
    assert isinstance(executor, DeviceExecutor)
    runner.target.keep(0)
    runner.target.tokens += prompt[:-1]
    drafter = runner.drafters[strategy]
    drafter.begin(prompt)
    decoding = Decoding(executor, runner.target, ReplyRules(Sampling()), prompt)
    executor._state.report[executor._state.result.numel()] = length
    whole, until_launch, report = list[float](), list[float](), executor._verifier.report
    read = 0

    def timed(turn: int) -> object:
        nonlocal read
        NoGraphs.first, read = 0, thread_time_ns()
        return report(turn)

    executor._verifier.report = timed  # type: ignore[method-assign, assignment]
    try:
        for _ in range(STEPS):
            begun = thread_time_ns()
            decoding.step(drafter, length, "coupled")
            whole.append((thread_time_ns() - begun) / 1e3)
            until_launch.append((NoGraphs.first - read) / 1e3 if NoGraphs.first else 0.0)
    finally:
        executor._verifier.report = report  # type: ignore[method-assign]
        decoding.close()
    return whole[WARM_UP:], until_launch[WARM_UP:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replies", type=int, default=9, help="replies of each strategy, in turn")
    replies = parser.parse_args().replies
    runner = pair()
    whole, until_launch = ({name: list[float]() for name in STRATEGIES} for _ in range(2))
    for _ in range(replies):
        for name, length in STRATEGIES.items():
            for times, more in zip((whole, until_launch), reply(runner, name, length), strict=True):
                times[name] += more
    print(
        "| strategy | tokens | Python a step, us | from the report to the next launch, us |", "|---" * 4 + "|", sep="\n"
    )
    for name, length in STRATEGIES.items():
        cells = ("{:.0f} ({:.0f} to {:.0f})".format(*_quartiles(times[name])) for times in (whole, until_launch))
        print(f"| `{name}` | {length} | {' | '.join(cells)} |")


def _quartiles(times: list[float]) -> tuple[float, float, float]:
    """Median, lower and upper quartile."""
    low, middle, high = quantiles(times, n=4)
    return middle, low, high


if __name__ == "__main__":
    main()
