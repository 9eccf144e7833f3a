"""A draft model that reads and speaks the target's tokens, whatever its own are.

What it is asked after is the law of the target's next token. The draft gives that of its own next token:

- where both have a token, its score is taken over, so that the target's noise draws the same one (this alone is the
  vocabulary intersection of Timor et al. 2025);
- the scores of the draft's longer tokens go to the target's token that they begin with, and what follows of the
  likeliest is said next without another pass;
- where the likeliest token begins one that only the target has, the draft goes on along the tokens that spell it, as
  far as they are the likeliest. What is spelt gets the chance of its path.

What is drafted is drawn from the law that comes of this, whatever it is worth: so all tests of drafts stay exact.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from specchat.engine.backends import NO_DRAFT
from specchat.engine.decoding.cached import HostModel
from specchat.engine.model.decoder import NOTHING, Skip
from specchat.engine.model.runs import Runs, shared_prefix
from specchat.engine.strategy import Feature
from specchat.engine.translation.dictionary import Dictionary, Path
from specchat.engine.translation.retelling import Retelling

DEEPEST = 16
"""Tokens that may spell one of the target's."""
UNBOUNDED = 1 << 30
FEW = 8
"""Tokens of a pass that makes logits for each; of more all but the last are read before."""
TRIALS, OFTEN = 2, 0.5
"""A path is gone on along so many times at first, then while this share of them has spelt more of a token."""
TREES = "the draft's tokens differ from the target's: what follows a place is found by going on from it"
"""Why there are no trees."""


