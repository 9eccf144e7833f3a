"""The acceptance length of every strategy in docs/demo-model.md.

The figures are tokens per step of greedy replies to all held-out prompts, by category. Drafts have their full length
whatever it costs: no length policy and no clock affects them.
"""

from collections import defaultdict
from collections.abc import Sequence

from specchat.bench import DEMO_PROMPTS
from specchat.bench.prompts import read_prompts
from specchat.config.catalog import load_catalog
from specchat.engine.loading import load
from specchat.engine.protocol.events import Step
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session

TOKENS = 96
DRAFTED = {
    "eagle3": (5,),
    "eagle3-tree": (12,),
    "dflash": (7,),
    "medusa": (12,),
    "early-exit": (5,),
    "swift": (4,),
    "lookahead": (7,),
    "lookup": (8,),
    "suffix": (8,),
    "ngram": (8,),
    "cascade": (12,),
    "draft-tree": (12,),
    "draft": (5, 12),
}
"""Draft length by strategy; eagle3 and dflash were trained for theirs."""
ALL = "all"


def tokens_a_step(
    session: Session, speculation: Speculation, chats: Sequence[tuple[str, tuple[Message, ...]]]
) -> dict[str, float]:
    """Tokens per step by category and of all; `chats` are categories and messages."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for category, messages in chats:
        for event in session.generate(Generate(0, messages, Sampling(), Limits(TOKENS), speculation, cold=True)):
            if isinstance(event, Step):
                for name in (category, ALL):
                    counts[name][0] += event.emitted
                    counts[name][1] += 1
    return {name: tokens / steps for name, (tokens, steps) in counts.items()}


def measured() -> str:
    """The table, as Markdown."""
    session = load(load_catalog(None).find("demo").spec, lambda _: None)
    chats = [(p.category, p.messages) for p in read_prompts(DEMO_PROMPTS)]
    session.runner.executor.policies.off = True
    categories = [*dict.fromkeys(category for category, _ in chats), ALL]
    rows = [f"| drafts | {' | '.join(categories)} |", "|---" * (1 + len(categories)) + "|"]
    for strategy, length in [(name, length) for name, lengths in DRAFTED.items() for length in lengths]:
        found = tokens_a_step(session, Speculation(strategy, length), chats)
        rows.append(f"| {strategy} x{length} | {' | '.join(f'{found[name]:.2f}' for name in categories)} |")
    return "\n".join([*rows, ""])
