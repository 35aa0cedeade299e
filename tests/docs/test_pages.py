"""README and the pages of the documentation: shell blocks run as they stand, links and named files exist."""

import re
import shlex
from pathlib import Path

import page_examples
import pytest
from in_process import Ablate, json_output

from ablations.study import strict_yaml
from ablations.study.naming import packaged_names
from ablations.study.papers import PAPERS
from vitcore.runtime import compile_cache

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
WRITTEN = ("tutorials", "how-to", "explanation", "project")
PAGES = [ROOT / "README.md", *(path for one in WRITTEN for path in sorted((ROOT / "docs" / one).glob("*.md")))]
SLOW = [pytest.mark.slow]
CASES = [
    pytest.param(path, id=str(path.relative_to(ROOT)), marks=SLOW if page_examples.trains(path.read_text()) else [])
    for path in PAGES
]


@pytest.mark.parametrize("path", CASES)
def test_examples_run_as_printed(path: Path, tmp_path: Path) -> None:
    """Each page runs from top to bottom in an empty folder, with trainings of a few steps."""
    page = path.read_text()
    missing = page_examples.missing(page)
    if missing:
        pytest.skip(f"not here: {', '.join(missing)}; make test-frameworks has it")
    page_examples.run(page, tmp_path)


def test_a_page_names_the_packages_and_variables_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLONE", "/clone")
    page = "text\n<!-- needs: json no_such_package $CLONE $NO_SUCH_VARIABLE -->\n"
    assert page_examples.missing(page) == ["$NO_SUCH_VARIABLE", "no_such_package"]


def test_every_shell_block_runs_or_says_that_it_cannot() -> None:
    for path in PAGES:
        unmarked = [one.text for one in page_examples.examples(path.read_text()) if not one.mark]
        assert not unmarked, f"{path}: mark it <!-- run --> or <!-- skip -->:\n" + "\n".join(unmarked)


def test_the_readme_is_short_and_its_links_and_pictures_exist() -> None:
    assert len(README.splitlines()) <= 150
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_architecture_names_files_that_exist() -> None:
    page = (ROOT / "docs/explanation/architecture.md").read_text()
    named = re.findall(r"`((?:vitcore|ablations|slurm|results)/[\w/.]+)`", page)
    assert named
    assert not [path for path in named if not (ROOT / path).exists()]


SHOWING = [path for path in PAGES if "<!-- shows" in path.read_text()]


@pytest.mark.parametrize("path", SHOWING, ids=lambda path: path.name)
def test_tables_and_quotes_are_what_the_command_before_them_prints(
    path: Path, ablate: Ablate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # commands read examples/
    page = path.read_text()
    found = list(page_examples.shown(page))
    assert len(found) == page.count("<!-- shows")
    for command, rows, quotes in found:
        status, output, errors = ablate(*shlex.split(command)[1:])
        assert status == 0, errors
        printed = page_examples.cells(output)[: len(rows)]
        if rows:
            chosen = [printed[0].index(name) for name in rows[0]]
            assert rows == [[cells[column] for column in chosen] for cells in printed]
        assert not [quote for quote in quotes if quote not in output]


def test_tables_of_papers_name_known_papers_and_packaged_studies() -> None:
    entries = strict_yaml.parse((ROOT / "docs/_ext/reference/tables.yaml").read_text(), "tables.yaml")
    assert {entry["paper"] for entry in entries} <= set(PAPERS.values())
    assert {name for entry in entries for name in entry["studies"]} <= set(packaged_names("studies"))
    assert len({(entry["paper"], entry["table"]) for entry in entries}) == len(entries) >= 15


@pytest.mark.slow
def test_the_page_on_five_studies_states_the_seeds_that_plans_ask_for(tmp_path: Path, ablate: Ablate) -> None:
    runs = str(tmp_path / "runs")
    assert ablate("import", str(ROOT / "examples" / "digits.parquet"), "--runs", runs)[0] == 0
    page = (ROOT / "docs/explanation/what-five-studies-say.md").read_text()
    _, *rows = page_examples.cells(page.partition("## How many seeds")[2])
    assert len(rows) == 5
    for study, *stated in rows:
        found = json_output(ablate, "plan", study, "--runs", runs)["resolution"]
        seeds = [found["margin_seeds"], found["seeds_for"]["0.01"], found["seeds_for"]["0.005"]]
        assert stated == [f"{100 * found['difference']:.2f}", *map(str, seeds)], study


OPENED = ("a run directory", "an export", "a study or a recipe", "images and packs", "CIFAR", "a profile", "a plug-in")


def test_security_names_every_kind_of_file_the_cache_and_the_lock() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    for kind in OPENED:
        assert re.search(rf"^\| {kind}[^|]*\| \S[^|]*\|$", text, re.MULTILINE), kind
    for name in (compile_cache.CACHE, "~/.cache/vit-ablations/", "requirements.lock", "ablate data download"):
        assert name in text
