"""fanout.map: the same results on every backend, resumption, and workers that fail, crash or are interrupted."""

from __future__ import annotations

import builtins
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from intarsia.core import fanout
from intarsia.core.errors import BackendError, ConfigError, DataError, ModelError
from intarsia.core.journal import Journal

BACKENDS = ["local", "processes"]


def square(x: float) -> float:
    return x * x


def squares(xs: list[float]) -> list[float]:
    return [x * x for x in xs]


def slow_first(x: int) -> list[int]:
    time.sleep(0.3 if x == 0 else 0.0)
    return [x, x * x]


def too_few(xs: list[int]) -> list[int]:
    return xs[:-1]


def fails_on_three(x: int) -> int:
    if x >= 3:
        raise ValueError(f"no {x}")
    return x


def fails_late_on_three_and_at_once_on_four(x: int) -> int:
    if x == 3:
        time.sleep(0.5)
    if x >= 3:
        raise KeyError(x)
    return x


def model_error(x: int) -> int:
    raise ModelError("The model is broken.", "Take another.")


class Odd(Exception):
    """Cannot be unpickled: its constructor wants two arguments and keeps one."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(a)


def raises_odd(x: int) -> int:
    raise Odd(1, 2)


def dies_on_two(x: int) -> int:
    if x == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def exits(x: int) -> int:
    os._exit(3)


def dies(xs: list[int]) -> list[int]:
    os.kill(os.getpid(), signal.SIGKILL)
    return xs


def gives_a_lock(x: int) -> Any:
    return threading.Lock()


def omp_threads(x: int) -> str | None:
    return os.environ.get("OMP_NUM_THREADS")


def uses_a_subprocess(x: int) -> int:
    import multiprocessing

    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0,))
    child.start()
    child.join()
    return x


def give_none(x: int) -> None:
    return None


def give_tuple(x: int) -> tuple[int, int]:
    return (x, x)


def remember_init() -> None:
    os.environ["FANOUT_TEST_INIT"] = "yes"


def was_initialized(x: int) -> str | None:
    return os.environ.get("FANOUT_TEST_INIT")


def bad_init() -> None:
    raise ModelError("The model is broken.", "Take another.")


class NotOverThere:
    """Can be pickled; unpickling it fails."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (fails_on_three, (7,))


def record(path: str, x: int) -> int:
    with open(path, "a") as file:
        file.write(f"{x}\n")
    if x == int(os.environ.get("FANOUT_TEST_STOP_AT", "-1")):
        raise DataError("Stop.", "")
    return x * 10


def identity(x: Any) -> Any:
    return x


