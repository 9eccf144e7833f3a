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

    def partial(self, repo: str, digest: str) -> Path:
        """What is there of a file so far. `hf cache prune` knows the suffix; the library's own are named otherwise."""
        return self.folder(repo) / "blobs" / f"{digest}.specchat.incomplete"


def usual_hub() -> Hub:
    """Those of the environment: HF_ENDPOINT, HF_HOME and HF_HUB_CACHE mean what they mean to huggingface_hub."""
    from huggingface_hub import constants

    return Hub(constants.ENDPOINT.rstrip("/"), Path(constants.HF_HUB_CACHE))
