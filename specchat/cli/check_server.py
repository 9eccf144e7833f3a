"""`specchat check` of a pair that a server runs: is its text the one that it writes without drafting?"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import isinf

from specchat.bench.prompts import ChatPrompt
from specchat.clean import one_line
from specchat.cli.exit_codes import ExitCode
from specchat.cli.interrupt import Interrupt
from specchat.cli.output import Output, Problem, ProgressLine
from specchat.engine.protocol.pair import PairSpec
from specchat.remote import lossless
from specchat.remote.lossless import GreedyResult, SampledResult, TextComparison
from specchat.remote.sampled_texts import Z_LIMIT
from specchat.remote.server_replies import ServerReplies
from specchat.remote.written_replies import ReplyWriter

TOKENS, QUICK_TOKENS = 200, 64
SAMPLED_TOKENS = 24
DRAWS, QUICK_DRAWS = 24, 8
WORDS = {
    "equal": "equal",
    "tie": "equal but for a near tie",
    "wrong": "different",
    "unknown": "different, and no server tells how near the tokens were",
}
WHAT_IT_NEEDS = (
    "Whether drafting changes its text was not checked: that takes the same model on a server without drafting. "
    "Start one (specchat serve-command shows how), add it to models.toml, and name it by --against, "
    "or once for all by plain in models.toml."
)


def check_server(
    tested: PairSpec, against: PairSpec | None, prompts: list[ChatPrompt], full: bool, interrupt: Interrupt
) -> bool:
    """Check a server, and say what was found; True if its text holds.

    Raises:
        EngineError: a server fails.
        Problem: there is nothing to compare with.
    """
    out, progress = Output(), ProgressLine()
    chats = [(prompt.id, prompt.messages) for prompt in prompts]
    with ExitStack() as stack:
        server = stack.enter_context(ServerReplies(tested))
        out.write(f"{server.name}: {server.place}\n")
        if server.drafts is False:
            raise Problem(f"{server.name} was started without drafting: there is nothing to check.", ExitCode.USAGE)
        reference = stack.enter_context(_reference(server, tested, against, progress))
        if reference is not None:
            out.write(f"against {reference.name}: {reference.place}\n")
            if reference.drafts:
                progress.note(f"{reference.name} drafts too: if both are wrong in the same way, it is not seen.")
        found: list[GreedyResult] = []
        for result in lossless.greedy(server, reference, chats, TOKENS if full else QUICK_TOKENS):
            found.append(result)
            progress.clear()
            out.write(_line(result, server, reference))
            if interrupt.pressed:
                return _holds(found)
            progress.show(f"{len(found)} of {len(chats)} prompts")
        progress.clear()
        if not found:
            raise Problem("No prompt fits the server's context. Take other prompts.", ExitCode.CONTEXT)
        if left_out := len(chats) - len(found):
            progress.note(f"{left_out} of {len(chats)} prompts do not fit the context and are left out.")
        if reference is None:
            out.write(_summary(found))
            raise Problem(WHAT_IT_NEEDS, ExitCode.USAGE)
        fitting = [chat for chat in chats if any(chat[0] == result.prompt for result in found)]

        def goes_on(replies: int) -> bool:
            progress.show(f"sampled: {replies} replies drawn")
            return not interrupt.pressed

        draws = DRAWS if full else QUICK_DRAWS
        drawn = lossless.sampled(server, reference, fitting, SAMPLED_TOKENS, draws, goes_on)
        progress.clear()
        out.write(_summary(found))
        if drawn is None:
            return _holds(found)
        out.write(_sampled_lines(drawn, server, reference))
        holds = _holds(found) and drawn.holds
        out.write(_advice(found, drawn, server.name) + "\n")
        return holds


@contextmanager
def _reference(
    server: ServerReplies, tested: PairSpec, against: PairSpec | None, progress: ProgressLine
) -> Iterator[ReplyWriter | None]:
    if against is not None and against.target.server is None:
        from specchat.cli.local_replies import LocalReplies
        from specchat.engine.loading import load

        session = load(against, progress.loading)
        progress.clear()
        yield LocalReplies(against, session)
    elif against is not None or server.undrafts:
        with ServerReplies(against or tested, undrafted=against is None) as reference:
            yield reference
    else:
        yield None


def _holds(found: list[GreedyResult]) -> bool:
    return all(outcome in ("equal", "tie") for result in found for outcome in result.outcomes)


def _line(result: GreedyResult, server: ReplyWriter, reference: ReplyWriter | None) -> str:
    parts = [f"{one_line(result.prompt, 40)}  repeated: {WORDS[result.repeat.outcome]}"]
    if result.text is not None:
        parts[0] += f"  without drafting: {WORDS[result.text.outcome]}"
    parts += _difference(result.repeat, server.name, f"{server.name}, again")
    if result.text is not None and reference is not None:
        parts += _difference(result.text, server.name, reference.name)
    return "\n".join(parts) + "\n"


def _difference(found: TextComparison, one: str, other: str) -> list[str]:
    if found.outcome == "equal":
        return []
    where = "" if found.token is None else f" at token {found.token}"
    near = ""
    if found.margin is not None:
        near = ", which is not among the likeliest" if isinf(found.margin) else f", margin {found.margin:.3g}"
    width = max(len(one), len(other))
    return [
        f"  first difference{where}{near}",
        f"  {one:{width}}  {found.one!r}",
        f"  {other:{width}}  {found.other!r}",
    ]


def _summary(found: list[GreedyResult]) -> str:
    repeats = sum(result.repeat.outcome == "equal" for result in found)
    lines = [f"{repeats} of {len(found)} greedy replies were the same when repeated."]
    texts = [result.text.outcome for result in found if result.text is not None]
    if texts:
        ties = f", {texts.count('tie')} but for a near tie" if "tie" in texts else ""
        lines.append(f"{texts.count('equal')} of {len(texts)} greedy replies are those without drafting{ties}.")
    return "\n".join(lines) + "\n"


def _sampled_lines(found: SampledResult, server: ReplyWriter, reference: ReplyWriter) -> str:
    seeds = "; ".join(
        f"{writer.name} {'repeats' if writer.name in found.seeded else 'does not repeat'} a reply by its seed"
        for writer in (server, reference)
    )
    lines = [f"sampled at T={lossless.TEMPERATURE:g}: {seeds}."]
    if found.same_text is not None:
        lines.append(f"{found.same_text} of {found.replies} sampled replies are those without drafting.")
    else:
        verdict = "yes" if found.holds else "no"
        beyond = f"{found.deviation:.1f} standard errors from chance, where {Z_LIMIT:g} are wrong text"
        lines.append(f"sampled texts follow one distribution: {verdict}  ({found.replies} replies each, {beyond})")
    if not found.holds:
        width = max(len(server.name), len(reference.name))
        for name, text in ((server.name, found.one), (reference.name, found.other)):
            lines.append(f"  {name:{width}}  {text[:80]!r}")
    return "\n".join(lines) + "\n"


def _advice(found: list[GreedyResult], drawn: SampledResult, name: str) -> str:
    """The outcome and what to do about it, in a sentence."""
    greedy = _holds(found)
    if greedy and drawn.holds:
        return f"Drafting does not change the text of {name}, as far as these prompts show."
    if greedy:
        return f"Do not sample from {name} with drafting until that is fixed, and report the lines above to its makers."
    return f"Do not use {name} with drafting until that is fixed, and report the lines above to its makers."