@pytest.mark.parametrize("backend", BACKENDS)
def test_results_come_in_the_order_of_the_items(backend: Any) -> None:
    assert fanout.map(slow_first, range(6), backend=backend, workers=2) == [[x, x * x] for x in range(6)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("batch_size", [1, 3])
def test_batches_give_the_same_as_single_items(backend: Any, batch_size: int) -> None:
    items = [0.1 * i for i in range(7)]
    expected = [square(x) for x in items]
    assert fanout.map(squares, items, backend=backend, workers=2, batch_size=batch_size) == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_items(backend: Any) -> None:
    assert fanout.map(square, [], backend=backend) == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_progress_counts_items(backend: Any) -> None:
    seen: list[tuple[int, int]] = []
    fanout.map(squares, [1, 2, 3, 4, 5], backend=backend, workers=1, batch_size=2, progress=lambda *p: seen.append(p))
    assert seen == [(2, 5), (4, 5), (5, 5)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_init_runs_in_the_workers(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FANOUT_TEST_INIT", raising=False)
    assert fanout.map(was_initialized, [1, 2, 3], backend=backend, workers=2, init=remember_init) == ["yes"] * 3
    assert ("FANOUT_TEST_INIT" in os.environ) == (backend == "local")
    monkeypatch.setenv("FANOUT_TEST_INIT", "")  # so that undoing removes what init set here
    with pytest.raises(ModelError, match="broken"):
        fanout.map(square, [1], backend=backend, init=bad_init)


# --- failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_keeps_its_type_and_names_the_item(backend: Any) -> None:
    with pytest.raises(ValueError, match="no 3") as caught:
        fanout.map(fails_on_three, range(8), backend=backend, workers=2)
    assert "fanout.map: raised on item 3" in caught.value.__notes__
    assert backend == "local" or "fails_on_three" in caught.value.__notes__[0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_failing_item_is_reported_whoever_fails_first(backend: Any) -> None:
    with pytest.raises(KeyError) as caught:
        fanout.map(fails_late_on_three_and_at_once_on_four, range(6), backend=backend, workers=2)
    assert caught.value.args == (3,)


@pytest.mark.parametrize("backend", BACKENDS)
def test_errors_of_ours_come_as_they_are(backend: Any) -> None:
    with pytest.raises(ModelError) as caught:
        fanout.map(model_error, [1], backend=backend)
    assert (caught.value.message, caught.value.hint) == ("The model is broken.", "Take another.")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_batch_of_the_wrong_length(backend: Any) -> None:
    with pytest.raises(ValueError, match="1 results for a batch of 2") as caught:
        fanout.map(too_few, [1, 2, 3], backend=backend, batch_size=2, workers=1)
    assert "fanout.map: raised on items 0 to 1" in caught.value.__notes__


def test_an_exception_that_cannot_travel_is_told_in_words() -> None:
    with pytest.raises(RuntimeError, match="Odd: 1") as caught:
        fanout.map(raises_odd, [1], backend="processes")
    assert "raise Odd(1, 2)" in caught.value.__notes__[0]


def test_a_killed_worker_names_its_item() -> None:
    with pytest.raises(BackendError, match="killed by SIGKILL while working on item 2") as caught:
        fanout.map(dies_on_two, range(4), backend="processes", workers=2)
    assert "memory" in caught.value.hint
    with pytest.raises(BackendError, match=r"ended \(3\) while working on item 0"):
        fanout.map(exits, [0], backend="processes")
    with pytest.raises(BackendError, match="items 0 to 2"):
        fanout.map(dies, range(3), backend="processes", batch_size=3)


@pytest.mark.parametrize("fn", [lambda x: x, functools.partial(square, threading.Lock())])
def test_a_function_that_cannot_be_sent(fn: Any) -> None:
    with pytest.raises(ConfigError, match=r"function .* cannot be sent to worker processes"):
        fanout.map(fn, [1, 2], backend="processes")


def test_items_and_results_that_cannot_be_sent() -> None:
    with pytest.raises(ConfigError, match="Item 1 cannot be sent"):
        fanout.map(identity, [1, threading.Lock()], backend="processes", workers=1)
    with pytest.raises(ConfigError, match="result of item 0 cannot be sent"):
        fanout.map(gives_a_lock, [1], backend="processes")
    with pytest.raises(ConfigError, match="could not load the function or item 0: ValueError: no 7"):
        fanout.map(identity, [NotOverThere()], backend="processes")


def test_a_script_without_a_main_guard_is_told_about_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from intarsia.core import fanout\ndef f(x): return x\nprint(fanout.map(f, [1, 2], backend='processes'))\n"
    )
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert run.returncode != 0
    assert "if __name__ == '__main__'" in run.stderr.splitlines()[-1]


def test_code_that_workers_cannot_import(tmp_path: Path) -> None:
    code = "from intarsia.core import fanout\ndef f(x): return x\nfanout.map(f, [1, 2], backend='processes')\n"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "could not load the function" in run.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "threads"}, "no backend 'threads'"),
        ({"workers": 0}, "workers is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
    ],
)
def test_bad_options(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fanout.map(square, [1], **options)


def test_workers_share_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    share = str(max(1, fanout._cpus() // 2))
    assert fanout.map(omp_threads, [1, 2], backend="processes", workers=2) == [share] * 2
    assert "OMP_NUM_THREADS" not in os.environ
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert fanout.map(omp_threads, [1], backend="processes", workers=2) == ["5"]


def test_workers_may_have_children() -> None:
    assert fanout.map(uses_a_subprocess, [1, 2], backend="processes", workers=1) == [1, 2]


def test_control_c_ends_the_workers(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(
        "import os, time\ndef job(folder):\n    open(f'{folder}/{os.getpid()}', 'w').close()\n    time.sleep(60)\n"
    )
    (tmp_path / "script.py").write_text(
        "import sys\nfrom intarsia.core import fanout\nimport jobs\n"
        "if __name__ == '__main__':\n"
        "    fanout.map(jobs.job, [sys.argv[1]] * 4, backend='processes', workers=2)\n"
    )
    pids = tmp_path / "pids"
    pids.mkdir()
    run = subprocess.Popen(
        [sys.executable, tmp_path / "script.py", pids], start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 60
        while len(list(pids.iterdir())) < 2:
            assert time.monotonic() < deadline
            assert run.poll() is None
            time.sleep(0.02)
        workers = [int(p.name) for p in pids.iterdir()]
        os.killpg(run.pid, signal.SIGINT)  # what a terminal does: the whole group
        _, errors = run.communicate(timeout=20)
    finally:
        run.kill()
    assert run.returncode != 0
    assert errors.count("KeyboardInterrupt") == 1  # the parent's; workers die silently
    for pid in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


# --- journal -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("batch_size", [None, 3])
def test_a_second_run_takes_all_from_the_journal(backend: Any, batch_size: int | None, tmp_path: Path) -> None:
    fn: Any = squares if batch_size else square
    items = [1.5, 2.5, 1.5, 4.0]
    for _ in range(2):
        with Journal(tmp_path / "j") as journal:
            size = len(journal)
            out = fanout.map(fn, items, journal=journal, backend=backend, workers=2, batch_size=batch_size)
            assert out == [2.25, 6.25, 2.25, 16.0]
    assert size == 4  # equal items are kept apart
    seen: list[tuple[int, int]] = []
    with Journal(tmp_path / "j") as journal:
        fanout.map(fn, items, journal=journal, batch_size=batch_size, progress=lambda *p: seen.append(p))
        assert len(journal) == 4
    assert seen == [(4, 4)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stopped_run_goes_on_where_it_stopped(backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    work = functools.partial(record, str(log))
    options: Any = {"backend": backend, "workers": 1, "stage": "s"}
    monkeypatch.setenv("FANOUT_TEST_STOP_AT", "3")
    with Journal(tmp_path / "j") as journal, pytest.raises(DataError):
        fanout.map(work, range(6), journal=journal, **options)
    monkeypatch.delenv("FANOUT_TEST_STOP_AT")
    with Journal(tmp_path / "j") as journal:
        assert journal.resumed == 3
        assert fanout.map(work, range(6), journal=journal, **options) == [0, 10, 20, 30, 40, 50]
    assert log.read_text().split() == ["0", "1", "2", "3", "3", "4", "5"]


def test_a_batch_of_which_a_row_is_missing_is_done_whole(tmp_path: Path) -> None:
    calls: list[list[int]] = []

    def work(xs: list[int]) -> list[int]:
        calls.append(xs)
        return xs

    with Journal(tmp_path / "j") as journal:
        fanout.map(work, [1, 2, 3], journal=journal, batch_size=2, stage="s")
        fanout.map(work, [1, 2, 3, 4], journal=journal, batch_size=2, stage="s")
    assert calls == [[1, 2], [3], [3, 4]]


def test_fresh_and_recorded_results_look_alike(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        assert [fanout.map(give_tuple, [1], journal=journal) for _ in range(2)] == [[[1, 1]], [[1, 1]]]
        assert [fanout.map(give_none, [1], journal=journal) for _ in range(2)] == [[None], [None]]
    assert fanout.map(give_tuple, [1]) == [(1, 1)]


def test_two_maps_in_one_journal_are_kept_apart(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        assert fanout.map(square, [3], journal=journal) == [9]
        assert fanout.map(identity, [3], journal=journal) == [3]
        assert fanout.map(lambda x: x + 1, [3], journal=journal, stage="plus") == [4]
        for nameless in (lambda x: x, functools.partial(square), "abc".count):
            with pytest.raises(ConfigError, match="stage"):
                fanout.map(nameless, [3], journal=journal)


def test_keys(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        with pytest.raises(ConfigError, match="Item 1 has no content key"):
            fanout.map(identity, [1, {2}], journal=journal)
        with pytest.raises(ConfigError, match="Items 0 and 2 have the same key 'a'"):
            fanout.map(identity, ["a", "b", "a"], key=str, journal=journal)
        assert fanout.map(len, [{2}, {3, 4}], key=repr, journal=journal) == [1, 2]
        assert fanout.map(len, [{2}, {3, 4}], key=repr, journal=journal) == [1, 2]


def test_a_failed_write_stops_the_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> int:
        raise OSError(28, "No space left on device")

    with Journal(tmp_path / "j") as journal:
        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(BackendError, match="full"):
            fanout.map(square, [1, 2], journal=journal, backend="processes", workers=1)
        monkeypatch.undo()
        assert fanout.map(square, [1, 2], journal=journal) == [1, 4]


# --- Ray -----------------------------------------------------------------------------------------------------------


def test_ray_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_ray(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "ray":
            raise ImportError("No module named 'ray'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_ray)
    with pytest.raises(ConfigError, match=r"intarsia\[ray\]"):
        fanout.map(square, [1], backend="ray")


@pytest.fixture
def ray_cluster() -> Any:
    ray = pytest.importorskip("ray", reason="the ray extra is not installed")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


@pytest.mark.slow
def test_ray_does_as_the_others_do(ray_cluster: Any, tmp_path: Path) -> None:
    run = functools.partial(fanout.map, backend="ray", workers=2)
    items = [0.1 * i for i in range(7)]
    assert run(square, items) == fanout.map(square, items)
    assert run(squares, items, batch_size=3) == fanout.map(squares, items, batch_size=3)
    assert run(slow_first, range(4)) == [[x, x * x] for x in range(4)]
    assert run(was_initialized, [1, 2], init=remember_init) == ["yes"] * 2
    assert run(square, [], workers=1) == []
    with Journal(tmp_path / "j") as journal:
        assert run(square, items, journal=journal) == fanout.map(square, items, journal=journal)
        assert journal.resumed == 0
        assert len(journal) == 7
    with pytest.raises(ValueError, match="no 3") as caught:
        run(fails_on_three, range(8))
    assert "fanout.map: raised on item 3" in caught.value.__notes__
    with pytest.raises(KeyError) as key_error:
        run(fails_late_on_three_and_at_once_on_four, range(6))
    assert key_error.value.args == (3,)
    with pytest.raises(ModelError, match="broken"):
        run(model_error, [1])
    with pytest.raises(ModelError, match="broken"):
        run(square, [1], init=bad_init)
    with pytest.raises(BackendError, match="died while working on item 2"):
        run(dies_on_two, range(4))
    with pytest.raises(ConfigError, match="Item 1 cannot be sent"):
        run(identity, [1, threading.Lock()], workers=1)
    with pytest.raises(ConfigError, match="function cannot be sent"):
        run(functools.partial(square, threading.Lock()), [1])
    with pytest.raises(ConfigError, match="could not load the function or item 0"):
        run(identity, [NotOverThere()])
    assert ray_cluster.is_initialized()  # the user's cluster is left running


@pytest.mark.slow
def test_ray_is_started_and_ended_when_there_is_none() -> None:
    ray = pytest.importorskip("ray", reason="the ray extra is not installed")
    assert fanout.map(square, [1, 2, 3], backend="ray", workers=2) == [1, 4, 9]
    assert not ray.is_initialized()
