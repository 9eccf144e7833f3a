"""Measures on a pair's own target what rounding rows does to it: its distributions beside those of float32 rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specchat.engine.divergence import Divergence
from specchat.engine.fetch.hub import locate
from specchat.engine.formats.activations import rounding_of
from specchat.engine.memory.devices import Machine, place, this_machine
from specchat.engine.protocol.events import Loading
from specchat.engine.protocol.options import Message
from specchat.engine.protocol.pair import Activations, PairSpec
from specchat.engine.recipe import Recipe
from specchat.engine.reference.layer import hidden_states, logits
from specchat.engine.reference.tensors import CheckpointTensors
from specchat.engine.weights.checkpoint import Checkpoint

TOKENS = 512
"""Tokens that are compared, one text where the model is not shorter: a matrix is dequantised for each text."""
SCORED_ROWS = 128
"""Rows that have logits at a time."""


def run(
    pair: PairSpec, chats: Sequence[tuple[Message, ...]], progress: Callable[[Loading], None]
) -> dict[Activations, Divergence]:
    """Compare the target of a pair on a CPU, by the reference, over the first TOKENS of `chats`.

    Returns the divergences by each form of rows that its matrices take.

    Raises:
        EngineError: it cannot be found, read, or held in memory.
    """
    source = replace(pair.target, device="cpu", activations="float32")
    alone = replace(pair, target=source, draft=None, heads={}, context=TOKENS)
    target = Checkpoint.open(locate(source, progress))
    machine = Machine("it was not asked for", this_machine(alone).free)
    model = place(alone, target, None, TOKENS, machine).plan.target
    found = rounding_of(alone, source, model.held)
    tokenizer = target.tokenizer()
    tokenizer.use(pair.template)
    tokens = [token for chat in chats for token in tokenizer.prompt(chat)][:TOKENS]
    progress(Loading(f"reading {source.short}", 0.1))
    tensors = CheckpointTensors(replace(target, head=found.head), model.quant)
    recipe, length = target.config.recipe, min(TOKENS, target.config.longest)

    def compared(form: Activations) -> Iterator[tuple[Tensor, Tensor]]:
        for first in range(0, len(tokens), length):
            text = tokens[first : first + length]
            whole, rounded = (probabilities(recipe, tensors, text, one) for one in ("float32", form))
            yield from zip(whole, rounded, strict=True)

    return {form: Divergence.of(compared(form)) for form in model.held.forms(found.head)[1:]}


@torch.inference_mode()
def probabilities(
    of: Recipe, tensors: CheckpointTensors, tokens: Sequence[int], activations: Activations
) -> Iterator[Tensor]:
    """Yield logarithms of the probabilities after each token of a text, float32 [rows, vocab], some rows at a time."""
    tensors.activations = activations
    hidden = hidden_states(of, torch.tensor(tokens), tensors)[-1]
    scored = replace(of, head=tensors.head)
    for rows in hidden.split(SCORED_ROWS):
        tensors.activations = activations  # another text may be under way
        yield logits(scored, rows, tensors).log_softmax(-1)
