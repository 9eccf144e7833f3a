"""Speed of the embedded pair with and without a grammar: `python -m measure.grammar`.

First the same text: a grammar that allows every text costs the masks alone. Then a JSON schema, whose text is another.
"""

import argparse
import json
import statistics

from specchat.config.catalog import load_catalog
from specchat.engine.loading import load
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Grammar, Limits, Message, Sampling, Speculation
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session

PROMPT = (Message("user", "Tell me a story about a cat."),)
TOKENS = 150
FREE = Grammar("regex", "(?s:.*)")
SCHEMA = Grammar(
    "json_schema",
    json.dumps(
        {
            "type": "object",
            "properties": {
                "title": {"type": "string", "maxLength": 60},
                "story": {"type": "string", "minLength": 250, "maxLength": 600},
                "age": {"type": "integer", "minimum": 0, "maximum": 150},
                "tags": {"type": "array", "items": {"enum": ["red", "blue"]}, "minItems": 1, "maxItems": 3},
            },
            "required": ["title", "story", "age", "tags"],
            "additionalProperties": False,
        }
    ),
)


def reply(session: Session, sampling: Sampling, strategy: str, grammar: Grammar | None) -> Finished:
    """A reply with empty caches."""
    request = Generate(1, PROMPT, sampling, Limits(TOKENS), Speculation.of(strategy), cold=True, grammar=grammar)
    *_, last = session.generate(request)
    assert isinstance(last, Finished)
    return last


def main() -> None:
    """Measure in turn and print medians with quartiles of the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    session = load(load_catalog(None).find("demo").spec, lambda _: None)
    print("| strategy | T | tokens/s | same text, held | quartiles | JSON schema | accepted a step |")
    print("|---|---|---|---|---|---|---|")
    for strategy in ("plain", "draft", "auto"):
        for temperature in (0.0, 0.7):
            found: list[tuple[Finished, Finished, Finished]] = []
            for seed in range(rounds + 2):
                sampling = Sampling(seed=seed, temperature=temperature)
                free, held, json_ = (reply(session, sampling, strategy, grammar) for grammar in (None, FREE, SCHEMA))
                assert free.token_ids == held.token_ids
                found.append((free, held, json_))
            _show(strategy, temperature, found[2:])


def _show(strategy: str, temperature: float, found: list[tuple[Finished, Finished, Finished]]) -> None:
    rates = [[one.stats.tokens_per_second for one in each] for each in found]
    low, middle, high = statistics.quantiles([held / free for free, held, _ in rates], n=4)
    schema = statistics.median(json_ / free for free, _, json_ in rates)
    steps = [statistics.median(each[at].stats.mean_acceptance_length for each in found) for at in (0, 2)]
    median = statistics.median(free for free, _, _ in rates)
    row = (
        f"{median:,.0f}",
        f"{middle:.2f}",
        f"{low:.2f}-{high:.2f}",
        f"{schema:.2f}",
        f"{steps[0]:.1f}, {steps[1]:.1f}",
    )
    print(f"| {strategy} | {temperature} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
