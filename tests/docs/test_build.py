"""`make docs` builds the pages without a warning; the pages load nothing from a network."""

import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser, browser

from ablations.cli.answer import BAD_INPUT, FAILED, INTERRUPTED
from results import style
from results.store.schemas.metrics import MEASURES
from vitcore.analysis.evals import EVAL, spellings
from vitcore.config import Config
from vitcore.training.evaluation import METRICS

ROOT = Path(__file__).parent.parent.parent
pytest.importorskip("sphinx")
pytestmark = pytest.mark.slow  # a minute of a core, with which `make docs` says the same


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", out / "doctrees"]
    done = subprocess.run([*command, ROOT / "docs", out / "html"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out / "html"


def test_every_setting_is_on_the_page_of_settings(built: Path) -> None:
    page = (built / "reference" / "settings.html").read_text()
    missing = [name for name in Config.model_fields if f'id="setting-{name}"' not in page]
    assert not missing


def test_pages_written_by_hand_name_every_metric_key_of_a_style_and_status(built: Path) -> None:
    of_evals = [spelled for entry in EVAL.values() for name in entry.metrics for spelled in spellings(name, entry)]
    metrics = unescape((built / "reference" / "metrics.html").read_text())
    assert not [name for name in (*METRICS, *MEASURES, *of_evals) if f">{name}<" not in metrics]
    keys = (built / "reference" / "style-file.html").read_text()
    nested = style.KEYS | {"colours": dict.fromkeys((*style.ROLES, "palette"))}
    flat = [name for name in style.SECTIONS if name not in nested]
    names = [*flat, *(f"{section}.{key}" for section, inside in nested.items() for key in inside)]
    assert not [name for name in names if f'id="key-style.{name}"' not in keys]
    statuses = (built / "reference" / "exit-status.html").read_text()
    assert all(f"<td><p>{status}</p></td>" in statuses for status in (0, FAILED, BAD_INPUT, INTERRUPTED))


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium")
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("rope2d", "position=rope2d (variant"),
        ("lr", "lr (setting"),
        ("beta1", "optimizer.beta1 (setting"),
        ("trials_per_gpu", "profile.trials_per_gpu (key of a file"),
        ("patch-size", "patch-size"),
    ],
)
def test_search_finds_names_first(built: Path, chromium: Browser, word: str, found: str) -> None:
    first = "document.querySelector('#search-results li')"
    shown = f"new Promise(done => setInterval(() => {first} && done({first}.innerText), 50))"
    tab = chromium.open(built / "search.html", 1280)
    tab.evaluate(f"Search.performSearch('{word}')")
    assert tab.evaluate(shown).startswith(found)


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_need_no_network_and_fit_their_window(built: Path, chromium: Browser, width: int) -> None:
    for page in ("index", "search", "reference/cli/run", "reference/studies/position-embedding"):
        tab = chromium.open(built / f"{page}.html", width)
        assert not [url for url in tab.requests() if not url.startswith(("file:", "data:"))]
        assert not tab.trouble()
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
