"""Where a model's files are: a local folder, the Hugging Face cache, or a download into it."""

from collections.abc import Callable, Iterator
from errno import EHOSTUNREACH, ENETUNREACH, ENOSPC
from pathlib import Path
from socket import gaierror
from threading import Lock
from typing import Any

from specchat.engine.api import Loading, ModelSource
from specchat.engine.errors import EngineError, ModelError

WANTED = ["*.json", "*.safetensors", "*.jinja"]

Progress = Callable[[Loading], None]

_UNREACHABLE = (ENETUNREACH, EHOSTUNREACH)


def locate(source: ModelSource, progress: Progress) -> Path:
    """The folder that holds the checkpoint, downloaded first where needed.

    Environment: HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE and HF_TOKEN mean what they mean to huggingface_hub.

    Raises:
        ModelError: the folder does not exist, or the repository's name is none.
        EngineError: "download": no such repository, no access, no network, or the disk is full.
    """
    if source.path is not None:
        folder = Path(source.path).expanduser()
        if not folder.is_dir():
            raise ModelError(f"{folder} is not a folder. Give the folder that holds config.json and model.safetensors.")
        return folder
    if source.repo is None:
        raise ModelError("A model needs a path or a repo.")
    return _snapshot(source.repo, source.revision, progress)


def _snapshot(repo: str, revision: str | None, progress: Progress) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    options: dict[str, Any] = {"revision": revision, "allow_patterns": WANTED}
    try:
        cached = Path(snapshot_download(repo, local_files_only=True, **options))
        if (cached / "config.json").exists() and any(cached.glob("*.safetensors")):
            return cached
    except HFValidationError:
        raise ModelError(f'repo = "{repo}" is no repository\'s name, which is owner/name.') from None
    except LocalEntryNotFoundError:
        pass
    progress(Loading(f"looking for {repo} at {_host()}"))
    try:
        return Path(snapshot_download(repo, tqdm_class=_bar(repo, progress), **options))
    except Exception as error:  # hub errors do not share one base class
        raise EngineError("download", _told(repo, error)) from None


def _told(repo: str, error: Exception) -> str:
    """The reason why `repo` was not downloaded, and what to do."""
    from huggingface_hub.errors import GatedRepoError, OfflineModeIsEnabled, RepositoryNotFoundError

    causes = list(_causes(error))

    def among(*kinds: type[BaseException]) -> bool:
        return any(isinstance(cause, kinds) for cause in causes)

    if among(OfflineModeIsEnabled):
        return f"{repo} is not on this machine, and HF_HUB_OFFLINE keeps it from being downloaded."
    if among(GatedRepoError):
        return f"{repo} needs permission: accept its terms at {_host()}/{repo} and set HF_TOKEN."
    if among(RepositoryNotFoundError):
        return f"{_host()} has no {repo}, or shows it only to some: check the name and HF_TOKEN."
    if any(isinstance(cause, OSError) and cause.errno == ENOSPC for cause in causes):
        return f"The disk is full: {repo} could not be downloaded. What was fetched is kept."
    if among(gaierror, ConnectionError, TimeoutError) or any(
        isinstance(cause, OSError) and cause.errno in _UNREACHABLE for cause in causes
    ):
        return f"No connection to {_host()}."
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return f"{repo} could not be downloaded: {first}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _host() -> str:
    from huggingface_hub.constants import ENDPOINT

    return ENDPOINT.partition("://")[2].rstrip("/")


def _bar(repo: str, progress: Progress) -> type:
    """A stand-in for tqdm that turns byte counts into `Loading` events; several files report from several threads."""
    lock = Lock()
    bars: list[Any] = []

    class Bar:
        def __init__(self, iterable: Any = None, **options: Any) -> None:
            self._iterable = iterable
            # The library raises `total` as it learns of more files, so it is read anew each time.
            self.total = options.get("total") or 0
            self.n = options.get("initial") or 0
            if options.get("unit") == "B":
                bars.append(self)

        def __iter__(self) -> Any:
            yield from self._iterable or ()

        def __enter__(self) -> "Bar":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def update(self, n: float = 1) -> None:
            with lock:
                self.n += n
                done, of = sum(b.n for b in bars), sum(b.total or 0 for b in bars)
            if self in bars:
                fraction = min(1.0, done / of) if of else None
                progress(Loading(f"downloading {repo}: {done / 1e9:.2f} of {of / 1e9:.2f} GB", fraction))

        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: None

        @classmethod
        def get_lock(cls) -> Lock:
            return lock

        @classmethod
        def set_lock(cls, _: Any) -> None:
            pass

    return Bar
