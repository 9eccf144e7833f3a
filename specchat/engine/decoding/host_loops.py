"""Drafting loops on the host: copies, chains token by token or in one call, blocks, trees."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from torch import Tensor, stack, tensor
from torch.nn.functional import one_hot, pad

from specchat.engine.decoding import noise
from specchat.engine.decoding.cached import CachedModel, DraftsBlocks, DraftsChains, HostModel
from specchat.engine.decoding.draft import WIDTH, Block, Chain, Copy, Draft, Proposal, Role, Then, Tree
from specchat.engine.decoding.growth import Growth
from specchat.engine.decoding.length_policy import LengthPolicies, LengthPolicy
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.decoding.sampler import Sampler
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.model.passes import NOTHING, ChainParameters, PassRows
from specchat.engine.protocol.options import Acceptance, Sampling

PickOnDevice = Callable[[Tensor, int], tuple[int, float]]
"""Picks a token and its probability from logits float32 [1, vocab] on a device, given the node's number."""


@dataclass
class HostDraft:
    """A draft made by a loop.

    `sources` are the strategies that drafted it, the second one from token `switch` on. `copied` counts copied tokens
    before a chain. `early` are hidden states float32 [1, hidden] of nodes 0, 1, ... after the target's first `layers`
    layers, if these drafted.
    """

    strategy: str
    sources: tuple[str, ...]
    draft: Draft = field(default_factory=Draft)
    copied: int = 0
    switch: int = 0
    early: list[Tensor] = field(default_factory=list)
    layers: int = 0
    keep: Callable[[Sequence[int], int], None] | None = None
    """Writes KV entries of accepted tree nodes to the cache of the drafting model, from a position on."""

    def confidence(self) -> tuple[float | None, ...]:
        """Return the probability of each token, None for those copied beside a model's; empty if unknown."""
        sure = self.draft.confidence
        after = len(self.draft.tokens) - self.copied - len(sure) if sure else 0
        return (*[None] * self.copied, *sure, *[None] * after)


