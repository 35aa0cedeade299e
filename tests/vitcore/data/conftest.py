"""A folder of images, and its pack in a data directory."""

from pathlib import Path

import pytest
from photographs import packed, photographs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of generated images, 24 x 16 pixels."""
    return photographs(tmp_path / "photos", {"train/cat": 9, "train/dog": 8, "test/cat": 3, "test/dog": 4})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data directory in ABLATE_DATA."""
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("ABLATE_PACKS", raising=False)
    return tmp_path / "data"


@pytest.fixture
def root(folder: Path, home: Path) -> Path:
    """The pack `photos` of the folder, with squares of 12 pixels, in format bytes."""
    return packed(folder, home)
