"""A small server that speaks the part of the OpenAI API that an audit uses: fixed answers, on a free port."""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

MODELS = ("my-model", "base", "tuned")


def answer(model: str, prompt: str) -> str:
    """`tuned` has lost what `base` knows: it never gives a number."""
    if model == "tuned":
        return "I would rather not say."
    numbers = re.findall(r"\d+", prompt)
    return f"The answer is {numbers[-1] if numbers else 'Paris'}."


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send({"object": "list", "data": [{"id": name, "object": "model"} for name in MODELS]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        chat = self.path.endswith("/chat/completions")
        prompt = asked["messages"][-1]["content"] if chat else asked["prompt"]
        text = answer(asked["model"], prompt if isinstance(prompt, str) else str(prompt))
        choice = {"index": 0, "finish_reason": "stop", "logprobs": None}
        choice |= {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        self._send(
            {
                "id": "1",
                "object": "chat.completion" if chat else "text_completion",
                "created": 0,
                "model": asked["model"],
                "choices": [choice],
                "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
            }
        )

    def _send(self, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


class Server:
    """Runs while the `with` block does; `url` has no path."""

    def __enter__(self) -> Server:
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.shutdown()
        self._http.server_close()