class TranslatedModel:
    """As `decoding.host.HostModel` asks for, in the target's tokens. Not thread-safe.

    A text may be longer than the draft's own context: then it sees the end of it.
    """

    context = UNBOUNDED

    def __init__(self, model: HostModel, dictionary: Dictionary, vocab: int) -> None:
        """`vocab` is how many columns the target's logits have."""
        self.vocab = vocab
        self.model = model
        self.dictionary = dictionary
        self._told = Retelling(dictionary)
        self._held: list[int] = []
        """Its own tokens that the model's cache holds, those of the text from `_from` on."""
        self._from = 0
        self._rows: dict[int, Tensor] = {}
        """Its own logits after so many of its tokens in the cache."""
        self._looked, self._found = Counter[Path](), Counter[Path]()
        """How often it was gone on along a path, and how often that spelt more of a token."""
        self._promised: tuple[int, Path] = 0, ()
        """Tokens of the target that are said next where the text has this length and goes on with the first of them."""
        said = {token: tokens[0] for token, tokens in dictionary.said.items() if tokens and token < model.vocab}
        self._own = torch.tensor(list(said), dtype=torch.int64)
        self._to = torch.tensor(list(said.values()), dtype=torch.int64)
        """The target's token that each of these of its own begins with."""
        self._source = torch.zeros(vocab, dtype=torch.int64).index_copy_(0, self._to, self._own)
        """The draft's token for each of the target's, any one where there are none or several."""
        counts = torch.bincount(self._to, minlength=vocab)
        self._lacking = counts == 0
        self._lacks, self._merges = bool(self._lacking.any()), int(counts.max()) > 1

    @property
    def block(self) -> int:
        return self.model.block

    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, runs: Runs | None = None) -> Tensor:
        """Put `tokens` after the first `start` of what was read.

        Returns:
            float32 [1, vocab], what `logits` takes: of the last of them.
        """
        if runs is not None or skip != NOTHING:
            raise ValueError("a draft of other tokens is asked for chains, through all layers")
        length, promised = self._promised
        self._put(tokens, start)
        if start == length and list(tokens) == list(promised[:1]) and len(promised) > 1:
            self._promised = length + 1, promised[1:]
            said = torch.full((1, self.vocab), -torch.inf)
            said[0, promised[1]] = 0.0
            return said
        return self._law(start + len(tokens))[None]

    def logits(self, hidden: Tensor) -> Tensor:
        """What `forward` returned."""
        return hidden

    def keep(self, rows: Sequence[int], start: int) -> None:
        raise ValueError("a draft of other tokens is asked for chains")

    def write(self, tokens: Sequence[int], start: int) -> None:
        """Put `tokens` after the first `start` of what was read; the last word is read later, when it is whole."""
        self._put(tokens, start)
        self._read(self._told.own[self._from : self._told.settled])

    def next_logits(self, token: int, start: int) -> Tensor:
        """Logits float32 [vocab] after `token` at slot `start`."""
        return self.forward([token], start)[0]

    def guesses(self, tokens: Sequence[int], start: int, skip: Skip) -> list[int]:
        raise ValueError("a draft leaves out no layers")

    def parameters(self) -> int:
        """Number of weights."""
        return self.model.parameters()

    def memory(self) -> int:
        """Bytes held by the model."""
        return self.model.memory()

    def _put(self, tokens: Sequence[int], start: int) -> None:
        self._promised = 0, ()
        kept = max(0, self._told.put(tokens, start) - self._from)
        own, most = self._told.own, self.model.context - DEEPEST
        if not 0 < len(own) - self._from <= most:
            self._from = 0 if len(own) <= most else len(own) - most // 2
            kept = 0
        # Beyond it the cache may hold what the draft has spelt already.
        kept = min(kept, len(self._held))
        self._keep(kept + shared_prefix(self._held[kept:], own[self._from + kept :]))

    def _keep(self, length: int) -> None:
        del self._held[length:]
        self._rows = {after: row for after, row in self._rows.items() if after <= length}

    def _read(self, own: Sequence[int]) -> None:
        """Bring the cache to `own`, with which what it holds begins or the other way round."""
        while block := own[len(self._held) : len(self._held) + self.model.block]:
            self.model.write(block, len(self._held))
            self._held += block

    def _row(self, own: Sequence[int]) -> Tensor:
        """The model's own logits after `own`."""
        if len(own) not in self._rows:
            self._keep(min(len(self._held), len(own) - 1))
            if len(own) - len(self._held) > FEW:
                self._read(own[:-1])
            hidden = self.model.forward(own[len(self._held) :], len(self._held))
            self._held += own[len(self._held) :]
            self._rows[len(own)] = self.model.logits(hidden[-1:])[0].clone()
        return self._rows[len(own)]

    def _law(self, length: int) -> Tensor:
        """Scores float32 [vocab] of the target's next token after a text of so many of its tokens."""
        own = self._told.own[self._from :] or [0]
        row = self._row(own)
        self._rows = {len(own): row}
        likeliest = int(row.numpy().argmax())
        path: Path = (likeliest,)
        if self._worth(path):
            return self._spelt(own, row, path)
        law = self._carried(row)
        said = self.dictionary.said.get(likeliest, ())
        if len(said) > 1 and float((row[likeliest] - law[said[0]]).exp()) > 0.5:
            self._promised = length, said
        return law

    def _worth(self, path: Path) -> bool:
        """Whether to go on along a path that may spell a token: most words are the beginning of rare others."""
        if path not in self.dictionary.following:
            return False
        looked = self._looked[path]
        return looked < TRIALS or self._found[path] >= OFTEN * looked

    def _carried(self, row: Tensor) -> Tensor:
        """Its own scores as the target's; one that several begin with has the chances of all."""
        if self._merges:
            most = row.max()
            chances = (row - most).exp_().index_select(0, self._own)
            return torch.zeros(self.vocab).index_add_(0, self._to, chances).log_().add_(most)
        law = row.index_select(0, self._source)
        return law.masked_fill_(self._lacking, -torch.inf) if self._lacks else law

    def _spelt(self, own: Sequence[int], row: Tensor, path: Path) -> Tensor:
        """The law where the likeliest token may begin a longer one of the target's."""
        known, total = self.dictionary, row.logsumexp(0)
        chance = float((row[path[0]] - total).exp())
        without = row.clone()
        without[path[0]] = -torch.inf
        law = self._carried(without)
        token = known.said.get(path[0], (None,))[0]

        def add(share: float) -> None:
            if token is not None and share > 0:
                law[token] = torch.logaddexp(law[token], total + torch.tensor(share).log())

        while len(path) < DEEPEST and self._worth(path):
            shares = self._row([*own, *path]).softmax(0)
            nexts = known.following[path]
            longer = shares[nexts]
            add(chance * max(0.0, 1.0 - float(longer.sum())))
            likeliest = int(shares.argmax())
            self._looked[path] += 1
            self._found[path] += likeliest in nexts
            if likeliest not in nexts:
                return law
            chance *= float(shares[likeliest])
            path = (*path, likeliest)
            token = known.whole.get(path, token)
        add(chance)
        return law


def translated(model: HostModel, dictionary: Dictionary | None, vocab: int) -> HostModel:
    """`model` in the tokens of a target whose logits have `vocab` columns, as it is where it needs no `dictionary`."""
    return model if dictionary is None else TranslatedModel(model, dictionary, vocab)


def lacks_of(draft: object) -> Mapping[Feature, str]:
    """What a pair with this draft lacks that strategies need, and why."""
    if draft is None:
        return NO_DRAFT
    return {"draft trees": TREES} if isinstance(draft, TranslatedModel) else {}
