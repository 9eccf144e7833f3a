"""Descriptor of `auto`, a bandit over the other strategies (`bandit/`)."""

from specchat.engine.strategy import Strategy, resolved

STRATEGY = Strategy(
    name="auto",
    group="auto",
    title="Auto",
    summary="Chooses at each step the strategy that is expected to give the most tokens a second, plain included.",
    draft_length=15,
    notes="""Copies, a model, the pair's heads and plain are weighed at each step by measured costs and by how many
tokens were accepted (Leviathan et al. 2023, with costs): [auto.md](auto.md). *Pays* wherever anything does; it costs a
few percent where one strategy is best throughout.""",
    make=lambda parts: resolved("specchat.engine.bandit.drafter:make")(parts),
    needs=("choice",),
    drafts="what pays most",
)
