"""README: short, its examples run as they stand, its links lead somewhere."""

import re
from pathlib import Path

import page_examples
import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_it_is_read_in_two_minutes() -> None:
    """What does not fit has a page in docs."""
    assert len(README.splitlines()) <= 150


@pytest.mark.slow
def test_its_study_runs_as_printed(tmp_path: Path) -> None:
    """Planned, run, run with more seeds and reported; trainings are a few steps long."""
    page_examples.run(README, tmp_path)


def test_every_shell_block_runs_or_says_that_it_cannot() -> None:
    """A block without a mark would go stale unseen."""
    unmarked = [one.text for one in page_examples.examples(README) if not one.mark]
    assert not unmarked


def test_links_and_pictures_exist() -> None:
    """No broken relative link."""
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
