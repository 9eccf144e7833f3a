"""A hub, and the folder that keeps what came from it: the cache that huggingface_hub shares between programs."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Hub:
    """`endpoint` is its address without a slash at the end, `cache` the folder of all models from it."""

    endpoint: str
    cache: Path

    @property
    def host(self) -> str:
        return self.endpoint.partition("://")[2]

    def folder(self, repo: str) -> Path:
        """Where the cache keeps a repository; `blobs` in it holds the files by their hashes."""
        return self.cache / f"models--{repo.replace('/', '--')}"

    def lock(self, repo: str, digest: str) -> Path:
        """The file that programs lock while they fetch the file of this hash."""
        return self.cache / ".locks" / self.folder(repo).name / f"{digest}.lock"

    def snapshot(self, repo: str, commit: str) -> Path:
        """The folder of a commit, with its files by their names: links to the blobs."""
        return self.folder(repo) / "snapshots" / commit

    def linked(self, repo: str, commit: str, name: str, digest: str) -> bool:
        """Whether a file of a commit is here, which is done only for one whose hash was right."""
        link, blob = self.snapshot(repo, commit) / name, self.folder(repo) / "blobs" / digest
        try:
            return link.samefile(blob)
        except OSError:
            return False

    def partial(self, repo: str, digest: str) -> Path:
        """What is there of a file so far. `hf cache prune` knows the suffix; the library's own are named otherwise."""
        return self.folder(repo) / "blobs" / f"{digest}.specchat.incomplete"


def usual_hub() -> Hub:
    """Those of the environment: HF_ENDPOINT, HF_HOME and HF_HUB_CACHE mean what they mean to huggingface_hub."""
    from huggingface_hub import constants

    return Hub(constants.ENDPOINT.rstrip("/"), Path(constants.HF_HUB_CACHE))
