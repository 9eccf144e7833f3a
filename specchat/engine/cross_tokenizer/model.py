"""A draft model that reads and proposes the target's tokens, although its own tokenizer differs.

`forward` returns the distribution of the target's next token, derived from that of the draft's next token:

- A token that both have takes its score over, so that the target's noise draws the same one. This alone is the
  vocabulary intersection of Timor et al. 2025.
- A longer draft token adds its probability to the target token that it begins with. The rest of the likeliest draft
  token is proposed next without another pass.
- Where the likeliest draft token begins a token that only the target has, the draft runs on along that path while each
  next token is the likeliest. The spelled token takes the probability of its path.

Drafts are drawn from this distribution, however good it is, so all acceptance tests stay exact.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from specchat.engine.backends import NO_DRAFT
from specchat.engine.cross_tokenizer.retokenise import Retokenizer
from specchat.engine.cross_tokenizer.vocabulary_map import Path, VocabularyMap
from specchat.engine.decoding.cached import HostModel, LossyCache
from specchat.engine.decoding.row_invariance import ChainOnlyModel
from specchat.engine.model.tree_layout import shared_prefix
from specchat.engine.strategy import Feature

MAX_PATH_TOKENS = 16
"""Draft tokens that may spell one target token."""
UNBOUNDED = 1 << 30
MAX_LOGIT_ROWS = 8
"""Tokens of a pass that computes logits for each; a longer input is prefilled up to its last token."""
TRIALS, MIN_HIT_RATE = 2, 0.5
"""A path is followed this many times at first, then while this share of attempts has spelled more of a token."""
TREES_UNSUPPORTED = "the draft's tokens differ from the target's: what follows a place is found by going on from it"


class LogitMap:
    """Logits of draft tokens, as those of the target tokens that they begin with."""

    def __init__(self, to_target: Mapping[int, Path], draft_vocab: int, vocab: int) -> None:
        """Map logits of `draft_vocab` columns to `vocab`."""
        first = {token: tokens[0] for token, tokens in to_target.items() if tokens and token < draft_vocab}
        self._draft_tokens = torch.tensor(list(first), dtype=torch.int64)
        self._targets = torch.tensor(list(first.values()), dtype=torch.int64)
        """Target token that each of the draft tokens begins with."""
        self._sources = torch.zeros(vocab, dtype=torch.int64).index_copy_(0, self._targets, self._draft_tokens)
        """Draft token for each target token; arbitrary where there are none or several."""
        counts = torch.bincount(self._targets, minlength=vocab)
        self._absent = counts == 0
        self._any_absent, self._merges = bool(self._absent.any()), int(counts.max()) > 1

    def __call__(self, row: Tensor) -> Tensor:
        """Logits float32 [vocab]; draft tokens with the same beginning add their probabilities."""
        if self._merges:
            largest = row.max()
            weights = (row - largest).exp_().index_select(0, self._draft_tokens)
            return torch.zeros(len(self._sources)).index_add_(0, self._targets, weights).log_().add_(largest)
        logits = row.index_select(0, self._sources)
        return logits.masked_fill_(self._absent, -torch.inf) if self._any_absent else logits


class FollowedPaths:
    """Record of the paths that were followed, and of how often the next token went on along them."""

    def __init__(self) -> None:
        self._followed, self._hits = Counter[Path](), Counter[Path]()

    def add(self, path: Path, hit: bool) -> None:
        self._followed[path] += 1
        self._hits[path] += hit

    def pays(self, path: Path) -> bool:
        """True if a path should be followed; most words only begin rare longer ones."""
        followed = self._followed[path]
        return followed < TRIALS or self._hits[path] >= MIN_HIT_RATE * followed


class CrossTokenizerModel(ChainOnlyModel):
    """A draft model in the target's tokens.

    Of an input longer than the draft's own context, the draft reads the end.
    """

    program = "a draft with another tokenizer"
    context = UNBOUNDED

    def __init__(self, model: HostModel, vocabulary_map: VocabularyMap, vocab: int) -> None:
        """Wrap `model` for a target whose logits have `vocab` columns."""
        self.vocab = vocab
        self.model = model
        self.vocabulary_map = vocabulary_map
        self._retokenizer = Retokenizer(vocabulary_map)
        self._cached: list[int] = []
        """Draft tokens in the model's KV cache, from position `_from` of the input on."""
        self._from = 0
        self._rows: dict[int, Tensor] = {}
        """Draft logits by the number of cached tokens before them."""
        self._followed = FollowedPaths()
        self._pending: tuple[int, Path] = 0, ()
        """An input length, and target tokens to propose next if the first of them is put there."""
        self._logit_map = LogitMap(vocabulary_map.to_target, model.vocab, vocab)

    @property
    def block(self) -> int:
        return self.model.block

    def run(self, tokens: Sequence[int], start: int) -> Tensor:
        """Put `tokens` at position `start`; return logits float32 [1, vocab] after the last one."""
        length, pending = self._pending
        self._put(tokens, start)
        if start == length and list(tokens) == list(pending[:1]) and len(pending) > 1:
            self._pending = length + 1, pending[1:]
            certain = torch.full((1, self.vocab), -torch.inf)
            certain[0, pending[1]] = 0.0
            return certain
        return self._distribution(start + len(tokens))[None]

    def write(self, tokens: Sequence[int], start: int) -> None:
        """Put `tokens` at position `start`; the last word is read once it is complete."""
        self._put(tokens, start)
        self._read(self._retokenizer.draft_tokens[self._from : self._retokenizer.settled])

    def parameters(self) -> int:
        return self.model.parameters()

    def memory(self) -> int:
        return self.model.memory()

    def _put(self, tokens: Sequence[int], start: int) -> None:
        self._pending = 0, ()
        unchanged = max(0, self._retokenizer.put(tokens, start) - self._from)
        draft_tokens, window = self._retokenizer.draft_tokens, self.model.context - MAX_PATH_TOKENS
        if not 0 < len(draft_tokens) - self._from <= window:
            self._from = 0 if len(draft_tokens) <= window else len(draft_tokens) - window // 2
            unchanged = 0
        # Beyond them the cache may hold tokens of a path that the draft has followed already.
        unchanged = min(unchanged, len(self._cached))
        unchanged += shared_prefix(self._cached[unchanged:], draft_tokens[self._from + unchanged :])
        if isinstance(self.model, LossyCache):
            unchanged = self.model.reusable(unchanged, len(self._cached))
        self._truncate(unchanged)

    def _truncate(self, length: int) -> None:
        del self._cached[length:]
        self._rows = {after: row for after, row in self._rows.items() if after <= length}

    def _read(self, draft_tokens: Sequence[int]) -> None:
        """Extend the cache to `draft_tokens`; one of them is a prefix of the other."""
        while block := draft_tokens[len(self._cached) : len(self._cached) + self.model.block]:
            self.model.write(block, len(self._cached))
            self._cached += block

    def _row(self, draft_tokens: Sequence[int]) -> Tensor:
        if len(draft_tokens) not in self._rows:
            self._truncate(min(len(self._cached), len(draft_tokens) - 1))
            if len(draft_tokens) - len(self._cached) > MAX_LOGIT_ROWS:
                self._read(draft_tokens[:-1])
            hidden = self.model.forward(draft_tokens[len(self._cached) :], len(self._cached))
            self._cached += draft_tokens[len(self._cached) :]
            self._rows[len(draft_tokens)] = self.model.logits(hidden[-1:])[0].clone()
        return self._rows[len(draft_tokens)]

    def _distribution(self, length: int) -> Tensor:
        """Logits float32 [vocab] of the target's next token after its first `length` tokens."""
        draft_tokens = self._retokenizer.draft_tokens[self._from :] or [0]
        row = self._row(draft_tokens)
        self._rows = {len(draft_tokens): row}
        likeliest = int(row.numpy().argmax())
        path: Path = (likeliest,)
        if self._pays(path):
            return self._spelled(draft_tokens, row, path)
        logits = self._logit_map(row)
        parts = self.vocabulary_map.to_target.get(likeliest, ())
        if len(parts) > 1 and float((row[likeliest] - logits[parts[0]]).exp()) > 0.5:
            self._pending = length, parts
        return logits

    def _pays(self, path: Path) -> bool:
        return path in self.vocabulary_map.continuations and self._followed.pays(path)

    def _spelled(self, draft_tokens: Sequence[int], row: Tensor, path: Path) -> Tensor:
        """The distribution where the likeliest draft token may begin a longer target token."""
        known, total = self.vocabulary_map, row.logsumexp(0)
        probability = float((row[path[0]] - total).exp())
        others = row.clone()
        others[path[0]] = -torch.inf
        logits = self._logit_map(others)
        token = known.to_target.get(path[0], (None,))[0]

        def add(share: float) -> None:
            if token is not None and share > 0:
                logits[token] = torch.logaddexp(logits[token], total + torch.tensor(share).log())

        while len(path) < MAX_PATH_TOKENS and self._pays(path):
            next_probabilities = self._row([*draft_tokens, *path]).softmax(0)
            continuations = known.continuations[path]
            longer = next_probabilities[continuations]
            add(probability * max(0.0, 1.0 - float(longer.sum())))
            likeliest = int(next_probabilities.argmax())
            self._followed.add(path, likeliest in continuations)
            if likeliest not in continuations:
                return logits
            probability *= float(next_probabilities[likeliest])
            path = (*path, likeliest)
            token = known.spelled.get(path, token)
        add(probability)
        return logits


def wrap_draft(model: HostModel, vocabulary_map: VocabularyMap | None, vocab: int) -> HostModel:
    """Wrap `model` for a target of `vocab` logit columns; a draft with the target's tokenizer needs no map."""
    return model if vocabulary_map is None else CrossTokenizerModel(model, vocabulary_map, vocab)


def missing_features(draft: object) -> Mapping[Feature, str]:
    """Features that this draft lacks, with the reason."""
    if draft is None:
        return NO_DRAFT
    return {"draft trees": TREES_UNSUPPORTED} if isinstance(draft, CrossTokenizerModel) else {}
