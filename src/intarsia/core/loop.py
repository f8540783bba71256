"""An event loop in a thread of its own, so that async clients can be called from plain code and notebooks."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
Report = Callable[[int, int], None]

_END = object()
_PATIENCE = 2.0
"""Seconds that an interrupted caller waits for its requests to be cancelled."""


class LoopThread:
    """Runs coroutines for callers in any thread, also where a loop is already running (a notebook).

    The thread starts with the first job, keeps connections open between jobs, and is a daemon, so it never holds the
    interpreter back. After a fork the child starts one of its own.
    """

    def __init__(self, name: str = "intarsia-loop") -> None:
        self._name = name
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._finalizer: weakref.finalize[Any, Any] | None = None

    def run(self, job: Callable[[Report], Coroutine[Any, Any, T]], progress: Report | None = None) -> T:
        """Run a coroutine to its end and return what it returns.

        Args:
            job: Gets a function to report (done, total) with, and gives the coroutine.
            progress: Called in the caller's thread with what the job reports.

        Raises:
            KeyboardInterrupt: The user pressed Ctrl-C; the job was cancelled.
        """
        loop = self._running_loop()
        events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        ended = threading.Event()

        async def whole() -> T:
            try:
                return await job(lambda done, total: events.put((done, total)))
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(whole(), loop)
        future.add_done_callback(lambda _: events.put(_END))
        try:
            while (event := events.get()) is not _END:
                if progress is not None:
                    progress(*event)
            return future.result()
        finally:
            # Does nothing to a job that has ended. An interrupt, or an error in `progress`, ends the job with it.
            if future.cancel() or not ended.is_set():
                ended.wait(_PATIENCE)

    def close(self) -> None:
        """Stop the thread. Safe to call twice; a later `run` starts a new one."""
        with self._guard:
            if self._finalizer is not None:
                self._finalizer()
            self._loop, self._finalizer = None, None

    def alive(self) -> bool:
        """Whether the loop of this very process is running."""
        return self._loop is not None and self._pid == os.getpid()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._guard:
            if self._loop is None or self._pid != os.getpid():
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_serve, args=(loop,), name=self._name, daemon=True)
                thread.start()
                self._loop, self._pid = loop, os.getpid()
                self._finalizer = weakref.finalize(self, _stop, loop, thread, self._pid)
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        # Whatever still runs is cancelled and awaited: a task that is dropped would complain on stderr.
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread, pid: int) -> None:
    if pid != os.getpid() or loop.is_closed():
        return
    loop.call_soon_threadsafe(loop.stop)
    thread.join(_PATIENCE)
