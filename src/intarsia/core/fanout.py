"""One map over many items: here, in processes, or on Ray.

    results = fanout.map(work, items, backend="processes", journal=journal)

Results and their order are the same on every backend, because work is cut into units from the full list of items and
an item's randomness has to come from the item itself. With a journal, a killed run goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from types import ModuleType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from intarsia.core.errors import BackendError, ConfigError, IntarsiaError
from intarsia.core.journal import Journal, content_key

Backend: TypeAlias = Literal["local", "processes", "ray"]
Item = TypeVar("Item")


def map(
    fn: Callable[[Any], Any],
    items: Sequence[Item],
    *,
    key: Callable[[Item], str] | None = None,
    journal: Journal | None = None,
    stage: str = "",
    backend: Backend = "local",
    workers: int | None = None,
    batch_size: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    init: Callable[[], None] | None = None,
) -> list[Any]:
    """Apply `fn` to every item.

    A unit of work is one item, or `batch_size` neighbouring items of the full list. It is also the journal's unit: a
    unit is recorded whole when it is done, and done again when any of it is missing.

    Args:
        fn: Takes an item and returns its result; with `batch_size`, takes a list of items and returns a list of results
            of the same length. In processes it is a function of a module, not a lambda. Its result may depend on the
            item (and batch) only.
        items: What to work on.
        key: Stable, unique name of an item in the journal; its content (a JSON value or pydantic model) when omitted.
        journal: Where finished units go. Results must then be JSON values (None is one), and come back as JSON gives
            them (tuples as lists), whether fresh or from the journal.
        stage: Name that keeps two maps apart in one journal; the function's name when omitted.
        backend: `local` is this process, `processes` are spawned on this machine, `ray` is the Ray cluster that the
            environment names, or else a local one.
        workers: How many units at once (not for `local`); one a CPU when omitted. Workers of `processes` share this
            machine's threads evenly unless `OMP_NUM_THREADS` is set.
        batch_size: Items a call of `fn`; None calls it with single items.
        progress: Called with (items done, all items) when a unit is done.
        init: Called once in each worker (and once here for `local`) before any work.

    Returns:
        One result an item, in the order of the items.

    Raises:
        ConfigError: A bad option, something that cannot be sent to a worker, or Ray is not installed.
        BackendError: A worker died; the message names its items.
        Exception: What `fn` raised on the first item that failed, with a note that names the item. An `IntarsiaError`
            comes as it is.
    """
    _check(fn, journal, stage, backend, workers, batch_size)
    items = list(items)
    step = batch_size or 1
    units = [range(start, min(start + step, len(items))) for start in range(0, len(items), step)]
    keys = _keys(fn, stage, key, items) if journal is not None else []
    results: list[Any] = [None] * len(items)
    todo: list[int] = []
    for number, unit in enumerate(units):
        if journal is not None and all(keys[i] in journal for i in unit):
            _fill(results, unit, journal, keys)
        else:
            todo.append(number)
    done = len(items) - sum(len(units[number]) for number in todo)
    if progress is not None and done:
        progress(done, len(items))
    if not todo:
        return results
    work = _Work(fn, init, batch_size is not None)
    batches = {number: [items[i] for i in units[number]] for number in todo}
    failures: dict[int, BaseException] = {}
    with contextlib.closing(_outcomes(work, batches, backend, min(workers or _cpus(), len(todo)), units)) as outcomes:
        for number, outcome in outcomes:
            unit = units[number]
            if outcome.error is not None:
                failures[number] = outcome.error
                continue
            if journal is not None:
                journal.append({keys[i]: [value] for i, value in zip(unit, outcome.values)})
                _fill(results, unit, journal, keys)
            else:
                results[unit.start : unit.stop] = outcome.values
            done += len(unit)
            if progress is not None:
                progress(done, len(items))
    if failures:
        first = min(failures)
        error = failures[first]
        if not isinstance(error, IntarsiaError):
            error.add_note(f"fanout.map: raised on {_named(units[first])}")
        raise error
    return results


class _Work(NamedTuple):
    fn: Callable[[Any], Any]
    init: Callable[[], None] | None
    batched: bool


class _Outcome(NamedTuple):
    """Of one unit: its values, or the error that `fn` raised."""

    values: list[Any]
    error: BaseException | None = None


class _Pool(Protocol):
    """Workers that take one unit at a time, so that it is known what a dead one was doing."""

    def free(self) -> list[int]:
        """Numbers of workers that can be given a unit."""

    def submit(self, worker: int, unit: int, batch: list[Any]) -> None:
        """Give a unit to a free worker."""

    def wait(self) -> list[tuple[int, _Outcome]]:
        """Units that are done; waits until a worker has something to say (also that it has become free)."""

    def stop(self, *, kill: bool) -> None:
        """End all workers; `kill` does not wait for their work."""


def _outcomes(
    work: _Work, batches: dict[int, list[Any]], backend: Backend, workers: int, units: Sequence[range]
) -> Generator[tuple[int, _Outcome], None, None]:
    """Outcomes of units as they are done. After a failure only units before the failed one are waited for."""
    if backend == "local":
        yield from _local(work, batches)
        return
    pool: _Pool = _Processes(work, workers, units) if backend == "processes" else _Ray(work, workers, units)
    finished = False
    try:
        waiting = sorted(batches, reverse=True)
        running: set[int] = set()
        first_failure = len(units)
        while waiting or any(unit < first_failure for unit in running):
            for worker in pool.free():
                if waiting:
                    unit = waiting.pop()
                    pool.submit(worker, unit, batches[unit])
                    running.add(unit)
            for unit, outcome in pool.wait():
                running.remove(unit)
                if outcome.error is not None:
                    waiting.clear()
                    first_failure = min(first_failure, unit)
                yield unit, outcome
        finished = not running
    finally:
        pool.stop(kill=not finished)


def _local(work: _Work, batches: dict[int, list[Any]]) -> Generator[tuple[int, _Outcome], None, None]:
    if work.init is not None:
        work.init()
    for unit, batch in batches.items():
        outcome = _perform(work, batch)
        if outcome.error is not None and not isinstance(outcome.error, Exception):
            raise outcome.error
        yield unit, outcome
        if outcome.error is not None:
            return


def _perform(work: _Work, batch: list[Any]) -> _Outcome:
    try:
        if not work.batched:
            return _Outcome([work.fn(batch[0])])
        values = list(work.fn(batch))
        if len(values) != len(batch):
            raise ValueError(f"the function gave {len(values)} results for a batch of {len(batch)}")
        return _Outcome(values)
    except BaseException as error:
        return _Outcome([], error)


class _Reply(NamedTuple):
    """What a worker sends: `ready`, `done`, `failed` (fn or init raised), `unloadable` or `unsendable`."""

    kind: str
    values: list[Any] = []  # noqa: RUF012 - never changed
    error: BaseException | None = None
    text: str = ""


def _reply(work: _Work, batch: list[Any]) -> bytes:
    """Do a unit in a worker and pack what is to be sent back."""
    outcome = _perform(work, batch)
    if outcome.error is not None:
        return pickle.dumps(_Reply("failed", error=_portable(outcome.error)))
    try:
        return pickle.dumps(_Reply("done", outcome.values))
    except Exception as error:
        return pickle.dumps(_Reply("unsendable", text=f"{type(error).__name__}: {error}"))


def _portable(error: BaseException) -> BaseException:
    """The error in a form that survives the way between processes, with the worker's traceback as a note."""
    trace = "".join(traceback.format_exception(error)).rstrip()
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    if not isinstance(error, IntarsiaError):
        error.add_note(f"In the worker:\n{trace}")
    return error


