"""The file `correct.npz`, which records the test images that a trial classified correctly."""

from functools import lru_cache

import numpy as np

from results.store.files import Broken, parse_npz

Correct = tuple[np.ndarray, np.ndarray]
NAME = "correct.npz"


def parse(content: bytes) -> Correct:
    """Return (image indices (images,), 0 or 1 for each (images,)) from correct.npz. Raises Broken if damaged."""
    arrays = parse_npz(content, NAME)
    if missing := {"index", "correct"} - arrays.keys():
        raise Broken(f"{NAME}: no array {min(missing)}")
    index, correct = arrays["index"], arrays["correct"]
    if not are_valid(index, correct):
        raise Broken(f"{NAME}: index and correct are not a list of images and a 0 or 1 for each")
    return shared_array(index.tobytes(), index.dtype.str), correct


def are_valid(index: np.ndarray, correct: np.ndarray) -> bool:
    """Return whether `index` is a 1-D integer array and `correct` has a 0 or 1 for each of its elements."""
    kinds = index.dtype.kind in "iu" and correct.dtype.kind in "iub"
    return kinds and index.ndim == 1 and index.shape == correct.shape and bool(((correct == 0) | (correct == 1)).all())


@lru_cache(maxsize=128)
def shared_array(content: bytes, dtype: str) -> np.ndarray:
    """Return the array in `content`. Equal arguments give one array, because equal seeds have equal test images."""
    return np.frombuffer(content, dtype)
