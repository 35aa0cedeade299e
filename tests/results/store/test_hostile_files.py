"""Odd names, pipes, bombs and huge files in a run directory: nothing waits, floods memory, or ends in a traceback."""

import base64
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import synthetic

from ablations.execution.compute_eval import winner_weights
from commonfloor.files import MEMORY
from results import store
from results.store import Broken, eval_files, lease, record
from results.store import contents as archives
from results.store.schemas.trials import Eval
from results.trackers import append_or_replace

ODD = ("1", "12", "x", "0003.bak", "٠٠٠٤", "1234567890", "0005")  # the last is a file
CHECKPOINTS = ("x.safetensors", "5-.safetensors", "٥-0123456789abcdef.safetensors", "-1-0123456789abcdef.safetensors")
INDEX, CORRECT = np.arange(3, 60, 2, dtype=np.int32), (np.arange(29) % 3 > 0).astype(np.uint8)


def npz(**arrays: np.ndarray) -> bytes:
    return archives.npz_bytes(arrays)


WHOLE = npz(index=INDEX, correct=CORRECT)


@pytest.fixture
def trial(tmp_path: Path) -> store.Trial:
    """Return a trial that was attempted once."""
    trial = store.trial(tmp_path, "0123456789ab")
    with synthetic.claimed(trial) as attempt:
        attempt.save_checkpoint(10, b"state")
    return trial


def bomb(name: str, size: int, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return an archive of one member of `size` bytes, compressed to a thousandth."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive, archive.open(name, "w") as member:
        for _ in range(size >> 20):
            member.write(bytes(1 << 20))
    return buffer.getvalue()


def test_only_folders_of_four_to_nine_digits_are_attempts(trial: store.Trial) -> None:
    """Other names are neither read nor counted; a trial with a file for attempts has not started."""
    for name in ODD[:-1]:
        (trial.path / "attempts" / name).mkdir()
    (trial.path / "attempts" / ODD[-1]).touch()
    assert [path.name for path in trial.attempts()] == ["0001"]
    with synthetic.claimed(trial) as attempt:
        assert attempt.path.name == "0002"
    other = store.trial(trial.path.parent.parent, "ba9876543210")
    other.path.mkdir()
    (other.path / "attempts").touch()
    assert other.state().status == "missing"


def test_a_claim_that_cannot_make_its_folder_says_why(trial: store.Trial) -> None:
    """A file has the next name, or no number is left after 999999999; nothing half made stays."""
    attempts, clock = trial.path / "attempts", [0.0]
    (attempts / "0002").touch()
    with pytest.raises(OSError, match="attempts/0002"):
        store.claim(trial, lease.Watch())
    assert sorted(os.listdir(attempts)) == ["0001", "0002"]
    (attempts / "999999999").mkdir()
    watch = lease.Watch(lambda: clock[0])
    assert store.claim(trial, watch) is None
    clock[0] = lease.DEAD_SECONDS
    with pytest.raises(OSError, match="No number is left after it"):
        store.claim(trial, watch)


def test_files_with_other_names_are_no_checkpoints(trial: store.Trial) -> None:
    folder = trial.path / "attempts/0001/checkpoints"
    for name in CHECKPOINTS:
        (folder / name).write_bytes(b"state")
    assert [file.name[:9] for file in trial.checkpoints()] == ["000000010"]
    assert (trial.newest_step(), trial.latest_step()) == (10, 10)


@pytest.mark.parametrize("kind", ["pipe", "device", "huge"])
def test_a_checkpoint_that_is_no_plain_file_is_passed_over(trial: store.Trial, kind: str) -> None:
    newer = trial.path / "attempts/0001/checkpoints" / f"000000020-{'0' * 16}.safetensors"
    make = {"pipe": lambda: os.mkfifo(newer), "device": lambda: newer.symlink_to("/dev/zero"), "huge": newer.touch}
    make[kind]()
    if kind == "huge":
        os.truncate(newer, MEMORY + 1)
    if kind != "huge":  # whose checksum takes long
        assert trial.newest_step() == 10
    with synthetic.claimed(trial) as attempt:
        assert attempt.checkpoint() == b"state"


@pytest.fixture
def finished(tmp_path: Path) -> store.Trial:
    synthetic.write(tmp_path, synthetic.position(seeds=1))
    return store.Trial(sorted(tmp_path.glob("trials/*"))[0])


def test_weights_and_arrays_that_are_pipes_are_refused(finished: store.Trial) -> None:
    """Evaluations and inspections never wait for the writer of a pipe."""
    os.mkfifo(finished.path / "attempts/0001/weights.safetensors")
    with pytest.raises(ValueError, match=r"weights\.safetensors is not a regular file"):
        winner_weights(finished)
    (finished.path / "evals").mkdir()
    for name in ("inspect.npz", "inspect.begun"):
        os.mkfifo(finished.path / "evals" / name)
    with pytest.raises(Broken, match=r"inspect\.npz is not a regular file"):
        eval_files.read_arrays(finished, Eval.model_construct(name="inspect", arrays_sha256="0" * 64))
    with pytest.raises(Broken, match=r"inspect\.begun is not a regular file"):
        eval_files.count_start(finished, "inspect")


def test_event_file_that_is_a_pipe_is_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "events")
    append_or_replace(tmp_path / "events", b"content")
    assert (tmp_path / "events").read_bytes() == b"content"