def _understood(reply: _Reply, named: str) -> _Outcome:
    """A reply to a unit as its outcome."""
    if reply.kind == "unloadable":
        error: BaseException = ConfigError(
            f"A worker process could not load the function or {named}: {reply.text}.",
            "Put what is sent to workers into a module that can be imported, or use backend='local'.",
        )
    elif reply.kind == "unsendable":
        error = ConfigError(
            f"The result of {named} cannot be sent between processes: {reply.text}.",
            "Return plain values or arrays, or use backend='local'.",
        )
    elif reply.kind == "failed" and reply.error is not None:
        error = reply.error
    else:
        return _Outcome(reply.values)
    return _Outcome([], error)


class _Processes:
    """Spawned (never forked: torch has threads) processes, each with a pipe of its own."""

    def __init__(self, work: _Work, workers: int, units: Sequence[range]) -> None:
        self.units = units
        payload = _pickled(work, "The function (or init)")
        self.processes: list[multiprocessing.process.BaseProcess] = []
        self.pipes: list[multiprocessing.connection.Connection] = []
        self.busy: dict[int, int | None] = {}  # worker -> its unit, None while it starts
        context = multiprocessing.get_context("spawn")
        try:
            with _threads_shared(workers), _interrupts_held():
                for worker in range(workers):
                    ours, theirs = context.Pipe()
                    # Not a daemon: those may not have child processes, which `fn` may need.
                    process = context.Process(target=_serve, args=(theirs, payload), name=f"fanout-{worker}")
                    self.pipes.append(ours)
                    process.start()
                    theirs.close()
                    self.processes.append(process)
                    self.busy[worker] = None
        except BaseException:
            self.stop(kill=True)
            raise

    def free(self) -> list[int]:
        return [worker for worker in range(len(self.processes)) if worker not in self.busy]

    def submit(self, worker: int, unit: int, batch: list[Any]) -> None:
        data = _pickled(batch, _named(self.units[unit]).capitalize())
        self.busy[worker] = unit
        with contextlib.suppress(BrokenPipeError):  # it has just died; `wait` will see that
            self.pipes[worker].send_bytes(data)

    def wait(self) -> list[tuple[int, _Outcome]]:
        sources: dict[Any, int] = {}
        for worker in self.busy:
            sources[self.pipes[worker]] = worker
            sources[self.processes[worker].sentinel] = worker
        done = []
        for worker in sorted({sources[source] for source in multiprocessing.connection.wait(list(sources))}):
            reply = self._received(worker)
            unit = self.busy.pop(worker)
            if reply.kind == "ready":
                continue
            if unit is None:
                error = _understood(reply, "its first item").error
                raise error if error is not None else BackendError("A worker process gave no sign.")
            done.append((unit, _understood(reply, _named(self.units[unit]))))
        return done

    def stop(self, *, kill: bool) -> None:
        for pipe in self.pipes:
            pipe.close()  # an idle worker takes this as the end
        for worker, process in enumerate(self.processes):
            if kill or worker in self.busy:
                process.terminate()
        for process in self.processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()

    def _received(self, worker: int) -> _Reply:
        pipe = self.pipes[worker]
        try:
            # A worker may have answered and died since; its answer counts.
            if pipe.poll():
                reply: _Reply = pickle.loads(pipe.recv_bytes())
                return reply
        except (EOFError, OSError):
            pass
        process = self.processes[worker]
        process.join(5)
        code = process.exitcode
        how = f"was killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended ({code})"
        unit = self.busy[worker]
        if unit is None:
            raise BackendError(
                f"A worker process {how} before it could start.",
                "In a script, call this below `if __name__ == '__main__':`; see the traceback above.",
            )
        raise BackendError(
            f"A worker process {how} while working on {_named(self.units[unit])}.",
            "Lack of memory is the usual cause: use fewer workers, or smaller items.",
        )


