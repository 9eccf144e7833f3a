"""A hub, and the layout of huggingface_hub's cache, which programs share."""

import re
from contextlib import suppress
from pathlib import Path

from specchat.dataclass import dataclass
from specchat.reading import read_text

DIGEST = r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$"
"""A hub's hash must match this before it names a file."""


@dataclass(frozen=True)
class Hub:
    """A hub at `endpoint`, an address without a trailing slash, and the folder `cache` of its models."""

    endpoint: str
    cache: Path

    @property
    def host(self) -> str:
        return self.endpoint.partition("://")[2]

    def folder(self, repo: str) -> Path:
        """Cache folder of a repository; its `blobs` holds files by hash."""
        return self.cache / f"models--{repo.replace('/', '--')}"

    def lock(self, repo: str, digest: str) -> Path:
        """Lock file of a blob, held while a program downloads it."""
        return self.cache / ".locks" / self.folder(repo).name / f"{digest}.lock"

    def snapshot(self, repo: str, commit: str) -> Path:
        """Folder of a commit, whose files are links to blobs."""
        return self.folder(repo) / "snapshots" / commit

    def commit_folder(self, repo: str, revision: str | None) -> Path:
        """Folder of the commit that `revision` last meant, whose files may be missing."""
        commit = revision or "main"
        with suppress(OSError, UnicodeDecodeError):
            commit = read_text(self.folder(repo) / "refs" / commit, 1000).strip()
        return self.snapshot(repo, commit if re.fullmatch(DIGEST, commit) else "unknown")

    def linked(self, repo: str, commit: str, name: str, digest: str) -> bool:
        """True if a commit's file links to its blob; only verified files are linked."""
        link, blob = self.snapshot(repo, commit) / name, self.folder(repo) / "blobs" / digest
        try:
            return link.samefile(blob)
        except OSError:
            return False

    def partial(self, repo: str, digest: str) -> Path:
        """Partial download of a blob. `hf cache prune` knows the suffix; the library's own partial files differ."""
        return self.folder(repo) / "blobs" / f"{digest}.specchat.incomplete"


def usual_hub() -> Hub:
    """The hub of the environment: HF_ENDPOINT, HF_HOME and HF_HUB_CACHE, as huggingface_hub reads them."""
    from huggingface_hub import constants

    return Hub(constants.ENDPOINT.rstrip("/"), Path(constants.HF_HUB_CACHE))
