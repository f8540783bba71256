"""The journal: what it keeps, what it survives, and what it refuses."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from intarsia.core import journal as journal_module
from intarsia.core.errors import BackendError, ConfigError, DataError
from intarsia.core.journal import Journal, content_key, repair, write_atomic
from intarsia.core.sampling import Sampling

json_values = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner | st.none(), max_size=3) | st.dictionaries(st.text(), inner | st.none(), max_size=3),
    max_leaves=6,
)
batches = st.lists(st.dictionaries(st.text(), json_values, min_size=1, max_size=4), max_size=5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "journal.jsonl"


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """The kernel refuses to let any file grow past `size`: a partial write, then EFBIG, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)


def rows_of(journal: Journal) -> dict[str, Any]:
    return {key: journal.get(key) for key in journal}


def test_rows_come_back_after_reopening(path: Path) -> None:
    with Journal(path, manifest={"seed": 1}) as journal:
        assert journal.resumed == 0
        journal.append({"a": {"text": "eins\nzwei", "ids": [1, 2]}, "b": 0.1})
        journal.append({"c": False})
        assert "a" in journal
        assert "z" not in journal
        assert journal.get("z") is None
    with Journal(path, manifest={"seed": 1}) as journal:
        assert journal.resumed == len(journal) == 3
        assert list(journal.keys()) == list(journal) == ["a", "b", "c"]
        assert rows_of(journal) == {"a": {"text": "eins\nzwei", "ids": [1, 2]}, "b": 0.1, "c": False}
        assert journal.manifest == {"seed": 1}


@settings(max_examples=40)
@given(batches)
def test_any_json_rows_come_back_unchanged(content: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with Journal(Path(folder) / "j") as journal:
            for batch in content:
                journal.append(batch)
            written = rows_of(journal)
        expected = {key: row for batch in content for key, row in batch.items()}
        with Journal(Path(folder) / "j") as journal:
            assert repr(rows_of(journal)) == repr(written)
        assert written == expected


def test_lone_surrogates_survive_and_the_file_is_valid_utf8(path: Path) -> None:
    with Journal(path) as journal:
        journal.append({"a": "\ud800 \\ud800"})
    path.read_text(encoding="utf-8")
    assert Journal.read(path).get("a") == "\ud800 \\ud800"


def test_a_row_that_is_read_can_be_changed_without_changing_the_journal(path: Path) -> None:
    with Journal(path) as journal:
        given_row: dict[str, Any] = {"ids": [1]}
        journal.append({"a": given_row})
        given_row["ids"].append(2)
        first = journal.get("a")
        assert first is not None
        first["ids"].append(3)
        assert journal.get("a") == {"ids": [1]}


def test_a_later_row_replaces_an_earlier_one(path: Path) -> None:
    with Journal(path) as journal:
        journal.append({"a": 1})
        journal.append({"a": 2})
        assert journal.get("a") == 2
    assert Journal.read(path).get("a") == 2


def test_each_append_is_one_write_and_one_fsync(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal(path) as journal:
        calls: list[str] = []
        pwrite, fsync = os.pwrite, os.fsync
        monkeypatch.setattr(os, "pwrite", lambda *a: (calls.append("write"), pwrite(*a))[1])
        monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("fsync"), fsync(fd))[1])
        journal.append({str(i): "x" * 1000 for i in range(500)})
    assert calls == ["write", "fsync"]


@pytest.mark.parametrize("row", [None, object(), {1, 2}, b"x", float("nan"), [float("inf")], {"a": Path("x")}])
def test_what_is_no_row_is_refused_and_leaves_no_trace(path: Path, row: Any) -> None:
    with Journal(path) as journal:
        journal.append({"a": 1})
        before = path.read_bytes()
        with pytest.raises((TypeError, ValueError, DataError)):
            journal.append({"good": 1, "bad": row})
        assert path.read_bytes() == before
        assert list(journal) == ["a"]
        with pytest.raises(TypeError, match="keys are strings"):
            journal.append({1: 1})  # type: ignore[dict-item]


def test_not_finite_numbers_are_the_users_error(path: Path) -> None:
    with Journal(path) as journal, pytest.raises(DataError, match="float32"):
        journal.append({"a": {"logprob": float("nan")}})


# --- settings ------------------------------------------------------------------------------------------------------


