"""Golden losses: whoever changes what an entry computes raises its `numerics` and pins its loss anew."""

import json

import golden
import pytest

PINNED = json.loads(golden.FILE.read_text())


@pytest.mark.parametrize(("slot", "name"), golden.entries())
def test_entry_computes_what_it_did(slot: str, name: str) -> None:
    """The loss after three steps is the pinned one; a new entry is pinned by `make golden`."""
    entry = f"{slot}={name}"
    assert entry in PINNED, f"{entry} is new: `make golden` pins its loss"
    changed = f"{entry} computes something else: raise its numerics, then `make golden`"
    assert golden.loss(slot, name) == pytest.approx(PINNED[entry], rel=golden.TOLERANCE.get(entry, 1e-7)), changed


def test_nothing_is_pinned_that_is_not_there() -> None:
    assert set(PINNED) == {f"{slot}={name}" for slot, name in golden.entries()}
