"""A real HTTP server that speaks the OpenAI API as well, or as badly, as a test asks."""

from __future__ import annotations

import hashlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behavior = Callable[["Handler", dict[str, Any], int], bool]
"""Called with (handler, body, number of earlier requests with this prompt); True when it has dealt with the request."""


class FakeEndpoint:
    """The server; a context manager.

    Attributes:
        requests: (path, body, headers) of each request, in order of arrival.
        most_in_flight: Most requests that were being answered at once, `/models` not counted.
        behavior: What happens instead of a good answer; see the functions below.
    """

    def __init__(
        self,
        *,
        models: tuple[str, ...] = ("m",),
        paths: tuple[str, ...] = ("/models", "/chat/completions", "/completions", "/embeddings"),
        behavior: Behavior | None = None,
        key: str = "",
        delay: float = 0.0,
        usage: bool = True,
        logprobs: bool = True,
        seeds: bool = True,
        zero_echo: bool = True,
        bos: bool = False,
    ) -> None:
        self.models, self.paths, self.behavior, self.key, self.delay = models, paths, behavior, key, delay
        self.usage, self.logprobs, self.seeds, self.zero_echo, self.bos = usage, logprobs, seeds, zero_echo, bos
        self.requests: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.in_flight = self.most_in_flight = 0
        self.guard = threading.Lock()
        self.closing = threading.Event()
        self.tries: dict[str, int] = {}

    def __enter__(self) -> FakeEndpoint:
        owner = self

        class Bound(Handler):
            fake = owner

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: Any) -> None:
                """A client that hangs up is what some tests are about."""

        self.server = Server(("127.0.0.1", 0), Bound)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def asked(self, path: str) -> list[dict[str, Any]]:
        """Bodies that were sent to a path."""
        return [body for there, body, _ in self.requests if there == path]


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    fake: FakeEndpoint
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    counted = 0

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.serve({})

    def do_POST(self) -> None:
        self.serve(json.loads(self.rfile.read(int(self.headers["content-length"]))))

    def serve(self, body: dict[str, Any]) -> None:
        fake = self.fake
        path = self.path.removeprefix("/v1")
        with fake.guard:
            fake.requests.append((path, body, {k.lower(): v for k, v in self.headers.items()}))
            tried = fake.tries.get(prompt_of(body), 0)
            if path != "/models":
                fake.tries[prompt_of(body)] = tried + 1
                self.counted = 1
                fake.in_flight += 1
                fake.most_in_flight = max(fake.most_in_flight, fake.in_flight)
        try:
            if fake.behavior is not None and fake.behavior(self, body, tried):
                return
            self.answer(path, body)
        finally:
            self.leave()

    def leave(self) -> None:
        """This request is no longer in flight; before its last byte goes out, or the client's next one overtakes it."""
        with self.fake.guard:
            self.fake.in_flight -= self.counted
            self.counted = 0

    def answer(self, path: str, body: dict[str, Any]) -> None:
        fake = self.fake
        given = self.headers.get("authorization", "")
        if fake.key and given not in (f"Bearer {fake.key}", fake.key):
            self.error(401, f"Incorrect API key provided: {given.removeprefix('Bearer ')}")
        elif path not in fake.paths:
            self.error(404, "Not Found")
        elif path == "/models":
            self.reply({"object": "list", "data": [{"id": name, "object": "model"} for name in fake.models]})
        elif body.get("model") not in fake.models:
            self.error(404, f"The model `{body.get('model')}` does not exist.")
        elif path == "/embeddings":
            vectors = [[float(len(text)), 1.0, 0.5] for text in body["input"]]
            rows = [{"index": i, "embedding": v} for i, v in enumerate(vectors)]
            self.reply({"data": rows[::-1], "usage": {"prompt_tokens": len(rows), "total_tokens": len(rows)}})
        else:
            fake.closing.wait(fake.delay)
            self.complete(path, body)

    def complete(self, path: str, body: dict[str, Any]) -> None:
        fake = self.fake
        chat = path.startswith("/chat")
        prompt = prompt_of(body)
        if body.get("echo"):
            self.echo(body)
            return
        text = f"re:{prompt}"
        if body.get("temperature", 1.0) > 0 and fake.seeds:
            text += " " + hashlib.sha256(f"{body.get('seed')}".encode()).hexdigest()[:6]
        words = text.split(" ")
        most = body.get("max_tokens", body.get("max_completion_tokens", 16))
        cut = len(words) > most
        tokens = [(" " if i else "") + word for i, word in enumerate(words[:most])]
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length" if cut else "stop"}
        if chat:
            choice["message"] = {"role": "assistant", "content": "".join(tokens)}
        else:
            choice["text"] = "".join(tokens)
        if body.get("logprobs") and fake.logprobs:
            rows = [{"token": token, "logprob": -0.5} for token in tokens]
            values = {"tokens": tokens, "token_logprobs": [-0.5] * len(tokens)}
            choice["logprobs"] = {"content": rows} if chat else values
        reply: dict[str, Any] = {"id": "x", "object": "completion", "model": body["model"], "choices": [choice]}
        if fake.usage:
            reply["usage"] = {"prompt_tokens": len(prompt.split()), "completion_tokens": len(tokens)}
        self.reply(reply)

    def echo(self, body: dict[str, Any]) -> None:
        """Tokens are pieces of up to three characters; each one's log-probability is minus its length."""
        prompt = body["prompt"]
        if body["max_tokens"] == 0 and not self.fake.zero_echo:
            self.error(400, "max_tokens must be at least 1")
            return
        tokens = [prompt[i : i + 3] for i in range(0, len(prompt), 3)]
        values: list[float | None] = [None, *(-float(len(token)) for token in tokens[1:])]
        offsets = [3 * i for i in range(len(tokens))]
        if self.fake.bos:
            tokens, values = ["<s>", *tokens], [None, *(-float(len(token)) for token in tokens)]
            offsets = [0, *(offset + 3 for offset in offsets)]
        new = " z" * body["max_tokens"]
        for _ in range(body["max_tokens"]):
            tokens, values, offsets = [*tokens, " z"], [*values, -9.0], [*offsets, len(prompt)]
        logprobs = {"tokens": tokens, "token_logprobs": values, "text_offset": offsets}
        usage = {"prompt_tokens": len(tokens), "completion_tokens": body["max_tokens"]}
        self.reply({"choices": [{"text": prompt + new, "logprobs": logprobs}], "usage": usage})

    def reply(self, data: Any, status: int = 200, **headers: str) -> None:
        self.send(json.dumps(data).encode(), status, **headers)

    def error(self, status: int, message: str, code: str = "", **headers: str) -> None:
        self.reply({"error": {"message": message, "type": "error", "code": code or None}}, status, **headers)

    def send(self, content: bytes, status: int = 200, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.leave()
        self.end_headers()
        self.wfile.write(content)


def prompt_of(body: dict[str, Any]) -> str:
    """The text that is asked: of a string prompt, or of the last message."""
    if "messages" in body:
        return str(body["messages"][-1]["content"])
    return str(body.get("prompt", body.get("input", "")))


# What can go wrong. Each leaves `/models` alone, unless it says otherwise.


def only(marked: str, behavior: Behavior) -> Behavior:
    """The behavior for prompts that hold a mark; the others are answered well."""
    return lambda handler, body, tried: marked in prompt_of(body) and behavior(handler, body, tried)


def first(times: int, behavior: Behavior) -> Behavior:
    """The behavior for the first tries of each prompt."""
    return lambda handler, body, tried: tried < times and behavior(handler, body, tried)


def status(code: int, message: str = "boom", error_code: str = "", **headers: str) -> Behavior:
    """Answers with an HTTP error."""

    def behave(handler: Handler, body: dict[str, Any], tried: int) -> bool:
        if handler.path.endswith("/models"):
            return False
        handler.error(code, message, error_code, **headers)
        return True

    return behave


def together(count: int) -> Behavior:
    """Answers nobody before so many requests have been in flight at once."""

    def behave(handler: Handler, body: dict[str, Any], tried: int) -> bool:
        ends = time.monotonic() + 20
        while not handler.path.endswith("/models") and handler.fake.most_in_flight < count:
            if time.monotonic() > ends:
                handler.error(400, f"never were {count} requests in flight")
                return True
            time.sleep(0.002)
        return False

    return behave


def hang(models: bool = False) -> Behavior:
    """Takes the request and never answers; with `models`, neither does it list its models."""

    def behave(handler: Handler, body: dict[str, Any], tried: int) -> bool:
        if handler.path.endswith("/models") and not models:
            return False
        handler.fake.closing.wait(30)
        handler.close_connection = True
        return True

    return behave


def says(content: bytes, kind: str = "application/json", models: bool = False) -> Behavior:
    """Answers 200 with these bytes."""

    def behave(handler: Handler, body: dict[str, Any], tried: int) -> bool:
        if handler.path.endswith("/models") and not models:
            return False
        handler.send(content, kind=kind)
        return True

    return behave


def says_json(data: Any) -> Behavior:
    """Answers 200 with this object."""
    return says(json.dumps(data).encode())


def break_off(handler: Handler, body: dict[str, Any], tried: int) -> bool:
    """Promises more bytes than it sends."""
    if handler.path.endswith("/models"):
        return False
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [{"mess')
    handler.close_connection = True
    return True


def reset(handler: Handler, body: dict[str, Any], tried: int) -> bool:
    """Resets the connection."""
    if handler.path.endswith("/models"):
        return False
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True
    return True


def drip(seconds: float) -> Behavior:
    """Sends a byte of white space now and then, so that the silence is never long."""

    def behave(handler: Handler, body: dict[str, Any], tried: int) -> bool:
        if handler.path.endswith("/models"):
            return False
        handler.send_response(200)
        handler.send_header("content-type", "application/json")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        ends = time.monotonic() + 30
        while time.monotonic() < ends and not handler.fake.closing.wait(seconds):
            handler.wfile.write(b"1\r\n \r\n")
        handler.close_connection = True
        return True

    return behave