def test_other_settings_are_refused_by_name(path: Path) -> None:
    Journal(path, manifest={"seed": 1, "model": {"name": "a", "dtype": "float32"}, "gone": True}).close()
    before = path.read_bytes()
    with pytest.raises(ConfigError) as caught:
        Journal(path, manifest={"seed": 1.0, "model": {"name": "b", "dtype": "float32"}, "new": None})
    text = str(caught.value)
    assert 'model.name (there "a", now "b")' in text
    assert "gone (there true, now absent)" in text
    assert "new (there absent, now null)" in text
    assert "1 more" in text  # the seed: 1 and 1.0 are not the same setting
    assert "dtype" not in text
    assert "--out" in text
    assert path.read_bytes() == before


def test_settings_are_compared_by_content(path: Path) -> None:
    Journal(path, manifest={"b": (1, 2), "s": Sampling(), "a": {}}).close()
    Journal(path, manifest={"a": {}, "s": Sampling().model_dump(), "b": [1, 2]}).close()
    Journal(path).close()
    with pytest.raises(ConfigError):
        Journal(path, manifest={"b": (1, 2), "s": Sampling(seed=3), "a": {}})
    with pytest.raises(ConfigError):
        Journal(path, manifest={})


# --- damage --------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(batches, st.data())
def test_a_file_cut_anywhere_is_a_clean_prefix_of_batches(content: list[dict[str, Any]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j"
        ends = []
        with Journal(path, manifest={"m": 1}) as journal:
            ends.append(path.stat().st_size)
            for batch in content:
                journal.append(batch)
                ends.append(path.stat().st_size)
        cut = data.draw(st.integers(0, ends[-1]))
        os.truncate(path, cut)
        whole = sum(end <= cut for end in ends) - 1
        expected = {key: row for batch in content[: max(whole, 0)] for key, row in batch.items()}
        if whole >= 0:
            reader = Journal.read(path)
            assert rows_of(reader) == expected
            assert path.stat().st_size == cut  # a reader changes nothing
        with Journal(path, manifest={"m": 1}) as journal:
            assert rows_of(journal) == expected
            assert journal.dropped == cut - (ends[whole] if whole >= 0 else 0)
            journal.append({"next": True})
        with Journal(path, manifest={"m": 1}) as journal:
            assert rows_of(journal) == expected | {"next": True}
            assert journal.dropped == 0


@pytest.mark.parametrize(
    "tail", [b"\0" * 700, b'{"sum":"0123456789abcdef","rows":{"z":1}}\n', b"garbage", b"\n", b"\xff\xfe"]
)
def test_a_garbled_tail_is_dropped(path: Path, tail: bytes) -> None:
    with Journal(path) as journal:
        journal.append({"a": 1})
    clean = path.read_bytes()
    path.write_bytes(clean + tail)
    with Journal(path) as journal:
        assert journal.dropped == len(tail)
        assert rows_of(journal) == {"a": 1}
        assert path.read_bytes() == clean


def test_every_flipped_byte_is_noticed(path: Path) -> None:
    with Journal(path) as journal:
        journal.append({"a": "abc"})
    clean = path.read_bytes()
    start = clean.index(b"\n") + 1
    for i in range(start, len(clean)):
        path.write_bytes(clean[:i] + bytes([clean[i] ^ 1]) + clean[i + 1 :])
        assert rows_of(Journal.read(path)) == {}


def test_damage_in_the_middle_names_the_line_and_can_be_repaired(path: Path) -> None:
    with Journal(path, manifest={"m": 1}) as journal:
        for i in range(4):
            journal.append({f"k{i}": i})
    damaged = path.read_bytes().replace(b'"k1":1', b'"k1":7')
    path.write_bytes(damaged)
    for opening in (Journal, Journal.read):
        with pytest.raises(DataError, match="Line 3 of the journal") as caught:
            opening(path)  # type: ignore[operator]
        assert "repair" in caught.value.hint
    assert path.read_bytes() == damaged
    assert repair(path) == 1
    assert path.with_name("journal.jsonl.damaged").read_bytes() == damaged
    with Journal(path, manifest={"m": 1}) as journal:
        assert rows_of(journal) == {"k0": 0, "k2": 2, "k3": 3}
    assert repair(path) == 0


def test_the_repair_command_in_the_hint_works(path: Path) -> None:
    with Journal(path) as journal:
        journal.append({"a": 1})
        journal.append({"b": 1})
    path.write_bytes(path.read_bytes().replace(b'"a":1', b'"a":2'))
    with pytest.raises(DataError) as caught:
        Journal(path)
    command = caught.value.hint.split("good batches: ")[1].replace("python ", f"{sys.executable} ", 1)
    subprocess.run(command, shell=True, check=True)
    assert rows_of(Journal.read(path)) == {"b": 1}


@pytest.mark.parametrize("content", [b"question,answer\n1,2\n", b"my notes", b'{"id": 1}\n', b"\x89PNG\r\n"])
def test_a_file_that_is_no_journal_is_left_alone(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(DataError, match="not a journal"):
        Journal(path)
    with pytest.raises(DataError):
        repair(path)
    assert path.read_bytes() == content


def test_a_damaged_header_is_not_repaired_by_guessing(path: Path) -> None:
    with Journal(path, manifest={"seed": 1}) as journal:
        journal.append({"a": 1})
    path.write_bytes(path.read_bytes().replace(b'"seed":1', b'"seed":2'))
    with pytest.raises(DataError, match="Line 1"):
        Journal(path)
    with pytest.raises(DataError, match="Line 1"):
        repair(path)


def test_a_newer_format_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "FORMAT", 2)
    Journal(path).close()
    monkeypatch.undo()
    with pytest.raises(DataError, match="newer version"):
        Journal(path)


def test_reading_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no journal"):
        Journal.read(tmp_path / "none")
    (tmp_path / "empty").touch()
    with pytest.raises(DataError, match="empty"):
        Journal.read(tmp_path / "empty")
    with pytest.raises(BackendError):
        Journal.read(tmp_path)
    with pytest.raises(BackendError):
        Journal(tmp_path)
    with pytest.raises(BackendError):
        Journal(tmp_path / "empty" / "j")


# --- disk ----------------------------------------------------------------------------------------------------------


def test_a_full_disk_loses_the_batch_in_flight_only(path: Path) -> None:
    with Journal(path) as journal:
        journal.append({"a": "x" * 100})
        good = path.read_bytes()
        with file_size_limit(len(good) + 50), pytest.raises(BackendError, match="full") as caught:
            journal.append({"b": "y" * 5000})
        assert "space" in caught.value.hint
        assert path.read_bytes() == good
        assert "b" not in journal
        journal.append({"c": 1})
    assert rows_of(Journal.read(path)) == {"a": "x" * 100, "c": 1}


def test_a_failing_fsync_loses_the_batch_in_flight_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with Journal(path) as journal:
        journal.append({"a": 1})
        good = path.read_bytes()
        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(BackendError, match="Input/output error"):
            journal.append({"b": 1})
        monkeypatch.undo()
        assert path.read_bytes() == good
        journal.append({"c": 1})
    assert list(Journal.read(path)) == ["a", "c"]


def test_when_even_the_roll_back_fails_the_next_append_mends_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(fd: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    with Journal(path) as journal:
        journal.append({"a": 1})
        monkeypatch.setattr(os, "ftruncate", broken)
        with file_size_limit(path.stat().st_size + 50), pytest.raises(BackendError):
            journal.append({"b": "y" * 5000})
        assert list(Journal.read(path)) == ["a"]
        with pytest.raises(BackendError):
            journal.append({"c": 1})
        monkeypatch.undo()
        journal.append({"d": 1})
    assert list(Journal.read(path)) == ["a", "d"]


def test_an_interrupt_during_a_write_loses_the_batch_in_flight_only(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite

    def interrupted(fd: int, data: bytes, offset: int) -> int:
        real(fd, data[:30], offset)
        raise KeyboardInterrupt

    with Journal(path) as journal:
        journal.append({"a": 1})
        monkeypatch.setattr(os, "pwrite", interrupted)
        with pytest.raises(KeyboardInterrupt):
            journal.append({"b": 1})
        monkeypatch.undo()
        journal.append({"c": 1})
    assert list(Journal.read(path)) == ["a", "c"]


def test_short_writes_are_completed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:7], offset))
    with Journal(path, manifest={"m": 1}) as journal:
        journal.append({"a": "long enough for several writes"})
    assert rows_of(Journal.read(path)) == {"a": "long enough for several writes"}


def test_a_full_disk_at_the_start(path: Path) -> None:
    # Room for the number in the lock file, not for the header.
    with file_size_limit(16), pytest.raises(BackendError, match="full"):
        Journal(path, manifest={"m": "x" * 100})
    with Journal(path, manifest={"m": 2}) as journal:  # the lock is free again, and nothing half-written is left
        journal.append({"a": 1})


def test_a_deleted_file_is_noticed(path: Path) -> None:
    with Journal(path) as journal:
        path.unlink()
        with pytest.raises(BackendError, match="deleted"):
            journal.append({"a": 1})


# --- processes and threads -----------------------------------------------------------------------------------------


def test_a_second_opening_is_refused(path: Path) -> None:
    with Journal(path) as journal:
        journal.append({"a": 1})
        with pytest.raises(BackendError, match="This process"):
            Journal(path)
        with pytest.raises(BackendError, match="This process"):
            repair(path)
        assert rows_of(Journal.read(path)) == {"a": 1}
    Journal(path).close()


def test_a_second_process_is_refused_with_the_number_of_the_first(path: Path) -> None:
    code = (
        "import sys; from intarsia.core.journal import Journal\n"
        "j = Journal(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(BackendError, match=rf"Another process \(pid {other.pid}\) is using the run folder"):
            Journal(path)
        other.kill()
        other.wait()
    Journal(path).close()  # the lock died with its holder


def test_a_forgotten_journal_frees_its_folder(path: Path) -> None:
    Journal(path).append({"a": 1})
    Journal(path).close()


def test_a_forked_child_can_read_but_not_append_and_does_not_hold_the_lock(path: Path) -> None:
    journal = Journal(path)
    journal.append({"a": 1})
    ready, tell = os.pipe()
    stop, go = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            assert journal.get("a") == 1
            with pytest.raises(BackendError, match="forked"):
                journal.append({"b": 1})
            journal.close()
            os.write(tell, b"y")
            os.close(go)
            os.read(stop, 1)
        finally:
            os._exit(0)
    try:
        os.close(tell)
        assert os.read(ready, 1) == b"y"
        with pytest.raises(BackendError):
            Journal(path)  # the child's close has not freed the parent's lock
        journal.append({"c": 1})
        journal.close()
        Journal(path).close()  # though the child still lives
    finally:
        os.close(go)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(stop)
    assert list(Journal.read(path)) == ["a", "c"]


def test_threads_share_a_journal(path: Path) -> None:
    with Journal(path) as journal:

        def work(name: int) -> None:
            for i in range(10):
                journal.append({f"{name}-{i}": [name, i]})

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert rows_of(Journal.read(path)) == {f"{n}-{i}": [n, i] for n in range(4) for i in range(10)}


def test_a_closed_or_reading_journal_takes_no_rows(path: Path) -> None:
    journal = Journal(path)
    journal.append({"a": 1})
    journal.close()
    journal.close()
    assert journal.get("a") == 1
    for closed in (journal, Journal.read(path)):
        with pytest.raises(ValueError, match="closed or open for reading"):
            closed.append({"b": 1})


def test_killed_at_twenty_random_moments(path: Path) -> None:
    """One journal, twenty writers killed in turn: it is always a prefix of batches, with every acknowledged one."""
    size = 3
    text = "payload " * 20_000  # long enough for a write to be caught half-way
    rng = random.Random(7)
    done = 0
    grown = 0
    for turn in range(20):
        acknowledged, tell = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                with Journal(path, manifest={"m": 1}) as journal:
                    for batch in range(len(journal) // size, 10_000):
                        journal.append({f"{batch}.{i}": f"{batch}.{i} {text}" for i in range(size)})
                        os.write(tell, b".")
            finally:
                os._exit(1)
        os.close(tell)
        # Half of the kills may fall into the opening; the others come when work is surely being done.
        reported = len(os.read(acknowledged, 1)) if turn % 2 else 0
        time.sleep(rng.uniform(0.0, 0.04))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while chunk := os.read(acknowledged, 4096):
            reported += len(chunk)
        os.close(acknowledged)
        with Journal(path, manifest={"m": 1}) as journal:
            found = len(journal) // size
            assert list(journal) == [f"{batch}.{i}" for batch in range(found) for i in range(size)]
            assert all(journal.get(key) == f"{key} {text}" for key in list(journal)[-size:])
            assert done + reported <= found <= done + reported + 1
        grown += found > done
        done = found
    assert grown >= 10


class JournalMachine(RuleBasedStateMachine):
    """Any sequence of good and failed appends, crashes and reopenings agrees with a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "j"
        self.model: dict[str, Any] = {}
        self.journal: Journal = Journal(self.path, manifest={"m": 1})
        self.is_open = True

    @precondition(lambda self: self.is_open)
    @rule(rows=st.dictionaries(st.text(max_size=3), json_values, max_size=3))
    def append(self, rows: dict[str, Any]) -> None:
        self.journal.append(rows)
        self.model.update(rows)

    @precondition(lambda self: self.is_open)
    @rule(room=st.integers(0, 60), broken_roll_back=st.booleans())
    def append_on_a_full_disk(self, room: int, broken_roll_back: bool) -> None:
        with pytest.MonkeyPatch.context() as patch, file_size_limit(self.path.stat().st_size + room):
            if broken_roll_back:
                patch.setattr(os, "ftruncate", lambda fd, size: (_ for _ in ()).throw(OSError(5, "no")))
            with pytest.raises(BackendError):
                self.journal.append({"lost": "x" * 100})

    @precondition(lambda self: self.is_open)
    @rule()
    def close(self) -> None:
        self.journal.close()
        self.is_open = False

    @precondition(lambda self: not self.is_open)
    @rule(part=st.integers(0, 200))
    def crash_while_writing(self, part: int) -> None:
        line = journal_module._line("rows", {"lost": "x" * 200})
        with open(self.path, "ab") as file:
            file.write(line[:part])
        self.reopen()

    @precondition(lambda self: not self.is_open)
    @rule()
    def reopen(self) -> None:
        self.journal = Journal(self.path, manifest={"m": 1})
        assert self.journal.resumed == len(self.model)
        self.is_open = True

    @invariant()
    def agrees(self) -> None:
        assert rows_of(self.journal) == self.model
        assert rows_of(Journal.read(self.path)) == self.model

    def teardown(self) -> None:
        self.journal.close()
        self.folder.cleanup()


JournalMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
TestJournalMachine = JournalMachine.TestCase


# --- content_key and write_atomic ----------------------------------------------------------------------------------


def test_content_key_tells_everything_apart() -> None:
    parts: list[tuple[Any, ...]] = [
        (),
        (None,),
        ("",),
        (1,),
        (1.0,),
        (True,),
        ("1",),
        ("a", "b"),
        ("ab",),
        (["a", "b"],),
        ({"a": "b"},),
        ({"a": ["b"]},),
        (Sampling(),),
        (Sampling(seed=1),),
        ("\ud800",),
        ("\\ud800",),
    ]
    assert len({content_key(*p) for p in parts}) == len(parts)


def test_content_key_is_stable() -> None:
    assert content_key("a", 1.0, {"x": (1,)}) == "0ba8d755a5b42e7cc181b89a4a2961f9"
    assert content_key({"b": 1, "a": (2, None)}) == content_key({"a": [2, None], "b": 1})
    assert content_key(Sampling()) == content_key(Sampling().model_dump(mode="json"))


@pytest.mark.parametrize("part", [b"x", {1: 2}, {"a": {2}}, Path("x"), object(), [object()]])
def test_content_key_refuses_what_it_cannot_hash_by_content(part: Any) -> None:
    with pytest.raises(TypeError):
        content_key(part)


def test_content_key_refuses_nan() -> None:
    with pytest.raises(ValueError):
        content_key([float("nan")])


def test_write_atomic_replaces_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "report.json"
    assert write_atomic(target, "größer") == target
    assert target.read_text(encoding="utf-8") == "größer"
    write_atomic(target, b"\x00\x01")
    assert target.read_bytes() == b"\x00\x01"
    assert list(target.parent.iterdir()) == [target]


def test_write_atomic_on_a_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    write_atomic(target, "old")
    with file_size_limit(10), pytest.raises(BackendError, match="full"):
        write_atomic(target, "new " * 10_000)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_write_atomic_into_a_file_as_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BackendError):
        write_atomic(tmp_path / "file" / "report.json", "x")


def test_each_line_is_json(path: Path) -> None:
    with Journal(path, manifest={"m": 1}) as journal:
        journal.append({"a": 1})
    header, batch = [json.loads(line) for line in path.read_text().splitlines()]
    assert header["head"]["format"] == 1
    assert batch["rows"] == {"a": 1}