def _serve(pipe: multiprocessing.connection.Connection, payload: bytes) -> None:
    """The life of a worker process: load the work, then answer units until the pipe closes."""
    # Ctrl-C reaches the whole group; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        try:
            work: _Work = pickle.loads(payload)
        except BaseException as error:
            pipe.send_bytes(pickle.dumps(_Reply("unloadable", text=f"{type(error).__name__}: {error}")))
            return
        try:
            if work.init is not None:
                work.init()
        except BaseException as error:
            pipe.send_bytes(pickle.dumps(_Reply("failed", error=_portable(error))))
            return
        pipe.send_bytes(pickle.dumps(_Reply("ready")))
        while True:
            data = pipe.recv_bytes()
            try:
                batch = pickle.loads(data)
            except Exception as error:
                pipe.send_bytes(pickle.dumps(_Reply("unloadable", text=f"{type(error).__name__}: {error}")))
                continue
            pipe.send_bytes(_reply(work, batch))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


class _Ray:
    """One actor a worker, on the running cluster or on a local one that is started and ended here."""

    def __init__(self, work: _Work, workers: int, units: Sequence[range]) -> None:
        try:
            import ray
        except ImportError as error:
            raise ConfigError("The ray backend needs Ray.", 'pip install "intarsia[ray]"') from error
        self.ray = ray
        self.units = units
        self.refs: dict[Any, tuple[int, int | None]] = {}  # reference -> (worker, unit), unit None while it starts
        self.actors: list[Any] = []
        self.started = not ray.is_initialized()
        try:
            if self.started:
                size: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False}
                if os.environ.get("RAY_ADDRESS"):
                    size = {}  # a running cluster has a size of its own
                ray.init(log_to_driver=False, logging_level=logging.ERROR, **size)
            workers = max(1, min(workers, int(ray.cluster_resources().get("CPU", workers))))
            actor = ray.remote(num_cpus=1, max_restarts=0)(_Actor)
            payload = ray.cloudpickle.dumps(work)
            self.actors = [actor.remote(payload, sys.path) for _ in range(workers)]
            self.refs = {actor.start.remote(): (worker, None) for worker, actor in enumerate(self.actors)}
        except (ray.exceptions.RayError, ConnectionError, OSError, ValueError, RuntimeError) as error:
            self.stop(kill=True)
            raise BackendError(f"Ray could not be started: {error}.", "Check RAY_ADDRESS and `ray status`.") from error
        except (TypeError, pickle.PicklingError) as error:
            self.stop(kill=True)
            raise ConfigError(f"The function cannot be sent to workers: {error}.", "Use backend='local'.") from error
        except BaseException:
            self.stop(kill=True)
            raise

    def free(self) -> list[int]:
        busy = {worker for worker, _ in self.refs.values()}
        return [worker for worker in range(len(self.actors)) if worker not in busy]

    def submit(self, worker: int, unit: int, batch: list[Any]) -> None:
        try:
            self.refs[self.actors[worker].work.remote(batch)] = (worker, unit)
        except (TypeError, pickle.PicklingError) as error:
            raise ConfigError(
                f"{_named(self.units[unit]).capitalize()} cannot be sent to workers: {error}.", "Use backend='local'."
            ) from error

    def wait(self) -> list[tuple[int, _Outcome]]:
        ready, _ = self.ray.wait(list(self.refs), num_returns=1)
        done = []
        for ref in ready:
            _, unit = self.refs.pop(ref)
            named = "its first item" if unit is None else _named(self.units[unit])
            try:
                reply: _Reply = pickle.loads(self.ray.get(ref))
            except self.ray.exceptions.RayTaskError as error:
                reply = _Reply("unloadable", text=str(error).strip().splitlines()[-1])
            except self.ray.exceptions.RayError as error:
                raise BackendError(
                    f"A Ray worker died while working on {named}: {str(error).splitlines()[0]}",
                    "Lack of memory is the usual cause: use fewer workers, or smaller items; see `ray logs`.",
                ) from error
            outcome = _understood(reply, named)
            if unit is not None:
                done.append((unit, outcome))
            elif outcome.error is not None:
                raise outcome.error
        return done

    def stop(self, *, kill: bool) -> None:
        for actor in self.actors:
            with contextlib.suppress(Exception):  # a dead actor is as good as a stopped one
                self.ray.kill(actor)
        if self.started:
            self.ray.shutdown()


