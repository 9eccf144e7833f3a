"""The tables and keys of models.toml."""

from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from specchat.config.checks import MissingKey, Table, matching
from specchat.config.errors import nearest
from specchat.engine.backends import (
    BACKENDS,
    DEFAULT_BACKEND,
    GGUF_BACKEND,
    HF_BACKEND,
    REMOTE_BACKEND,
    declared,
)
from specchat.engine.foreign import shown
from specchat.engine.protocol.options import Acceptance
from specchat.engine.protocol.pair import (
    Activations,
    CacheType,
    Device,
    KvCache,
    QuantisedHead,
    ServerKind,
    Wanted,
    is_gguf,
)
from specchat.engine.protocol.ranges import SAMPLING
from specchat.engine.strategies import HEADS, STRATEGIES
from specchat.engine.strategy import MAX_DRAFT_LENGTH


def _known_strategy(name: str) -> str:
    if name not in STRATEGIES:
        raise ValueError(f'there is no strategy "{name}" ({", ".join(STRATEGIES)}).{nearest(name, STRATEGIES)}')
    return name


def _known_head(name: str) -> str:
    if name not in HEADS:
        raise ValueError(f'there are no heads "{name}" ({", ".join(HEADS)}).{nearest(name, HEADS)}')
    return name


def _known_backend(name: str) -> str:
    if name not in BACKENDS:
        raise ValueError(f'there is no backend "{name}" ({", ".join(BACKENDS)}).{nearest(name, BACKENDS)}')
    return name


def _server_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"should be an address like http://127.0.0.1:8080, not {shown(url)}.")
    if "@" in parts.netloc:
        raise ValueError("a key in an address would be shown: put it into an environment variable, named by key_env.")
    if parts.query or parts.fragment:
        raise ValueError("an address ends with its path: leave out what follows ? or #.")
    return url


def _gguf_name(name: str) -> str:
    if not is_gguf(name) or "/" in name:
        raise ValueError(f'"{name}" is no name of a .gguf file at the top of a repository.')
    return name


LEAST_CONTEXT = 16


def _in_one_sentence(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    try:
        return check(value)
    except ValidationError:
        words = f'should be a number of tokens, {LEAST_CONTEXT} or more, or "auto", not {shown(value)}.'
        raise ValueError(words) from None


Strategy = Annotated[str, AfterValidator(_known_strategy), Field(json_schema_extra={"enum": list(STRATEGIES)})]
HeadName = Annotated[str, AfterValidator(_known_head), Field(json_schema_extra={"enum": list(HEADS)})]
Backend = Annotated[str, AfterValidator(_known_backend), Field(json_schema_extra={"enum": list(BACKENDS)})]
Name = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]*", "letters and digits, with . _ - between")]
Repo = Annotated[str, matching(r"[\w.-]+/[\w.-]+", "OWNER/NAME as on huggingface.co")]
Context = Annotated[Annotated[int, Field(ge=LEAST_CONTEXT)] | Literal["auto"], WrapValidator(_in_one_sentence)]
Gib = Annotated[float, Field(gt=0)]
MOST_THREADS = 512


def _ranged(option: str) -> Any:
    """A field for a sampling option, in its range."""
    span = SAMPLING[option]
    low, least = (span.low, None) if span.above else (None, span.low)
    return Field(gt=low, ge=least, le=span.high)


def _check_place(*places: str | None) -> None:
    if sum(place is not None for place in places) != 1:
        raise ValueError("give one of repo, path and builtin.")


GGUF_KEYS = ("gpu_layers", "threads", "cache", "flash_attention")
"""Options of a model that llama.cpp runs; see `engine.pair.GgufOptions`."""


ROUNDINGS = ("activations", "head")
"""Keys of a pair for all its models, which each model may have too."""


