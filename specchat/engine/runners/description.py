"""Description of a loaded pair, as clients have it."""

from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.pair_info import LoadFacts, PairInfo, PairNotes, ReadTexts, TemplateFacts
from specchat.engine.runners.runner import Runner
from specchat.engine.text.habits import habits
from specchat.engine.text.tokenizer import Tokenizer


def described(pair: PairSpec, runner: Runner, tokenizer: Tokenizer, read: ReadTexts, note: str) -> PairInfo:
    """Describe a pair before its speed is measured; `read` are the bounds of texts that are kept."""
    chat = tokenizer.format
    return PairInfo(
        id=pair.id,
        name=pair.name,
        context=runner.context,
        target=runner.target_facts,
        draft=runner.draft_facts,
        strategies=runner.statuses,
        load=LoadFacts(runner.device, runner.gpu, runner.memory(), read=read, second_memory=runner.second_memory),
        notes=PairNotes(runner.exactness, note, _without_template(tokenizer)),
        template=TemplateFacts(habits(tokenizer), chat.choices, system_role=chat.system, tools=chat.tools is not None),
    )


def _without_template(tokenizer: Tokenizer) -> str:
    """A sentence if the model has no chat template; else ""."""
    reason = tokenizer.source.unsupported
    return f"{reason[:1].upper()}{reason[1:]}: the model goes on with your text as it stands." if reason else ""