class HostLoops:
    """Drafting by models on the host, for a target there or on a device."""

    def __init__(
        self,
        models: Mapping[Role, CachedModel[HostModel]],
        vocab: int,
        policies: LengthPolicies,
        pick: PickOnDevice | None = None,
    ) -> None:
        """Create loops for a target with `vocab` columns of logits; draft logits are cut or padded to them.

        With `pick` the models' logits are on a device, which then picks the token.
        """
        self._models, self._vocab, self._policies, self._pick = models, vocab, policies, pick
        # Tested once: an isinstance test of a protocol takes longer than drafting a token.
        self._chainers = {role: one.model for role, one in models.items() if isinstance(one.model, DraftsChains)}
        self.begin(ReplyRules(Sampling()), [])

    def begin(self, rules: ReplyRules, prompt: Sequence[int]) -> None:
        """Begin a reply to `prompt`; nothing is drafted after its end."""
        self.ends, self._end_tokens = frozenset(rules.eos), np.array(sorted(rules.eos), np.int64)
        self.sampler = Sampler(rules.sampling, rules.constraint is not None)
        self.token_ids = list(prompt)
        self.history = self.sampler.history(prompt, rules.constraint, rules.begun)
        self.start("coupled")

    def start(self, acceptance: Acceptance) -> None:
        """Start a step; `q` is kept if the acceptance test needs it."""
        self.acceptance = acceptance
        self.timed = acceptance == "coupled" or self.sampler.greedy
        """True if drafts may depend on measured times, as the text does not depend on the draft."""
        self.drafting = HostDraft("", ())
        self._policies.start()

    def make(self, proposal: Proposal) -> HostDraft:
        """Draft as proposed."""
        self.drafting = drafting = HostDraft(proposal.strategy, (proposal.strategy,))
        match proposal:
            case Copy():
                drafting.draft = proposal
            case Tree():
                self._tree(proposal, drafting)
            case Then(_, copy, chain):
                drafting.sources, drafting.copied = (copy.strategy, chain.strategy), len(copy.tokens)
                drafting.switch = drafting.copied
                self._chain(chain, drafting, copy.tokens)
            case Chain():
                self._chain(proposal, drafting)
        self._cut(drafting)
        return drafting

    def _cut(self, drafting: HostDraft) -> None:
        """Cut a chain before the first token that the constraint does not allow, where no distribution has drawn it.

        A drawn one is allowed; the target rejects those of trees.
        """
        draft, constraint = drafting.draft, self.history.constraint
        whole = bool(draft.parents or draft.q or drafting.early) or (isinstance(draft, Copy) and draft.likeliest)
        if constraint is None or not draft.tokens or whole:
            return
        fitting = constraint.prefix(draft.tokens)
        if fitting == len(draft.tokens):
            return
        drafting.copied, drafting.switch = min(drafting.copied, fitting), min(drafting.switch, fitting)
        drafting.draft = Draft(draft.tokens[:fitting], confidence=draft.confidence[: fitting - drafting.copied])

    def _chain(self, chain: Chain, drafting: HostDraft, copied: Sequence[int] = ()) -> None:
        draft, follow = drafting.draft, chain.follow
        policy = self._policies.begin(chain.strategy, self.timed, isinstance(chain, Block))
        self._add(draft, copied)
        if isinstance(chain, Block):
            cast(DraftsBlocks, self._models[chain.model].model).wanted = chain.limit
        uncounted = slice(0, 0)
        """Tokens that the history does not have."""
        try:
            while (before := len(draft.tokens)) < chain.limit:
                in_one_call = self._draft_token(chain, drafting, policy)
                uncounted = slice(before, len(draft.tokens)) if in_one_call else uncounted
                # By drafted tokens only, not by the next one: the ratio test remains exact.
                ends = in_one_call or policy.ends_after(draft.confidence)
                if draft.tokens[-1] in self.ends:
                    break
                # After a chain drafted in one call a copy can only follow its end.
                if follow is not None and (
                    added := follow.copy(draft.tokens, lambda: policy.chance_after(draft.confidence))
                ):
                    drafting.strategy, drafting.sources = follow.joint, (chain.strategy, follow.strategy)
                    drafting.switch = len(draft.tokens)
                    self._add(draft, added)
                    break
                if ends:
                    break
        finally:
            for token in (*draft.tokens[: uncounted.start], *draft.tokens[uncounted.stop :]):
                self.history.pop(token)

    def _add(self, draft: Draft, copied: Sequence[int]) -> None:
        """Add copied tokens; their `q` is one-hot."""
        for token in copied:
            draft.tokens.append(token)
            self.history.push(token)
            if self.acceptance != "coupled":
                draft.q.append(one_hot(tensor(token), self._vocab).double())

    def _draft_token(self, chain: Chain, drafting: HostDraft, policy: LengthPolicy | None) -> bool:
        """Draft one more token, or several in one call with a `policy`; return True for the latter."""
        draft, node, model = drafting.draft, len(drafting.draft.tokens), self._models[chain.model].model
        if chain.layers:
            hidden = self._run_first_layers(model, chain.layers, drafting)
            hidden = hidden if chain.adapt is None else chain.adapt(hidden)
        else:
            fed = draft.tokens[-1:]
            if node == drafting.copied:
                fed = [*self.token_ids[len(self._models[chain.model].tokens) :], *draft.tokens]
            start = len(self.token_ids) + node - len(fed)
            if several := self._draft_in_one_call(chain, policy, fed, start, node):
                tokens, confidence = zip(*several, strict=True)
                draft.tokens += tokens
                draft.confidence += confidence
                return True
            hidden = model.forward(fed, start, chain.skip or NOTHING)
        token, probability = self._pick_token(model, hidden, node, draft)
        if isinstance(chain, Block):
            # Some heads estimate the acceptance of their tokens.
            estimate = getattr(model, "chance", None)
            probability = probability if estimate is None else float(estimate)
        draft.tokens.append(token)
        draft.confidence.append(probability)
        self.history.push(token)
        return False

    def _run_first_layers(self, target: HostModel, layers: int, drafting: HostDraft) -> Tensor:
        assert isinstance(target, CachedDecoder)
        fed = drafting.draft.tokens[-1:] or self.token_ids[-1:]
        at = PassRows(fed, len(self.token_ids) - 1 + len(drafting.early))
        hidden = target.run_and_record(target.embed(fed), range(layers), at)
        drafting.early.append(hidden)
        drafting.layers = layers
        return hidden

    def _draft_in_one_call(
        self, chain: Chain, policy: LengthPolicy | None, fed: Sequence[int], start: int, node: int
    ) -> list[tuple[int, float]]:
        """Draft tokens after `fed` in one call; returns none if the model or the options do not allow it."""
        model, sampler = self._chainers.get(chain.model), self.sampler
        if policy is None or model is None or self.acceptance != "coupled" or not sampler.temperature_alone:
            return []
        if not self.timed:
            return []
        temperature = 0.0 if sampler.greedy else sampler.sampling.temperature
        vocab = min(self._models[chain.model].model.vocab, self._vocab)
        limit, seed, (shares, least) = chain.limit - node, sampler.sampling.seed & noise.WORD, policy.known()
        parameters = ChainParameters(limit, vocab, temperature, seed, shares, policy.chance, least, self._end_tokens)
        return model.draft_chain(fed, start, parameters, chain.skip or NOTHING)

    def _pick_token(self, model: HostModel, hidden: Tensor, node: int, draft: Draft) -> tuple[int, float]:
        """Pick the token after a node of a chain by the target's options and noise; return its probability as well."""
        # Other acceptance tests need drafts independent of the noise that the device judges with.
        if self._pick is not None and self.timed:
            return self._pick(model.logits(hidden[-1:]), node)
        scores = self.sampler.scores(self._logits(model, hidden, 1)[0], self.history)
        stream = noise.LATER + node if node and self.acceptance == "block" else noise.TOKEN
        token = self.sampler.pick(scores, len(self.token_ids) + node, stream)
        if self.acceptance != "coupled":
            draft.q.append(self.sampler.probabilities(scores))
        return token, self.sampler.probability(scores, token)

    def _tree(self, tree: Tree, drafting: HostDraft) -> None:
        cached, growth = self._models[tree.model], Growth(tree.least)
        model, last = cached.model, len(self.token_ids) - 1
        for level in range(min(tree.limit, tree.levels)):
            found = len(growth)
            if level:
                hidden = model.forward(growth.tokens(growth.frontier), last, NOTHING, growth.layout())
            else:
                hidden = model.forward(self.token_ids[len(cached.tokens) :], len(cached.tokens), NOTHING)
            self._branch(self._logits(model, hidden, len(growth.frontier)), growth, level)
            growth.advance(found)
            if not growth.frontier:
                break
        drafting.draft, order = growth.best(tree.limit)
        drafting.keep = lambda path, start: model.keep(growth.rows([order[node - 1] for node in path]), start)

    def _branch(self, logits: Tensor, growth: Growth, level: int) -> None:
        """Add WIDTH candidate children of each node of the frontier.

        They have the largest scores. Under `coupled` acceptance the noise that the target draws with is added first. A
        share is the softmax of this sum.
        """
        scores = stack([self._scores_after(growth, *of) for of in zip(growth.frontier, logits, strict=True)])
        noisy = self.acceptance == "coupled"
        likely = self.sampler.perturbed(scores, len(self.token_ids) + level) if noisy else scores
        shares, tokens = likely.softmax(-1).topk(WIDTH)
        probabilities = shares if likely is scores else scores.softmax(-1).gather(1, tokens)
        found = zip(growth.frontier, tokens.tolist(), probabilities.tolist(), shares.tolist(), strict=True)
        for parent, *rows in found:
            growth.add(parent, *rows)

    def _scores_after(self, growth: Growth, node: int, logits: Tensor) -> Tensor:
        """Return processed scores float32 [vocab] after `node`, whose path counts for penalties."""
        before = growth.tokens(growth.path(node))
        for token in before:
            self.history.push(token)
        scores = self.sampler.scores(logits, self.history)
        for token in before:
            self.history.pop(token)
        return scores

    def _logits(self, model: HostModel, hidden: Tensor, rows: int) -> Tensor:
        """Return logits float32 [rows, vocab] of the last rows of a pass, on the host."""
        logits = model.logits(hidden[-rows:]).cpu()
        missing = self._vocab - logits.shape[1]
        return pad(logits, (0, missing), value=float("-inf")) if missing else logits

    def commit(self, tokens: Sequence[int], path: Sequence[int]) -> None:
        """Add `tokens` of a step to the text; the first ones are the nodes of `path`."""
        if self.drafting.keep is not None and path:
            self.drafting.keep(path, len(self.token_ids))
        self.token_ids += tokens
        for token in tokens:
            self.history.push(token)

    def rewind(self, token_ids: Sequence[int]) -> None:
        """Set the text back to `token_ids`."""
        for token in self.token_ids[len(token_ids) :]:
            self.history.pop(token)
        del self.token_ids[len(token_ids) :]