class ModelTable(Table):
    """One model: `repo` (with `revision`), `path` or `builtin` says where it is; see `engine.pair.ModelSource`."""

    repo: Repo | None = None
    path: Annotated[str, Field(min_length=1)] | None = None
    builtin: Literal["target", "draft"] | None = None
    revision: str | None = None
    quant: Wanted | None = None
    device: Device = "auto"
    activations: Activations | None = None
    head: QuantisedHead | None = None
    file: Annotated[str, AfterValidator(_gguf_name)] | None = None
    gpu_layers: Annotated[int, Field(ge=0)] | None = None
    threads: Annotated[int, Field(ge=1, le=MOST_THREADS)] | None = None
    cache: CacheType | None = None
    flash_attention: bool | None = None

    @property
    def is_gguf(self) -> bool:
        return self.file is not None or is_gguf(self.path or "")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        _check_place(self.repo, self.path, self.builtin)
        if self.revision is not None and self.repo is None:
            raise ValueError("revision goes with repo only.")
        if self.file is not None and self.repo is None:
            raise ValueError("file goes with repo only: a path names the file itself.")
        if self.is_gguf and self.quant is not None:
            raise ValueError("a .gguf file is quantised when it is made: choose another file in the place of quant.")
        if self.cache == "q8_0" and not self.flash_attention:
            raise ValueError('cache = "q8_0" needs flash_attention = true.')
        return self


class HeadTable(Table):
    """Trained heads: `repo` (with `revision`), `path` or `builtin` says where they are."""

    repo: Repo | None = None
    path: Annotated[str, Field(min_length=1)] | None = None
    builtin: Literal["medusa", "eagle3", "dflash"] | None = None
    revision: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        _check_place(self.repo, self.path, self.builtin)
        if self.revision is not None and self.repo is None:
            raise ValueError("revision goes with repo only.")
        return self


class ExitTable(Table):
    """An adapter for `early-exit`, in the folder `path`; see `engine.model.exit_adapter`."""

    path: Annotated[str, Field(min_length=1)]


Layer = Annotated[int, Field(ge=0)]


class SkipTable(Table):
    """Layers whose attention or MLP `swift` leaves out; see `engine.pair.SkippedLayers`."""

    attention: list[Layer] = Field(default_factory=list)
    mlp: list[Layer] = Field(default_factory=list)


class StrategyTable(Table):
    length: Annotated[int, Field(ge=1, le=MAX_DRAFT_LENGTH)]


class RequiresTable(Table):
    vram_gib: Gib | None = None
    experts_gib: Gib | None = None
    ram_gib: Gib | None = None
    disk_gib: Gib | None = None
    step_gib: Gib | None = None


class SamplingTable(Table):
    """See `engine.options.Sampling`."""

    temperature: Annotated[float, _ranged("temperature")] = 0.0
    top_k: Annotated[int, _ranged("top_k")] = 0
    top_p: Annotated[float, _ranged("top_p")] = 1.0
    min_p: Annotated[float, _ranged("min_p")] = 0.0
    repetition_penalty: Annotated[float, _ranged("repetition_penalty")] = 1.0
    presence_penalty: Annotated[float, _ranged("presence_penalty")] = 0.0
    frequency_penalty: Annotated[float, _ranged("frequency_penalty")] = 0.0


SERVER_KEYS = ("url", "kind", "model", "key_env", "keyring", "tokenizer", "plain")
"""Keys of a pair that a server runs; see `engine.pair.Server`."""
LOCAL_KEYS = (
    "target",
    "draft",
    "draft_vocabulary",
    "heads",
    "cache",
    *ROUNDINGS,
    "exit_layer",
    "exit",
    "skip",
    "trust_remote_code",
    "strategies",
)
"""Keys of a pair that has models here."""


ArgumentName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,60}$")]


