"""The store: what was torn or edited is never taken for what was written, and every trial has one winner."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import synthetic
from waits import started

from ablations.planning.saved_plans import save_plan
from benchmarks.node_cache import NodeCache
from results import store
from results.store import gate_files, lease
from results.store.schemas.plans import Plan

RESULT = {"status": "finished", "metrics": {"test_accuracy": 0.9}, "params": 10}


@pytest.fixture
def trial(tmp_path: Path) -> store.Trial:
    made = store.trial(tmp_path, "0123456789ab")
    made.create({"config": {"lr": 0.1}})
    return made


@contextlib.contextmanager
def other_holder(trial: store.Trial) -> Iterator[subprocess.Popen[str]]:
    """Start another process that holds the trial's first attempt; kill it at the end."""
    code = (
        "import sys; from pathlib import Path; from results import store; from results.store import lease\n"
        "a = store.claim(store.Trial(Path(sys.argv[1])), lease.Watch()); print(a.path.name, flush=True)\n"
        "sys.stdin.read()"
    )
    with started([sys.executable, "-c", code, str(trial.path)], stdin=subprocess.PIPE) as process:
        assert process.stdout.readline() == "0001\n"
        yield process


def publish(trial: store.Trial) -> None:
    with synthetic.claimed(trial) as attempt:
        attempt.publish(RESULT)


def test_a_result_is_read_back_and_every_edit_is_noticed(trial: store.Trial) -> None:
    """A result that is cut anywhere, has one digit changed, or is of another trial is broken."""
    publish(trial)
    state = trial.state()
    assert (state.is_over, state.result.metrics, state.result.attempt) == (True, RESULT["metrics"], "0001")
    path = trial.path / "result.json"
    text = path.read_text()
    other = store.trial(trial.path.parent.parent, "ba9876543210")
    other.path.mkdir()
    (other.path / "result.json").write_text(text)
    assert other.state().status == "broken"
    places = [place for place, letter in enumerate(text) if letter.isdigit() and text[:place].count("\n") > 1]
    edits = [text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :] for place in places]
    for edited in (*(text[:cut] for cut in (0, 1, 40, -3)), *edits):
        path.write_text(edited)
        assert trial.state().status == "broken", edited
        assert "result.json" in trial.state().reason


def test_broken_result_is_moved_aside_and_replaced(trial: store.Trial) -> None:
    publish(trial)
    (trial.path / "result.json").write_text("{")
    publish(trial)
    assert trial.state().status == "finished"
    assert (trial.path / "attempts/0002/broken-result.json").read_text() == "{"


def test_newer_schema_is_an_error_and_never_moved(trial: store.Trial) -> None:
    publish(trial)
    path = trial.path / "result.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2'))
    for read in (trial.state, lambda: store.claim(trial, lease.Watch())):
        with pytest.raises(store.NewerSchema, match="schema 2 is newer"):
            read()
    assert path.exists()


def test_only_one_of_many_claimants_wins(trial: store.Trial) -> None:
    start = threading.Barrier(16)

    def compete(_: int) -> store.Attempt | None:
        start.wait()
        return store.claim(trial, lease.Watch())

    with ThreadPoolExecutor(16) as threads:
        (winner,) = filter(None, threads.map(compete, range(16)))
    assert [path.name for path in trial.attempts()] == ["0001"]
    winner.release()


def test_lease_of_a_killed_process_is_dead_at_once(trial: store.Trial) -> None:
    with other_holder(trial):
        assert store.claim(trial, lease.Watch()) is None
        assert trial.state().status == "running"
    assert trial.state().status == "interrupted"
    with synthetic.claimed(trial) as attempt:
        assert attempt.path.name == "0002"


def test_lease_of_a_stopped_process_is_dead_after_a_minute(trial: store.Trial) -> None:
    """It is shown as stopped, and loses its attempt only if it is fenced."""
    clock = [0.0]
    watch, unfenced = lease.Watch(lambda: clock[0]), lease.Watch(lambda: clock[0], fenced=False)
    with other_holder(trial) as process:
        attempt = trial.path / "attempts/0001"
        assert lease.stopped_holder(attempt) == ""
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        assert lease.stopped_holder(attempt) == f"stopped (pid {process.pid} on {socket.gethostname()})"
        assert not watch.is_dead(attempt)
        clock[0] = 60.0
        assert watch.is_dead(attempt)
        assert not unfenced.is_dead(attempt)


def test_lease_of_another_host_dies_after_a_minute_without_change(tmp_path: Path) -> None:
    held = {"host": "elsewhere", "boot": "b", "pid": 1, "started": "1"}
    (tmp_path / "lease.json").write_text(json.dumps(held))
    clock = [0.0]
    watch = lease.Watch(lambda: clock[0])
    for now, dead in ((0.0, False), (59.0, False), (118.0, False), (119.0, True)):
        if now == 59.0:
            os.utime(tmp_path / "lease.json", ns=(0, time.time_ns() + 5))
        clock[0] = now
        assert watch.is_dead(tmp_path) == dead


def test_lease_of_another_pid_namespace_is_not_judged_by_its_pid(trial: store.Trial) -> None:
    """Containers may share host and boot but not pids, so the lease is judged by its changes."""
    with synthetic.claimed(trial) as attempt:
        held = {**lease.own_lease().content(), "pids": "pid:[1]", "pid": 2**22, "started": "1"}
        (attempt.path / "lease.json").write_text(json.dumps(held))
        assert lease.is_held(attempt.path) is None
        assert not lease.Watch().is_dead(attempt.path)


