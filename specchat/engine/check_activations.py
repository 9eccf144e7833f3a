"""Measures on a pair's own target what rows in 8 bits do to it: its distributions beside those of float32 rows."""

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
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.reference.layer import hidden_states, logits
from specchat.engine.reference.tensors import CheckpointTensors
from specchat.engine.weights.checkpoint import Checkpoint

TOKENS, TEXT = 512, 128
"""Tokens that are compared, and those of a text."""
SCORED_ROWS = 32
"""Rows that have logits at a time."""


def run(pair: PairSpec, chats: Sequence[tuple[Message, ...]], progress: Callable[[Loading], None]) -> Divergence:
    """Compare the target of a pair on a CPU, by the reference, over the first TOKENS of `chats`.

    Raises:
        EngineError: its matrices take no such rows, or it cannot be found, read, or held in memory.
    """
    source = replace(pair.target, device="cpu", activations="int8")
    alone = replace(pair, target=source, draft=None, heads={}, context=TEXT)
    target = Checkpoint.open(locate(source, progress))
    machine = Machine("it was not asked for", this_machine(alone).free)
    model = place(alone, target, None, TEXT, machine).plan.target
    found = rounding_of(alone, source, model.held)
    tokenizer = target.tokenizer()
    tokenizer.use(pair.template)
    tokens = [token for chat in chats for token in tokenizer.prompt(chat)][:TOKENS]
    progress(Loading(f"reading {source.short}", 0.1))
    tensors = CheckpointTensors(replace(target, head=found.head), model.quant)
    return Divergence.of(compared(target, tensors, tokens))


@torch.inference_mode()
def compared(target: Checkpoint, tensors: CheckpointTensors, tokens: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield logarithms of probabilities float64 [rows, vocab] with float32 and with int8 rows, text after text."""
    recipe = target.config.recipe
    scored = replace(recipe, head=tensors.head)
    for first in range(0, len(tokens), TEXT):
        text, states = torch.tensor(tokens[first : first + TEXT]), list[Tensor]()
        for form in (False, True):
            tensors.int8_rows = form
            states.append(hidden_states(recipe, text, tensors)[-1])
        for rows in zip(*(of_form.split(SCORED_ROWS) for of_form in states), strict=True):
            pair = list[Tensor]()
            for form, hidden in zip((False, True), rows, strict=True):
                tensors.int8_rows = form
                pair.append(logits(scored, hidden, tensors).double().log_softmax(-1))
            yield pair[0], pair[1]
