"""Which images were right: the quick reader says what numpy says, of whole files and of damaged ones."""

import io
from pathlib import Path

import numpy as np
import pytest

from results import store
from results.store import Broken, correctness

INDEX, CORRECT = np.arange(3, 60, 2, dtype=np.int32), (np.arange(29) % 3 > 0).astype(np.uint8)


def archive(**arrays: np.ndarray) -> bytes:
    """As the store writes it."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


WHOLE = archive(index=INDEX, correct=CORRECT)


def read(folder: Path, content: bytes) -> correctness.Correct:
    (folder / "correct.npz").write_bytes(content)
    return correctness.parse(store.read_bytes(folder / "correct.npz"))


def outcome(folder: Path, content: bytes) -> object:
    """What was read, or that nothing can be."""
    try:
        return [array.tolist() for array in read(folder, content)]
    except Broken:
        return "broken"


def test_the_quick_reader_is_used_and_says_what_numpy_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file as the store writes it, numpy is not needed."""
    monkeypatch.setattr(correctness, "thorough", None)
    index, correct = read(tmp_path, WHOLE)
    assert (index.dtype, correct.dtype) == (INDEX.dtype, CORRECT.dtype)
    np.testing.assert_array_equal(index, INDEX)
    np.testing.assert_array_equal(correct, CORRECT)


def test_damage_is_what_numpy_takes_for_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte changed, and every length: nothing wrong is read, and nothing that numpy reads is refused."""
    damaged = [WHOLE[:at] + bytes([WHOLE[at] ^ 0x15]) + WHOLE[at + 1 :] for at in range(len(WHOLE))]
    damaged += [WHOLE[:length] for length in range(0, len(WHOLE), 7)] + [WHOLE + b"more", b"more" + WHOLE]
    ours = [outcome(tmp_path, content) for content in damaged]
    monkeypatch.setattr(correctness, "quick", refuse)
    theirs = [outcome(tmp_path, content) for content in damaged]
    assert [mine for mine, its in zip(ours, theirs, strict=True) if mine != its and its != "broken"] == []
    assert {str(found) for found in ours} == {"broken", str([INDEX.tolist(), CORRECT.tolist()])}


def refuse(content: bytes) -> None:
    raise correctness.Unusual


@pytest.mark.parametrize(
    "content",
    [
        archive(correct=CORRECT, index=INDEX),
        archive(index=INDEX.astype(">i8"), correct=CORRECT.astype(bool)),
        archive(index=INDEX, correct=CORRECT, more=INDEX),
    ],
)
def test_other_archives_with_these_arrays_are_read(tmp_path: Path, content: bytes) -> None:
    """In another order, of other types, beside others."""
    index, correct = read(tmp_path, content)
    np.testing.assert_array_equal(index, INDEX)
    np.testing.assert_array_equal(correct, CORRECT)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK",
        archive(index=INDEX),
        archive(index=INDEX[1:], correct=CORRECT),
        archive(index=INDEX[None], correct=CORRECT[None]),
    ],
)
def test_what_is_no_such_file_is_broken(tmp_path: Path, content: bytes) -> None:
    """Empty, torn, without an array, of other lengths, of other shapes."""
    with pytest.raises(Broken, match=r"correct\.npz"):
        read(tmp_path, content)
