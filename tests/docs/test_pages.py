"""The pages of the documentation: every shell block runs as it stands, or says that it cannot."""

from pathlib import Path

import page_examples
import pytest

ROOT = Path(__file__).parent.parent.parent
WRITTEN = ("tutorials", "how-to", "explanation", "project")
PAGES = [path for folder in WRITTEN for path in sorted((ROOT / "docs" / folder).glob("*.md"))]


NAMES = [str(path.relative_to(ROOT / "docs")) for path in PAGES]


def marks(path: Path) -> list[pytest.MarkDecorator]:
    """Pages that train are slow."""
    return [pytest.mark.slow] if page_examples.trains(path.read_text()) else []


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=name, marks=marks(path)) for path, name in zip(PAGES, NAMES, strict=True)]
)
def test_examples_run_as_printed(path: Path, tmp_path: Path) -> None:
    """Followed from top to bottom in an empty folder, each command succeeds; trainings are a few steps long."""
    page_examples.run(path.read_text(), tmp_path)


@pytest.mark.parametrize("path", PAGES, ids=NAMES)
def test_every_shell_block_runs_or_says_that_it_cannot(path: Path) -> None:
    """A block without a mark would go stale unseen."""
    unmarked = [one.text for one in page_examples.examples(path.read_text()) if not one.mark]
    assert not unmarked, "mark it <!-- run --> or <!-- skip -->:\n" + "\n".join(unmarked)
