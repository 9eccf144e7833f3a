"""Turns errors of a hub into a sentence that says what to do."""

from collections.abc import Iterator
from errno import EDQUOT, EFBIG, EHOSTUNREACH, ENETUNREACH, ENOSPC
from socket import gaierror

from specchat.clean import one_line
from specchat.engine.errors import EngineError, ModelError
from specchat.engine.fetch.answer import Refused
from specchat.engine.fetch.source import Hub

DISK_FULL = (ENOSPC, EDQUOT, EFBIG)
_UNREACHABLE = (ENETUNREACH, EHOSTUNREACH)


def failure(hub: Hub, repo: str, error: Exception, had: bool = False) -> EngineError:
    """An EngineError with a message for the user; an `error` that is one already is returned.

    `had` is True if some bytes of `repo` had arrived.
    """
    from huggingface_hub.errors import HFValidationError

    if isinstance(error, EngineError):
        return error
    if isinstance(error, HFValidationError):
        return ModelError(f'repo = "{repo}" is no repository\'s name, which is owner/name.')
    return EngineError("download", _message(hub, repo, error, had))


def _message(hub: Hub, repo: str, error: Exception, had: bool) -> str:
    from huggingface_hub.errors import OfflineModeIsEnabled

    causes = list(_causes(error))

    def among(*kinds: type[BaseException]) -> bool:
        return any(isinstance(cause, kinds) for cause in causes)

    def numbered(*numbers: int) -> OSError | None:
        return next((c for c in causes if isinstance(c, OSError) and c.errno in numbers), None)

    status, code = (error.status, error.code) if isinstance(error, Refused) else (0, "")
    if among(OfflineModeIsEnabled):
        return f"HF_HUB_OFFLINE keeps {hub.host} from being asked for {repo}."
    if code == "GatedRepo" or status == 403:
        return f"{repo} needs permission: accept its terms at {hub.host}/{repo} and set HF_TOKEN."
    if code == "RevisionNotFound":
        return f"{repo} has no such revision at {hub.host}. Leave revision out for the newest."
    if status in (401, 404):
        return f"{hub.host} has no {repo}, or shows it only to some: check the name and HF_TOKEN."
    if status == 429:
        return f"{hub.host} was asked too often: try again in some minutes. HF_TOKEN raises the limit."
    if status >= 500:
        return f"{hub.host} does not work at the moment (error {status}): try again later."
    if status:
        return f"{hub.host} answered with error {status} where {repo} was asked for: try again later."
    if numbered(*DISK_FULL):
        return f"The disk is full: {repo} could not be downloaded. What was fetched is kept in {hub.cache}."
    if type(error) is TimeoutError:  # our own: bytes arrive, but too slowly
        return f"{hub.host} answers too slowly where {repo} is asked for: try again later."
    if type(error).__name__ in ("RemoteProtocolError", "ReadError", "ReadTimeout") and had:
        return f"The connection to {hub.host} broke off, and what came of {repo} is kept: the same goes on with it."
    if among(gaierror, ConnectionError, TimeoutError) or numbered(*_UNREACHABLE) or _without_answer(error):
        return f"No connection to {hub.host}, where {repo} was looked for."
    if (local := numbered(*(c.errno for c in causes if isinstance(c, OSError) and c.errno))) is not None:
        return f"{repo} could not be downloaded to {local.filename or hub.cache} ({local.strerror})."
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return f"{repo} could not be downloaded: {one_line(first, 200)}"


def _without_answer(error: Exception) -> bool:
    """True for errors of the HTTP library, which is httpx or httpx2 by the version of huggingface_hub."""
    return type(error).__module__.startswith("httpx")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
