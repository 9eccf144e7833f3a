"""Measures on a pair's own target what rounding rows does to it: its distributions beside those of float32 rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from torch import Tensor

from specchat.engine.divergence import Divergence, log_probabilities
from specchat.engine.fetch.hub import locate
from specchat.engine.formats.activations import rounding_of
from specchat.engine.memory.devices import Machine, place, this_machine
from specchat.engine.protocol.events import Loading
from specchat.engine.protocol.options import Message
from specchat.engine.protocol.pair import Activations, PairSpec
from specchat.engine.runners.host import host_model
from specchat.engine.weights.checkpoint import Checkpoint

TOKENS = 512
"""Tokens that are compared, one text where the model is not shorter."""


def run(
    pair: PairSpec, chats: Sequence[tuple[Message, ...]], progress: Callable[[Loading], None]
) -> dict[Activations, Divergence]:
    """Compare the target of a pair on a CPU over the first TOKENS of `chats`; forms are loaded one after another.

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
    target, length = replace(target, head=found.head), min(TOKENS, target.config.longest)
    texts = [tokens[first : first + length] for first in range(0, len(tokens), length)]

    def after_each(form: Activations) -> Iterator[Tensor]:
        """Logarithms of the probabilities after each token, with rows of a form."""
        progress(Loading(f"reading {source.short} with {form} rows", 0.1))
        running = host_model(replace(target, activations=form), length, model.quant)
        for text in texts:
            for rows in log_probabilities(running, text):
                yield rows.float()

    whole = [*after_each("float32")]
    forms = model.held.forms(found.head)[1:]
    return {form: Divergence.of(zip(whole, after_each(form), strict=True)) for form in forms}
