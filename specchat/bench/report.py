"""A finished or interrupted measurement as text, JSON or picture, with the machine that it ran on."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from specchat.bench.contender import Contender
from specchat.bench.decide import Decided
from specchat.bench.interleaved import Sample
from specchat.bench.ours import Ours
from specchat.bench.summary import PLAIN, ContenderSummary, by_category, summarise, verdict
from specchat.bench.table import auto_table, categories_table, cost_table, lines_table, places_table
from specchat.bench.verify_cost import VerifyCost
from specchat.engine.memory.plan import GIB
from specchat.engine.protocol.pair_info import PairInfo


def describe(packages: Sequence[str]) -> str:
    """One line: date, processor, cores, versions of `packages`."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    model = next(
        (line.split(":")[1].strip() for line in text.splitlines() if "model name" in line), platform.processor()
    )
    flags = "AVX-512" if "avx512f" in text else "AVX2" if "avx2" in text else "no AVX2"
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return f"{date.today()}, {model}, {os.cpu_count()} cores, {flags}; Python {platform.python_version()}, {versions}"


COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999")
"""Distinguishable with any colour vision (Okabe and Ito 2008)."""
ENDINGS = (".png", ".svg")


def plot(categories: dict[str, list[ContenderSummary]], title: str, note: str, path: Path) -> None:
    """Write bars of medians with quartiles to `path`: a group per category, a colour per contender.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    names = [line.contender for line in next(iter(categories.values()), []) if line.contender != "plain"]
    figure = Figure(figsize=(max(6.0, 1.6 * len(categories) + 2.0), 4.5), layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / max(1, len(names))
    for k, name in enumerate(names):
        spreads = [
            next((line.speedup_vs_plain for line in lines if line.contender == name), None)
            for lines in categories.values()
        ]
        shown = [(i, s) for i, s in enumerate(spreads) if s is not None]
        axes.bar(
            [i + (k - (len(names) - 1) / 2) * width for i, _ in shown],
            [s.median for _, s in shown],
            width,
            yerr=[[s.median - s.low for _, s in shown], [s.high - s.median for _, s in shown]],
            label=name,
            color=COLOURS[k % len(COLOURS)],
            error_kw={"elinewidth": 1, "capsize": 2, "ecolor": "#444444"},
        )
    axes.axhline(1.0, color="#444444", linewidth=1)
    axes.set_xticks(range(len(categories)), list(categories))
    axes.set_ylabel("times plain decoding (median, quartiles)")
    axes.set_title(title)
    axes.legend(frameon=False, fontsize="small", ncols=2)
    axes.set_xlabel(note, fontsize=6, color="#666666", loc="left")
    figure.savefig(path, dpi=150)


SCHEMA = 1
PACKAGES = ("specchat", "torch", "transformers")


@dataclass
class BenchReport:
    """The figures of a pair.

    Attributes:
        others: contenders of other programs.
        rivals: for each of them, our contender that does the same, if it takes part.
        free: our contenders whose text equals plain decoding's only in distribution.
        interrupted: it ended early.
    """

    info: PairInfo
    machine: str
    repeats: int
    tokens: int
    others: frozenset[str]
    rivals: dict[str, str]
    samples: list[Sample] = field(default_factory=list)
    verify_cost: list[VerifyCost] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    free: frozenset[str] = frozenset()
    interrupted: bool = False

    @classmethod
    def of(cls, info: PairInfo, contenders: Sequence[Contender], repeats: int, tokens: int) -> "BenchReport":
        ours = {c.name.partition(" ")[0]: c.name for c in reversed(contenders) if not c.rival}
        rivals = {c.name: ours[c.rival] for c in contenders if c.rival in ours}
        others = frozenset(c.name for c in contenders if c.rival)
        free = frozenset(c.name for c in contenders if isinstance(c, Ours) and c.free)
        return cls(info, describe(PACKAGES), repeats, tokens, others, rivals, free=free)

    @property
    def lines(self) -> list[ContenderSummary]:
        return summarise(self.samples, self.rivals)

    @property
    def categories(self) -> dict[str, list[ContenderSummary]]:
        return by_category(self.samples, self.rivals)

    @property
    def different(self) -> list[str]:
        """Our contenders whose text differed from plain decoding's, with the number of prompts."""
        return [
            f"{line.contender} on {line.prompts - line.identical} of {line.prompts} prompts"
            for line in self.lines
            if line.contender not in self.others | self.free and line.identical < line.prompts
        ]

    @property
    def head(self) -> str:
        """Description of the measurement and the machine."""
        i = self.info
        cost = f"; a draft step costs {i.draft.cost:.3f} of a target step" if i.draft.cost else ""
        prompts = len({sample.prompt.id for sample in self.samples})
        return (
            f"{self.machine}\n{i.name} on {i.load.device}; {i.load.memory / GIB:.2f} GiB{cost}\n{i.notes.exactness}\n"
            f"{prompts} prompt{'s' * (prompts != 1)}, {self.repeats} {'reply' if self.repeats == 1 else 'replies'} each"
            f", at most {self.tokens} tokens"
        )

    def text(self) -> str:
        """All tables, below a description of the measurement."""
        lines = self.lines
        if not lines:
            return f"{self.head}\nNothing was measured.\n"
        parts = [f"{self.head}; medians over prompts\n\n", lines_table(lines, self.rivals)]
        if places := places_table(lines):
            parts += ["\n", places]
        if len(self.categories) > 1 and (table := categories_table(self.categories)):
            parts += ["\n", table]
        for whole in (False, True):
            if table := auto_table(self.categories if len(self.categories) > 1 else {}, lines, whole):
                parts += ["\n", table]
        if self.verify_cost:
            parts += ["\nWhat a step costs that checks so many tokens:\n", cost_table(self.verify_cost)]
        parts += [f"\n{note}" for note in self.notes]
        if last := verdict(self._measured(lines), max(line.prompts for line in lines)):
            parts.append(f"\n\n{last}")
        return "".join(parts).rstrip("\n") + "\n"

    def _measured(self, lines: Sequence[ContenderSummary]) -> dict[str, float]:
        return {
            line.contender: line.whole_speedup_vs_plain.median
            for line in lines
            if line.contender not in self.others and line.whole_speedup_vs_plain is not None
        }

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "machine": self.machine,
            "pair": _pair(self.info),
            "repeats": self.repeats,
            "tokens": self.tokens,
            "rivals": self.rivals,
            "notes": self.notes,
            "contenders": [line.as_json() for line in self.lines],
            "categories": {name: [line.as_json() for line in lines] for name, lines in self.categories.items()},
            "verify_cost": [asdict(cost) for cost in self.verify_cost],
            "replies": [
                {
                    "contender": s.contender,
                    "prompt": s.prompt.id,
                    "category": s.prompt.category,
                    "repeat": s.repeat,
                    **asdict(s.run),
                    "tokens_per_second": s.run.speed,
                    "whole_tokens_per_second": s.run.whole_speed,
                }
                for s in self.samples
            ],
        }


def write_json(report: BenchReport, path: Path, decided: Decided | None = None) -> None:
    """Write everything to `path`, decisions included."""
    more = {} if decided is None else {"decide": asdict(decided)}
    path.write_text(json.dumps(report.as_json() | more, indent=1) + "\n", encoding="utf-8")


def write_plot(report: BenchReport, path: Path) -> None:
    """Plot speedups by category to `path`, a .png or .svg file."""
    title = f"{report.info.name}: {PLAIN} decoding = 1"
    plot(report.categories, title, report.machine, path)


def _pair(info: PairInfo) -> dict[str, Any]:
    """The facts of a pair by name, in one object."""
    data = asdict(info)
    load, notes, server = (data.pop(part) for part in ("load", "notes", "server"))
    times = {"load_seconds": load.pop("seconds"), "server": server["name"], "continues": server["continues"]}
    return {**data, **load, **notes, **times}
