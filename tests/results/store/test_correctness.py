"""Which images were right: the quick reader says what numpy says, of whole files and of damaged ones."""

from collections.abc import Callable

import numpy as np
import pytest
from hostile_files import npz

from results.store import Broken, correctness

INDEX, CORRECT = np.arange(3, 60, 2, dtype=np.int32), (np.arange(29) % 3 > 0).astype(np.uint8)


WHOLE = npz(index=INDEX, correct=CORRECT)


def outcome(read: Callable[[bytes], correctness.Correct], content: bytes) -> str:
    """Return the arrays that `read` finds as text, or "broken"."""
    try:
        return str([array.tolist() for array in read(content)])
    except Broken:
        return "broken"


def test_the_reader_refuses_only_what_numpy_refuses() -> None:
    """With any byte changed or cut off, no wrong value is read, and nothing is refused that numpy reads."""
    damaged = [WHOLE[:at] + bytes([WHOLE[at] ^ 0x15]) + WHOLE[at + 1 :] for at in range(len(WHOLE))]
    damaged += [WHOLE[:length] for length in range(0, len(WHOLE), 7)] + [WHOLE + b"more", b"more" + WHOLE]
    ours, theirs = (
        [outcome(read, content) for content in damaged] for read in (correctness.parse, correctness.thorough)
    )
    assert [mine for mine, its in zip(ours, theirs, strict=True) if mine != its and its != "broken"] == []
    assert set(ours) == {"broken", str([INDEX.tolist(), CORRECT.tolist()])}


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (correctness.quick, WHOLE),
        (correctness.parse, npz(correct=CORRECT, index=INDEX)),
        (correctness.parse, npz(index=INDEX.astype(">i8"), correct=CORRECT.astype(bool))),
        (correctness.parse, npz(index=INDEX, correct=CORRECT, more=INDEX)),
    ],
)
def test_archives_with_these_arrays_are_read(read: Callable[[bytes], correctness.Correct], content: bytes) -> None:
    """The quick reader reads what the store writes; numpy reads another order, other types and further arrays."""
    index, correct = read(content)
    np.testing.assert_array_equal(index, INDEX)
    np.testing.assert_array_equal(correct, CORRECT)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK",
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
        correctness.parse(content)