def test_release_needs_no_space(trial: store.Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    attempt = synthetic.claimed(trial)
    monkeypatch.setattr(Path, "write_text", full)
    monkeypatch.setattr("builtins.open", full)
    attempt.release()
    monkeypatch.undo()
    with synthetic.claimed(trial) as second:
        assert second.path.name == "0002"


def test_checkpoints_left_by_a_killed_winner_are_swept(trial: store.Trial) -> None:
    with synthetic.claimed(trial) as attempt:
        attempt.publish(RESULT)
        (attempt.path / "checkpoints").mkdir()
        (attempt.path / "checkpoints/000000001-0123456789abcdef.safetensors").touch()
    trial.remove_checkpoints()
    assert trial.checkpoints() == []


def test_only_the_newest_attempt_publishes_and_only_once(trial: store.Trial) -> None:
    """A superseded attempt writes no checkpoint and no result; a second result is refused."""
    zombie = synthetic.claimed(trial)
    zombie.release()
    with synthetic.claimed(trial) as attempt:
        attempt.publish(RESULT)
        first = (trial.path / "result.json").read_bytes()
        for write in (
            lambda: zombie.save_checkpoint(1, b"old"),
            lambda: zombie.publish(RESULT),
            lambda: attempt.publish(RESULT | {"params": 11}),
        ):
            with pytest.raises(store.Superseded):
                write()
        assert (trial.path / "result.json").read_bytes() == first
    assert store.claim(trial, lease.Watch()) is None


def test_result_that_was_written_but_not_linked_is_never_published(
    trial: store.Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process was killed between the two. The successor has a folder of its own and links what it wrote there."""
    killed = synthetic.claimed(trial)
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", interrupt)
        with pytest.raises(KeyboardInterrupt):
            killed.publish({"status": "finished", "metrics": {"test_accuracy": 0.1}})
    killed.release()
    assert trial.state().status == "interrupted"
    with synthetic.claimed(trial) as successor:
        assert successor.path.name == "0002"
        successor.publish({"status": "finished", "metrics": {"test_accuracy": 0.2}})
    result = trial.result()
    assert result is not None
    assert (result.attempt, result.metrics) == ("0002", {"test_accuracy": 0.2})
    assert (trial.path / "result.json").samefile(successor.path / "result.json")
    assert (killed.path / "result.json").stat().st_nlink == 1


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_resume_takes_the_newest_checkpoint_whose_checksum_holds(trial: store.Trial) -> None:
    """After a flipped bit the attempt resumes from the checkpoint before, with the metrics up to it."""
    with synthetic.claimed(trial) as attempt:
        for step in (10, 20, 30):
            attempt.log({"step": step})
            attempt.save_checkpoint(step, b"state %d" % step)
        kept = trial.checkpoints()
        assert [file.name[:9] for file in kept] == ["000000030", "000000020"]
        damaged = bytearray(kept[0].read_bytes())
        damaged[3] ^= 1
        kept[0].write_bytes(damaged)
    with synthetic.claimed(trial) as attempt:
        assert attempt.checkpoint() == b"state 20"
        attempt.log({"step": 25})
    lines = store.read_metrics(attempt.path)
    assert [line.step for line in lines] == [10, 20, 25]


def test_torn_last_line_of_metrics_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert [line.step for line in store.read_metrics(tmp_path)] == [1, 2]


def test_claim_sees_the_result_of_another_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS may answer for 30 s that a file is missing, which the node has looked for before."""
    trial, node = store.trial(tmp_path, "0" * 12), NodeCache(30.0)
    trial.create({"config": {}})
    with monkeypatch.context() as cached:
        node.install(cached.setattr)
        assert trial.state().status == "missing"
    with synthetic.claimed(trial) as attempt:
        attempt.publish({"status": "finished", "metrics": {}})
    with monkeypatch.context() as cached:
        node.install(cached.setattr)
        node.forget(trial.path / "attempts" / "0001")  # the listing of attempts has been asked for again
        assert trial.state().result is None
        assert store.claim(trial, lease.Watch()) is None
    assert store.claim(trial, lease.Watch()) is None


@pytest.mark.parametrize("user", ["plan", "gate"])
def test_lock_whose_holder_died_on_another_machine_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    """Only a minute without renewal shows that the holder is gone, and a command waits as long."""
    plan = Plan.model_validate(synthetic.position())
    folder = {"plan": store.study_folder(tmp_path, plan.name), "gate": tmp_path / gate_files.FOLDER}[user]
    turns = {"plan": folder / "turns", "gate": folder / gate_files.TURNS}[user]
    store.write_json(turns / "0001" / lease.NAME, lease.own_lease().content() | {"host": "elsewhere"})
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep, time=time.time)
    monkeypatch.setattr(lease, "time", clock)
    monkeypatch.setattr(lease, "Watch", partial(lease.Watch, clock.monotonic))
    if user == "plan":
        save_plan(tmp_path, plan)
    else:
        with gate_files.turn(tmp_path):
            pass
    assert lease.DEAD_SECONDS <= now[0] < 2 * lease.DEAD_SECONDS
    assert [path.name for path in lease.numbered_folders(turns)] == ["0002"]


def test_lock_taken_from_a_stale_listing_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system may list an older folder; a number before the newest is not taken."""
    folder, numbered = tmp_path / "turns", lease.numbered_folders
    with lease.lock(folder, 1.0):
        (folder / "0001").rename(folder / "0005")  # as after four turns, whose folders are gone
        stale: list[list[Path]] = [[]]
        monkeypatch.setattr(lease, "numbered_folders", lambda folder: stale.pop() if stale else numbered(folder))
        assert lease.take_next(folder, lease.Watch()) is None
        assert [path.name for path in numbered(folder)] == ["0005"]
        (folder / "0005").rename(folder / "0001")