class _Actor:
    """A Ray worker."""

    def __init__(self, payload: bytes, path: list[str]) -> None:
        self._payload = payload
        self._path = path

    def start(self) -> bytes:
        """Load the work and run `init`."""
        # What can be imported there must be importable here, as in a spawned process.
        sys.path.extend(folder for folder in self._path if folder not in sys.path)
        try:
            self._work: _Work = pickle.loads(self._payload)
        except BaseException as error:
            return pickle.dumps(_Reply("unloadable", text=f"{type(error).__name__}: {error}"))
        try:
            if self._work.init is not None:
                self._work.init()
        except BaseException as error:
            return pickle.dumps(_Reply("failed", error=_portable(error)))
        return pickle.dumps(_Reply("ready"))

    def work(self, batch: list[Any]) -> bytes:
        """Do one unit."""
        return _reply(self._work, batch)


def _check(
    fn: Callable[[Any], Any],
    journal: Journal | None,
    stage: str,
    backend: str,
    workers: int | None,
    batch_size: int | None,
) -> None:
    if backend not in ("local", "processes", "ray"):
        raise ConfigError(f"There is no backend {backend!r}.", "Use local, processes or ray.")
    if workers is not None and workers < 1:
        raise ConfigError(f"workers is {workers}.", "Use 1 or more, or leave it out for one a CPU.")
    if batch_size is not None and batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}.", "Use 1 or more, or leave it out for single items.")
    if journal is not None and not stage and "<" in _name_of(fn):
        raise ConfigError(
            f"{_name_of(fn)} has no name of its own to keep its results apart in the journal.", "Give a stage name."
        )