class PairTable(Table):
    id: Name
    name: str | None = None
    licence: str | None = None
    aliases: list[Name] = Field(default_factory=list)
    variant_of: Name | None = None
    backend: Backend = DEFAULT_BACKEND
    target: ModelTable | None = None
    url: Annotated[str, AfterValidator(_server_url)] | None = None
    kind: ServerKind | None = None
    model: Annotated[str, Field(max_length=400)] | None = None
    key_env: Annotated[str, matching(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable")] | None = None
    keyring: Name | None = None
    tokenizer: Annotated[str, Field(min_length=1)] | None = None
    plain: Name | None = None
    draft: ModelTable | None = None
    draft_vocabulary: Annotated[str, Field(min_length=1)] | None = None
    heads: dict[HeadName, HeadTable] = Field(default_factory=dict)
    exit_layer: Annotated[int, Field(ge=1)] | None = None
    exit: ExitTable | None = None
    skip: SkipTable | None = None
    template: dict[ArgumentName, bool | int | Annotated[str, Field(max_length=200)]] = Field(default_factory=dict)
    context: Context | None = None
    cache: KvCache | None = None
    activations: Activations | None = None
    head: QuantisedHead | None = None
    trust_remote_code: bool = False
    strategy: Strategy | None = None
    acceptance: Acceptance = "coupled"
    strategies: dict[Strategy, StrategyTable] = Field(default_factory=dict)
    requires: RequiresTable = RequiresTable()
    sampling: SamplingTable = SamplingTable()

    @model_validator(mode="after")
    def _place_fits(self) -> Self:
        remote = self.backend == REMOTE_BACKEND
        for key in LOCAL_KEYS if remote else SERVER_KEYS:
            if getattr(self, key):
                where = "does not go" if remote else "goes"
                raise ValueError(f'{key} {where} with backend = "{REMOTE_BACKEND}"{"" if remote else " only"}.')
        if self.url is None if remote else self.target is None:
            raise MissingKey("url" if remote else "target")
        return self

    @model_validator(mode="after")
    def _draft_exists(self) -> Self:
        facts = declared(self.draft is not None, self.heads, self.backend)
        if self.strategy is not None and (reason := STRATEGIES[self.strategy].unsupported(facts)):
            raise ValueError(f'strategy "{self.strategy}" cannot be used: {reason}.')
        return self

    @model_validator(mode="after")
    def _backend_fits(self) -> Self:
        if self.trust_remote_code and self.backend != HF_BACKEND:
            raise ValueError(f'trust_remote_code goes with backend = "{HF_BACKEND}" only.')
        for key in ("cache", *ROUNDINGS, "exit_layer", "exit", "skip"):
            models = (self, self.target, self.draft) if key in ROUNDINGS else (self,)
            if self.backend != DEFAULT_BACKEND and any(getattr(one, key, None) is not None for one in models):
                raise ValueError(f'{key} goes with backend = "{DEFAULT_BACKEND}" only.')
        if self.context == "auto" and self.backend != DEFAULT_BACKEND:
            raise ValueError(f'context = "auto" goes with backend = "{DEFAULT_BACKEND}" only.')
        if self.target is None:
            return self
        if self.backend == GGUF_BACKEND:
            # A path may lead to a GGUF file of another name, as Ollama's are.
            if not self.target.is_gguf and self.target.path is None:
                raise ValueError("backend gguf needs a .gguf file as its target: a path, or a repo with file.")
            return self
        for model in (self.target, self.draft):
            if model is not None and model.is_gguf and self.backend != DEFAULT_BACKEND:
                raise ValueError(f'a .gguf file runs without a backend or with backend = "{GGUF_BACKEND}".')
            if model is not None and (given := [key for key in GGUF_KEYS if getattr(model, key) is not None]):
                raise ValueError(f'{given[0]} goes with backend = "{GGUF_BACKEND}" only.')
        return self


class ModelsFile(Table):
    # "schema" itself shadows a method of pydantic's.
    version: Literal[1] = Field(alias="schema")
    default: str | None = None
    pair: list[PairTable] = Field(default_factory=list)
