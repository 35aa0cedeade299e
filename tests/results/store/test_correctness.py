"""Which images were right: read as numpy wrote them, or broken."""

import numpy as np
import pytest
from hostile_files import npz

from results.store import Broken, correctness

INDEX, CORRECT = np.arange(3, 60, 2, dtype=np.int32), (np.arange(29) % 3 > 0).astype(np.uint8)
WHOLE = npz(index=INDEX, correct=CORRECT)


def outcome(content: bytes) -> str:
    """Return the arrays in the content as text, or "broken"."""
    try:
        return str([array.tolist() for array in correctness.parse(content)])
    except Broken:
        return "broken"


def test_no_damage_gives_a_wrong_value() -> None:
    """With any byte changed or cut off, an archive is broken or read as it was written."""
    damaged = [WHOLE[:at] + bytes([WHOLE[at] ^ 0x15]) + WHOLE[at + 1 :] for at in range(len(WHOLE))]
    damaged += [WHOLE[:length] for length in range(0, len(WHOLE), 7)] + [WHOLE + b"more", b"more" + WHOLE]
    assert set(map(outcome, damaged)) == {"broken", str([INDEX.tolist(), CORRECT.tolist()])}


@pytest.mark.parametrize(
    "content",
    [
        npz(correct=CORRECT, index=INDEX),
        npz(index=INDEX.astype(">i8"), correct=CORRECT.astype(bool)),
        npz(index=INDEX, correct=CORRECT, more=np.asfortranarray(INDEX[:4].reshape(2, 2))),
    ],
)
def test_archives_with_these_arrays_are_read(content: bytes) -> None:
    index, correct = correctness.parse(content)
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
        correctness.parse(content)
