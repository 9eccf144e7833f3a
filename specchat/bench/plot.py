"""Plots speedups over plain decoding by category."""

from pathlib import Path

from specchat.bench.summary import ContenderSummary

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
