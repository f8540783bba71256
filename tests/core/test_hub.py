"""Against a small server that speaks the hub's protocol, so that the hub's own library raises its own errors."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from intarsia.core.catalog import hub, resolve
from intarsia.core.errors import BackendError, ModelError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub(ThreadingHTTPServer):
    """Serves files of repositories; `refusals` name repositories that are answered with an error."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos: dict[str, dict[str, bytes]] = {}
        self.refusals: dict[str, tuple[int, str]] = {}
        self.requests: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        headers.setdefault("Content-Length", str(len(body)))
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        self.server.requests.append(path)
        parts = path.strip("/").split("/")
        repo = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        if repo in self.server.refusals:
            status, code = self.server.refusals[repo]
            return self._answer(status, b"{}", X_Error_Code=code, X_Error_Message="refused")
        files = self.server.repos.get(repo)
        if files is None:
            return self._answer(401, b"{}", X_Error_Code="RepoNotFound")
        if parts[0] == "api":
            revision = parts[5] if len(parts) > 5 else "main"
            if revision not in ("main", "v1", COMMIT):
                return self._answer(404, b"{}", X_Error_Code="RevisionNotFound")
            if parts[4:5] == ["tree"]:
                tree = [
                    {"type": "file", "path": n, "size": len(c), "oid": hashlib.sha1(c).hexdigest()}
                    for n, c in files.items()
                ]
                return self._answer(200, json.dumps(tree).encode(), Content_Type="application/json")
            info = {
                "id": repo,
                "sha": COMMIT,
                "siblings": [{"rfilename": name, "size": len(content)} for name, content in files.items()],
                "cardData": {"license": "mit"},
            }
            return self._answer(200, json.dumps(info).encode(), Content_Type="application/json")
        content = files.get("/".join(parts[4:]))
        if content is None:
            return self._answer(404, b"", X_Error_Code="EntryNotFound")
        etag = hashlib.sha256(content).hexdigest()
        return self._answer(200, content, ETag=f'"{etag}"', X_Repo_Commit=COMMIT)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    from huggingface_hub import constants

    running = FakeHub()
    threading.Thread(target=running.serve_forever, args=(0.05,), daemon=True).start()
    url = f"http://127.0.0.1:{running.server_address[1]}"
    monkeypatch.setattr(constants, "ENDPOINT", url)
    # The library reads HF_HUB_OFFLINE once, when it is imported, which may have been in another test.
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path / "cache"))
    for key in hub.OFFLINE:
        monkeypatch.delenv(key, raising=False)
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture
def files(tiny_model_folder: Path) -> dict[str, bytes]:
    found = {file.name: file.read_bytes() for file in tiny_model_folder.iterdir()}
    return {**found, "README.md": b"---\nlicense: mit\n---\n", "pytorch_model.bin": b"pickle", "onnx/model.onnx": b"x"}


def test_a_model_is_fetched_once(server: FakeHub, files: dict[str, bytes]) -> None:
    server.repos["org/tiny"] = files
    lines: list[str] = []
    found = resolve("org/tiny", progress=lines.append)
    assert found.source == "hub"
    assert found.revision == COMMIT
    assert found.licence == "mit"
    assert found.sha256["model.safetensors"] == hashlib.sha256(files["model.safetensors"]).hexdigest()
    assert not (found.path / "pytorch_model.bin").exists(), "pickles are not even fetched"
    assert any("licence mit" in line for line in lines)
    server.requests.clear()
    again = resolve("org/tiny")
    assert again.path == found.path
    assert server.requests == []
    assert resolve("org/tiny", offline=True).path == found.path


def test_a_revision_is_kept_apart(server: FakeHub, files: dict[str, bytes]) -> None:
    server.repos["org/tiny"] = files
    assert resolve("org/tiny@v1").name == "org/tiny@v1"
    with pytest.raises(ModelError, match="no such revision"):
        resolve("org/tiny@v2")


@pytest.mark.parametrize(
    ("status", "code", "message", "hint"),
    [
        (403, "GatedRepo", "is gated", "HF_TOKEN"),
        (401, "GatedRepo", "is gated", "HF_TOKEN"),
        (404, "RepoNotFound", "has no model org/tiny", "HF_TOKEN"),
        (403, "", "refuses org/tiny", "HF_TOKEN"),
    ],
)
def test_what_the_hub_refuses(server: FakeHub, status: int, code: str, message: str, hint: str) -> None:
    server.refusals["org/tiny"] = (status, code)
    with pytest.raises(ModelError, match=message) as caught:
        resolve("org/tiny")
    assert hint in caught.value.hint


def test_an_unknown_model(server: FakeHub) -> None:
    with pytest.raises(ModelError, match="has no model org/absent"):
        resolve("org/absent")


def test_a_broken_hub(server: FakeHub) -> None:
    server.refusals["org/tiny"] = (501, "")
    with pytest.raises(BackendError, match="HTTP 501"):
        resolve("org/tiny")


def test_gated_only_at_the_files(server: FakeHub, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Gated repositories show their list of files to everyone and refuse the files."""
    server.repos["org/tiny"] = files
    original = _Handler.do_GET

    def refuse_files(self: _Handler) -> None:
        if "/resolve/" in self.path:
            self._answer(403, b"", X_Error_Code="GatedRepo")
        else:
            original(self)

    monkeypatch.setattr(_Handler, "do_GET", refuse_files)
    with pytest.raises(ModelError, match="is gated"):
        resolve("org/tiny")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["config.json", "pytorch_model.bin"], "pickled weights only"),
        (["model-q4.gguf"], "GGUF files only"),
        (["adapter_config.json", "adapter_model.safetensors"], "is a PEFT adapter"),
        (["README.md"], "holds no model"),
    ],
)
def test_repositories_without_a_model(server: FakeHub, names: list[str], message: str) -> None:
    server.repos["org/tiny"] = dict.fromkeys(names, b"{}")
    with pytest.raises(ModelError, match=message):
        resolve("org/tiny")
    assert not any("/resolve/" in request for request in server.requests), "nothing was fetched in vain"


def test_no_network(server: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(BackendError, match="does not answer") as caught:
        resolve("org/tiny")
    for word in ("name", "network", "HF_TOKEN", "smollm2-135m", "local folder"):
        assert word in caught.value.hint


def test_switched_off(server: FakeHub, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    server.repos["org/tiny"] = files
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match="network is switched off"):
        resolve("org/tiny")
    assert server.requests == []


def test_an_unfinished_snapshot_is_finished(server: FakeHub, files: dict[str, bytes]) -> None:
    server.repos["org/tiny"] = files
    found = resolve("org/tiny")
    (found.path / "model.safetensors").resolve().unlink()
    (found.path / "model.safetensors").unlink()
    assert hub.cached("org/tiny", None, lenient=True) is None
    assert (resolve("org/tiny").path / "model.safetensors").is_file()


def test_ids() -> None:
    assert hub.parse_id("org/name@refs/pr/1") == ("org/name", "refs/pr/1")
    assert hub.parse_id("org/na.me-1") == ("org/na.me-1", None)
    for other in ("name", "./a/b", "a/b/c", "/a/b", "org/name@", "org/na me", "", "a/../b"):
        assert hub.parse_id(other) is None, other