def _name_of(fn: Callable[[Any], Any]) -> str:
    owner = getattr(fn, "__self__", None)
    if not hasattr(fn, "__qualname__") or (owner is not None and not isinstance(owner, ModuleType)):
        # An object's state is not in its name.
        return f"<{type(fn).__name__}>"
    return f"{fn.__module__}.{fn.__qualname__}"


def _keys(fn: Callable[[Any], Any], stage: str, key: Callable[[Item], str] | None, items: Sequence[Item]) -> list[str]:
    stage = stage or _name_of(fn)
    if key is not None:
        keys = [content_key("fanout", stage, key(item)) for item in items]
        seen: dict[str, int] = {}
        for i, name in enumerate(keys):
            if seen.setdefault(name, i) != i:
                raise ConfigError(
                    f"Items {seen[name]} and {i} have the same key {key(items[i])!r}.", "Each item needs its own."
                )
        return keys
    contents = []
    for i, item in enumerate(items):
        try:
            contents.append(content_key(item))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"Item {i} has no content key: {error}.", "Give `key`, a stable name an item.") from error
    counts: Counter[str] = Counter()
    keys = []
    for content in contents:
        keys.append(content_key("fanout", stage, content, counts[content]))
        counts[content] += 1
    return keys


def _fill(results: list[Any], unit: range, journal: Journal, keys: Sequence[str]) -> None:
    for i in unit:
        row = journal.get(keys[i])
        assert isinstance(row, list)
        results[i] = row[0]


def _named(unit: range) -> str:
    return f"item {unit.start}" if len(unit) == 1 else f"items {unit.start} to {unit.stop - 1}"


def _pickled(value: Any, what: str) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception as error:
        raise ConfigError(
            f"{what} cannot be sent to worker processes: {error}.",
            "Use functions and classes of a module (no lambdas, no inner functions), or backend='local'.",
        ) from error


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _threads_shared(workers: int) -> Iterator[None]:
    """Children started inside get their share of this machine's threads, unless the user has said otherwise."""
    if "OMP_NUM_THREADS" in os.environ:
        yield
        return
    os.environ["OMP_NUM_THREADS"] = str(max(1, _cpus() // workers))
    try:
        yield
    finally:
        del os.environ["OMP_NUM_THREADS"]


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits; children started inside are born deaf to it, so that it cannot catch them half-started."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
