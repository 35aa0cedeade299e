"""The report in a real browser: no errors, no requests, nothing cut off, in two sizes, light and dark."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import synthetic
from browser import CHROMIUM, Browser, Tab, browser

from results import report
from results.load import load_studies

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

DESKTOP, PHONE = 1280, 390
LAYOUTS = [(width, scheme) for width in (DESKTOP, PHONE) for scheme in ("light", "dark")]
LEGIBLE = 4.5  # the contrast that WCAG 2.2 asks of text
EXPECTED_ROWS = ["position=none", "position=1d", "position=2d", "position=relative"]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a report with long names, many arms, curves, holes and footnotes."""
    kinds = ["1d", *(f"a-position-with-a-very-long-name-{i}" for i in range(8))]
    many = synthetic.make_plan("position-zoo", {"position": kinds}, {"position": "1d"})
    holed = synthetic.with_holes()
    holed = replace(holed, plan=holed.plan.model_copy(update={"name": "position-embedding@holed"}))
    path = tmp_path_factory.mktemp("page") / "report.html"
    studies = [synthetic.results(plan) for plan in (synthetic.position(), synthetic.pooling(), many)]
    path.write_text(report.render([*studies, holed], datetime(2026, 1, 2, tzinfo=UTC)), encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=LAYOUTS, ids=[f"{width}-{scheme}" for width, scheme in LAYOUTS])
def tab(request: pytest.FixtureRequest, chromium: Browser, page: Path) -> Tab:
    width, scheme = request.param
    return chromium.open(page, width, scheme=scheme)


def test_the_console_is_silent_and_nothing_is_asked_for(tab: Tab, page: Path) -> None:
    assert tab.trouble() == []
    assert tab.requests() == [page.as_uri()]


def test_the_test_would_see_an_error(chromium: Browser, tmp_path: Path) -> None:
    forbidden = "<meta http-equiv='Content-Security-Policy' content=\"script-src 'unsafe-inline'; img-src data:\">"
    broken = tmp_path / "broken.html"
    broken.write_text(f"{forbidden}<script>nothing.here()</script><img src='http://x.example/y'>")
    trouble = str(chromium.open(broken, DESKTOP).trouble())
    assert all(text in trouble for text in ("nothing is not defined", "Content Security Policy"))


def test_nothing_hangs_over_the_edge_and_commands_are_in_view(tab: Tab) -> None:
    """The page is as wide as the window; wider content scrolls within it, except commands."""
    assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    over = """[...document.querySelectorAll("main *, header *")]
        .filter(one => !one.closest(".scroll, svg, dd code"))
        .filter(one => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
        .map(one => one.outerHTML.slice(0, 99))"""
    assert tab.evaluate(over) == []
    widths = "[...document.querySelectorAll('dd code')].map(one => [one.scrollWidth, one.clientWidth])"
    assert all(needed <= shown for needed, shown in tab.evaluate(widths))
    assert len(tab.evaluate(widths)) > 1


def test_each_study_shows_the_figure_of_its_width(tab: Tab) -> None:
    shown = tab.evaluate(
        """[...document.querySelectorAll("section")].map(section => [...section.querySelectorAll(".drawn > div")]
        .filter(one => one.offsetWidth > 0).map(one => [one.className, one.offsetWidth, one.offsetHeight]))"""
    )
    kind = "narrow" if tab.evaluate("innerWidth") == PHONE else "wide"
    assert [[name for name, _, _ in drawings] for drawings in shown] == [[kind]] * 4
    assert all(width > 330 and height > 100 for ((_, width, height),) in shown)


def luminance(colour: str) -> float:
    """Return the relative luminance of "rgb(r, g, b)" (WCAG 2.2)."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_every_text_can_be_read(tab: Tab) -> None:
    """Its contrast with the background meets WCAG, in both color schemes."""
    seen: list[list[Any]] = tab.evaluate(
        """[...document.querySelectorAll("h1, p, a, td, th, li, dt, dd, .incomplete, .better, .worse, .muted")]
        .map(one => {
            let behind = one;
            while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
            return [one.className, getComputedStyle(one).color, getComputedStyle(behind).backgroundColor];
        })"""
    )
    assert len(seen) > 300
    assert all(contrast(ink, paper) >= LEGIBLE for _, ink, paper in seen), seen


def test_page_and_figures_follow_the_colour_scheme(tab: Tab) -> None:
    dark = tab.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    paper, turned = (
        tab.evaluate(f"getComputedStyle(document.querySelector('{part}')).{style}")
        for part, style in (("body", "backgroundColor"), (".drawn svg", "filter"))
    )
    assert (luminance(paper) < 0.1, turned != "none") == (dark, dark)


ROWS = "[...document.querySelector('table').tBodies[0].rows].map(row => row.cells[0].textContent)"


def test_tables_are_sorted_by_mouse_and_keyboard(tab: Tab) -> None:
    """A column sorts up, down, and as planned again; a screen reader learns the state."""
    mean = "document.querySelectorAll('table')[0].tHead.rows[0].cells[2]"
    up = ["position=none", "position=relative", "position=1d", "position=2d"]
    tab.evaluate(f"{mean}.querySelector('button').focus()")
    for expected, state in ((up, "ascending"), (up[::-1], "descending"), (EXPECTED_ROWS, None)):
        tab.press_enter()
        assert tab.evaluate(f"[{ROWS}, {mean}.getAttribute('aria-sort')]") == [expected, state]
    first = "document.querySelector('table th button')"
    for button, clicks, expected in (
        (f"{mean}.querySelector('button')", 1, up),
        (first, 1, sorted(up)),
        (first, 2, EXPECTED_ROWS),
    ):
        tab.evaluate(f"for (let i = 0; i < {clicks}; i++) {button}.click()")
        assert tab.evaluate(ROWS) == expected
    assert tab.evaluate(f"{mean}.getAttribute('aria-sort')") is None


def test_every_column_says_what_it_is(tab: Tab) -> None:
    for selector, holds in (
        (".sortable th button", "one.textContent.trim()"),
        (".scroll", "one.ariaLabel && one.tabIndex === 0"),
    ):
        assert tab.evaluate(f"[...document.querySelectorAll('{selector}')].every(one => {holds})")


def test_no_table_of_the_example_is_cut_on_a_laptop(chromium: Browser, tmp_path: Path) -> None:
    """At 1,300 pixels every column of every study is in view."""
    example = load_studies(Path(__file__).parents[2] / "examples" / "digits.parquet")
    plain = [replace(one, plan=one.plan.model_copy(update={"figure": "none"})) for one in example]  # a figure is slow
    page = tmp_path / "report.html"
    page.write_text(report.render(plain, datetime(2026, 1, 2, tzinfo=UTC)), encoding="utf-8")
    tab = chromium.open(page, 1300)
    cut = """[...document.querySelectorAll(".scroll")].filter(one => one.scrollWidth > one.clientWidth + 1)
        .map(one => one.getAttribute("aria-label"))"""
    assert tab.evaluate(cut) == []
    assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
