"""A little Hugging Face hub on the loopback interface: one repository, served from a folder."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def serve(repo: str, folder: Path) -> Iterator[str]:
    """The endpoint's address while the server runs."""
    files = {f.name: f.read_bytes() for f in folder.iterdir()}

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            path = self.path.split("?")[0]
            name = path.rsplit("/", 1)[-1]
            if path.startswith(f"/api/models/{repo}/tree/"):
                tree = [{"type": "file", "path": n, "size": len(d), "oid": digest(d)} for n, d in files.items()]
                return self.send(json.dumps(tree).encode(), "application/json", body)
            if path.startswith(f"/api/models/{repo}"):
                siblings = [{"rfilename": n, "size": len(d)} for n, d in files.items()]
                info = {"id": repo, "modelId": repo, "sha": COMMIT, "siblings": siblings, "private": False, "tags": []}
                return self.send(json.dumps(info).encode(), "application/json", body)
            if path.startswith(f"/{repo}/resolve/") and name in files:
                return self.send(files[name], "application/octet-stream", body)
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None

        def send(self, data: bytes, kind: str, body: bool) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("ETag", f'"{digest(data)}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if body:
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def digest(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()
