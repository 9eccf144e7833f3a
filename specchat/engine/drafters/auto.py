"""Descriptor of `auto`, a bandit over the other strategies (`bandit/`)."""

from specchat.engine.strategy import Strategy, resolved

STRATEGY = Strategy(
    name="auto",
    group="auto",
    title="Auto",
    summary="Takes at each step what is fastest by measurement, plain decoding included.",
    draft_length=15,
    notes="""A bandit over copies, the draft model, the pair's heads and plain. It goes by measured step costs and
acceptance (Leviathan et al. 2023): [auto.md](auto.md). *Pays* wherever any of them does. Where one strategy is best
throughout, it costs a few percent.""",
    make=lambda parts: resolved("specchat.engine.bandit.drafter:make")(parts),
    needs=("choice",),
    drafts="what pays most",
)