def test_archives_are_not_unpacked_without_a_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Per-image files, arrays of evals and inspections in exports have the same limit."""
    monkeypatch.setattr(archives, "LARGEST", 1 << 20)
    content = bomb("index.npy", 8 << 20)
    with pytest.raises(Broken, match=r"correct\.npz cannot be read \(its arrays take 8,388,608 bytes"):
        record.parse_correct(content)
    with pytest.raises(Broken, match=r"the inspection of trial 0 cannot be read .*8,388,608 bytes"):
        eval_files.unpack_inspection("0", base64.b64encode(content).decode())
    with pytest.raises(Broken, match=r"correct\.npz cannot be read \('index\.npy' is neither stored nor deflated"):
        record.parse_correct(bomb("index.npy", 1 << 20, zipfile.ZIP_BZIP2))


def test_an_array_that_is_longer_than_its_archive_says_is_broken() -> None:
    """No more bytes are read than the archive's directory states."""
    content = bytearray(npz(index=np.zeros(1 << 16, np.int32), correct=np.zeros(1 << 16, np.uint8)))
    at = content.index(b"PK\x01\x02") + 24
    content[at : at + 4] = (1000).to_bytes(4, "little")
    with pytest.raises(Broken, match=r"correct\.npz cannot be read"):
        record.parse_correct(bytes(content))


@pytest.mark.parametrize(
    "text", ["", "!", base64.b64encode(b"PK").decode(), base64.b64encode(npz(a=np.zeros(1))).decode()]
)
def test_an_inspection_that_cannot_be_read_is_broken(text: str) -> None:
    with pytest.raises(Broken, match="the inspection of trial 0"):
        eval_files.unpack_inspection("0", text)


def images_in(content: bytes) -> str:
    """Return the arrays in the content as text, or "broken"."""
    try:
        return str([array.tolist() for array in record.parse_correct(content)])
    except Broken:
        return "broken"


def test_no_damage_gives_a_wrong_value() -> None:
    """With any byte changed or cut off, an archive is broken or read as it was written."""
    damaged = [WHOLE[:at] + bytes([WHOLE[at] ^ 0x15]) + WHOLE[at + 1 :] for at in range(len(WHOLE))]
    damaged += [WHOLE[:length] for length in range(0, len(WHOLE), 7)] + [WHOLE + b"more", b"more" + WHOLE]
    assert set(map(images_in, damaged)) == {"broken", str([INDEX.tolist(), CORRECT.tolist()])}


@pytest.mark.parametrize(
    "content",
    [
        npz(correct=CORRECT, index=INDEX),
        npz(index=INDEX.astype(">i8"), correct=CORRECT.astype(bool)),
        npz(index=INDEX, correct=CORRECT, more=np.asfortranarray(INDEX[:4].reshape(2, 2))),
    ],
)
def test_archives_with_these_arrays_are_read(content: bytes) -> None:
    index, correct = record.parse_correct(content)
    np.testing.assert_array_equal(index, INDEX)
    np.testing.assert_array_equal(correct, CORRECT)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        npz(index=INDEX),
        npz(index=INDEX[1:], correct=CORRECT),
        npz(index=INDEX[None], correct=CORRECT[None]),
        npz(index=np.array(["a", "b"]), correct=np.zeros(2, np.uint8)),
        npz(index=np.arange(2.0), correct=np.zeros(2, np.uint8)),
        npz(index=np.arange(2), correct=np.array([0, 7])),
        npz(index=np.arange(2), correct=np.array([0.0, 1.0])),
        npz(index=np.zeros(2, "V0"), correct=np.zeros(2, "V0")),
    ],
)
def test_what_is_no_such_file_is_broken(content: bytes) -> None:
    """A torn file, a missing array, unequal shapes, and values that are no indices or no zeros and ones are broken."""
    with pytest.raises(Broken, match=r"correct\.npz"):
        record.parse_correct(content)
