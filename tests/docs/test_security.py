"""SECURITY.md: it says of each kind of file what it may do, and names what the code does."""

import re
from pathlib import Path

import pytest

from vitcore.runtime import compile_cache

TEXT = (Path(__file__).parent.parent.parent / "SECURITY.md").read_text()
OPENED = ("a run directory", "an export", "a study or a recipe", "images and packs", "CIFAR", "a profile", "a plug-in")


@pytest.mark.parametrize("kind", OPENED)
def test_every_kind_of_file_has_its_row(kind: str) -> None:
    """With what it may do to whoever opens it."""
    assert re.search(rf"^\| {kind}[^|]*\| \S[^|]*\|$", TEXT, re.MULTILINE)


def test_it_names_the_cache_and_the_lock() -> None:
    """What has to be one's own, and what is checked when it is installed."""
    assert compile_cache.CACHE in TEXT
    assert "~/.cache/vit-ablations/" in TEXT
    assert "requirements.lock" in TEXT
    assert "ablate data download" in TEXT
