"""Drafts on the host: how they are read, conditions of cross-tokenizer drafting, and its notes."""

from dataclasses import replace

from specchat.engine.cross_tokenizer.vocabulary_map import VocabularyMap
from specchat.engine.errors import EngineError, ModelError
from specchat.engine.formats.activations import HeldFormats, rounding_of
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.runners.host import NativeModel, host_model
from specchat.engine.text.tokenizer import Tokenizer, same_tokens
from specchat.engine.weights.checkpoint import Checkpoint


def host_draft(pair: PairSpec, source: ModelSource, checkpoint: Checkpoint, context: int) -> NativeModel:
    """Load a draft for a native decoder, for a target that another program runs.

    Raises:
        ModelError: weights missing, damaged or of other shapes, or settings that it cannot have.
    """
    quant, head = checkpoint.kept(source.quant), checkpoint.config.recipe.head
    found = rounding_of(pair, source, HeldFormats(checkpoint.format, quant, (head.names[0], head.inputs)), drafts=True)
    return host_model(replace(checkpoint, activations=found.activations, head=found.head), context, quant)


def vocabulary_map_of(pair: PairSpec, target: Tokenizer, draft: Tokenizer) -> VocabularyMap | None:
    """The vocabulary map of a pair's models; None where their tokens are the same.

    Raises:
        ModelError: they have none in common.
    """
    if same_tokens(target, draft):
        return None
    vocabulary_map = VocabularyMap.of(target, draft)
    if not vocabulary_map.to_target:
        assert pair.draft is not None
        raise ModelError(
            f"{pair.draft.label} cannot draft for {pair.target.label}: no token of its own says anything in the "
            "target's. Use a draft of the same family, or none."
        )
    return vocabulary_map


def on_the_host(pair: PairSpec) -> PairSpec:
    """`pair` with its draft on the host, where tokens are mapped.

    Raises:
        EngineError: "config": the draft is to run on the GPU.
    """
    assert pair.draft is not None
    draft: ModelSource = pair.draft
    if draft.device not in ("auto", "cpu"):
        raise EngineError(
            "config",
            f'{draft.label} asks for device = "{draft.device}", but its tokens differ from the target\'s and are '
            'translated on the CPU. Say device = "cpu" for the draft, or take a draft of the same family.',
        )
    return replace(pair, draft=replace(draft, device="cpu"))


def unrestricted(pair: PairSpec, reason: str) -> str:
    """A sentence that the draft vocabulary is not used; empty where there is none."""
    return f"{pair.id} drafts with its whole vocabulary: {reason}." if pair.draft_vocabulary else ""


def words_of(vocabulary_map: VocabularyMap | None) -> str:
    """The note about cross-tokenizer drafting, if any."""
    return "" if vocabulary_map is None else vocabulary_map.summary


def noted(*notes: str) -> str:
    """Join the notes that are not empty."""
    return "; ".join(note for note in notes if note)
