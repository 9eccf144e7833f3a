"""A little Hugging Face hub on the loopback interface, which can also be slow, cut answers off and refuse."""

import hashlib
import json
import random
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Files = Mapping[str, bytes]


def commit(repo: str) -> str:
    """The hash of a repository's only commit."""
    return hashlib.sha1(repo.encode()).hexdigest()


def git_digest(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def large(name: str) -> bool:
    """Whether a hub keeps a file of this name apart from git, by its SHA-256."""
    return name.endswith((".safetensors", ".gguf", ".model"))


def digest(name: str, data: bytes) -> str:
    return sha256(data) if large(name) else git_digest(data)


def of_folder(folder: Path) -> dict[str, bytes]:
    """The files of a folder, as a repository has them."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@dataclass
class LoopbackHub:
    """`repos` are files by name by repository. What is set below is done to every answer from then on."""

    repos: dict[str, Files]
    endpoint: str = ""
    status: int = 0
    """The status of all answers, 0 for those that fit; `code` is the library's word for it."""
    code: str = ""
    file_status: int = 0
    """The same for files alone."""
    cuts: list[int] = field(default_factory=list)
    """The next answers with weights end after so many bytes each."""
    stalls: Event = field(default_factory=Event)
    """While set, weights stop coming after their first half."""
    ranges: bool = True
    """Whether a part of a file may be asked for."""
    spoiled: bool = False
    """Whether weights come with other bytes than announced."""
    pace: float = 0.0
    """Seconds between pieces of weights."""
    licence: str = "apache-2.0"
    gated: bool = False
    sent: dict[str, int] = field(default_factory=dict)
    """Bytes of bodies by file, of the answers begun since it was last replaced: an older one may still be sending."""
    asked: list[str] = field(default_factory=list)
    """Paths in the order in which they were asked for."""
    lock: Lock = field(default_factory=Lock)


@contextmanager
def loopback_hub(repos: Mapping[str, Files]) -> Iterator[LoopbackHub]:
    """Serve while the block runs."""
    hub = LoopbackHub(dict(repos))
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        hub.stalls.clear()
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: LoopbackHub

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        hub = self.hub
        address = urlsplit(self.path)
        path = unquote(address.path)
        hub.asked.append(path)
        if hub.status:
            return self._refuse(hub.status, hub.code)
        if path == "/api/models":
            words = parse_qs(address.query).get("search", [""])[0].casefold()
            return self._json([self._info(r) for r in hub.repos if words in r.casefold()])
        named = re.match(r"(?:/api/models)?/([\w.-]+/[\w.-]+)(/.*)?$", path)
        repo, rest = (named[1], named[2] or "") if named else ("", "")
        if repo not in hub.repos:
            return self._refuse(404, "RepoNotFound")
        files = hub.repos[repo]
        if path.startswith("/api/models/"):
            if rest.startswith("/tree/"):
                return self._json(
                    [{"type": "file", "path": n, "oid": git_digest(d), **_size(n, d)} for n, d in files.items()]
                )
            return self._json(self._info(repo))
        name = rest.split("/", 3)[-1]
        if name not in files:
            return self._refuse(404, "EntryNotFound")
        if hub.file_status and body:
            return self._refuse(hub.file_status, hub.code)
        return self._file(repo, name, files[name], body)

    def _info(self, repo: str) -> dict[str, Any]:
        hub = self.hub
        siblings = [{"rfilename": n, "blobId": git_digest(d), **_size(n, d)} for n, d in hub.repos[repo].items()]
        tags = [f"license:{hub.licence}"] if hub.licence else []
        return {
            "id": repo, "modelId": repo, "sha": commit(repo), "siblings": siblings, "private": False, "tags": tags,
            "gated": "manual" if hub.gated else False, "downloads": 7, "likes": 1,
        }  # fmt: skip

    def _file(self, repo: str, name: str, data: bytes, body: bool) -> None:
        hub, start = self.hub, 0
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked and hub.ranges:
            start = int(asked[1])
        if start >= len(data) > 0:
            return self._refuse(416, "")
        self.send_response(206 if start else 200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(data) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("ETag", f'"{digest(name, data)}"')
        self.send_header("X-Repo-Commit", commit(repo))
        self.end_headers()
        if not body:
            return None
        weights = large(name)
        sent = hub.sent
        with hub.lock:
            end = min(len(data), start + hub.cuts.pop(0)) if weights and hub.cuts else len(data)
        shown = bytes(random.Random(1).randbytes(len(data))) if weights and hub.spoiled else data
        step = 4096 if weights and (hub.pace or hub.stalls.is_set()) else len(data) + 1
        for at in range(start, end, step):
            piece = shown[at : min(at + step, end)]
            while weights and at > len(data) // 2 and hub.stalls.is_set():
                Event().wait(0.01)
            with hub.lock:  # before a client that has all of it looks
                sent[name] = sent.get(name, 0) + len(piece)
            try:
                self.wfile.write(piece)
            except OSError:
                with hub.lock:
                    sent[name] -= len(piece)
                return None
            if weights and hub.pace:
                Event().wait(hub.pace)
        if end < len(data):
            self.close_connection = True
        return None

    def _json(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def _size(name: str, data: bytes) -> dict[str, Any]:
    if not large(name):
        return {"size": len(data)}
    return {
        "size": len(data),
        "lfs": {"oid": sha256(data), "sha256": sha256(data), "size": len(data), "pointerSize": 130},
    }
