"""The report: one whole file that asks the network for nothing."""

import re
from collections import Counter
from datetime import UTC, datetime
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import synthetic

from results import export, report, units
from results.figures.kinds import FIGURE_KINDS
from results.load import load_studies
from results.study_results import StudyResults, rows_of
from results.tables import layout, study_table

MADE = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
NO_FIGURE = "none"  # a figure costs a second
LOADING = ("src", "href", "xlink:href", "data", "action", "srcset", "poster")
VOID = {"meta", "link", "br", "wbr", "img", "input", "hr"}


class Page(HTMLParser):
    """A parsed page: what a browser would load, jump to and show. Raises AssertionError for an unclosed tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.ids, self.loads = list[str](), list[str](), list[str]()
        self.rows, self.words = list[str](), list[str]()
        self.feed(text)
        self.close()
        assert not self.open, self.open
        self.text = " ".join("".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open += [tag] * (tag not in VOID)
        self.rows += [""] * (tag == "tr")
        self.handle_startendtag(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids += [given["id"]] if "id" in given else []
        self.loads += [given[name] for name in LOADING if name in given]
        for name in {"style", "clip-path"} & given.keys():
            self.loads += re.findall(r"url\(([^)]*)\)", given[name])

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & {*self.open}:
            self.words.append(data)
            if "tr" in self.open:
                self.rows[-1] += data


@cache
def five() -> list[StudyResults]:
    """Make the studies of the demo, all complete; they share their baseline."""
    plans = [synthetic.position(), synthetic.pooling(), synthetic.patch_size(figure="axis")]
    plans += [synthetic.dataset_scale(), synthetic.hybrid_stem()]
    return [synthetic.results(plan) for plan in plans]


@pytest.fixture(scope="module")
def complete() -> str:
    return report.render(five(), MADE)


def test_the_page_is_whole_and_asks_the_network_for_nothing(complete: str) -> None:
    """Tags are closed, ids unique, links inside the page, figures XML; a browser is told to load nothing else."""
    page = Page(complete)
    assert len(page.ids) == len(set(page.ids))
    assert {*page.loads} - {"data:,"} <= {f"#{name}" for name in page.ids}
    assert "default-src 'none'" in complete
    assert "@import" not in complete
    assert not re.search(r"url\((?!#)", complete)
    pictures = re.findall(r"<svg.*?</svg>", complete, flags=re.DOTALL)
    assert len(pictures) == 2 * len(five()), "a wide one and a narrow one a study"
    assert {ElementTree.fromstring(picture).attrib["role"] for picture in pictures} == {"img"}
    assert len(complete.encode()) < 5e6, "small enough for mail"


def test_a_report_on_code_of_users_names_no_vision_transformers(complete: str) -> None:
    assert "<title>Vision Transformer ablations</title>" in complete
    plan = synthetic.position(trainable="closed_form:CLOSED_FORM", figure=NO_FIGURE)
    page = report.render([synthetic.results(plan)], MADE)
    assert "<title>Ablations</title>" in page
    assert "<h1>Ablations</h1>" in page
    assert "Vision Transformer" not in page


def test_every_study_and_every_arm_is_there(complete: str) -> None:
    page = Page(complete)
    for study in five():
        plan = study.plan
        assert complete.count(f'id="{report.slug(study.name)}"') == 1
        for text in (plan.question, plan.source, plan.description, *plan.caveats):
            assert text in page.text
        for arm in plan.arms:
            assert any(row.startswith(arm.name) for row in page.rows), arm.name
        assert f"ablate run {plan.study} --recipe digits --seeds 5" in page.text
    assert "worse than position=1d: position=none by" in page.text
    assert "not across the 5 studies" in page.text
    assert "Made 2026-01-02 03:04 UTC" in page.text
    assert not any(words in page.text for words in ("Incomplete", "Looking inside", "Not shown"))


def test_departures_of_the_baseline_from_its_recipe_are_named() -> None:
    """The sentence stands beside the recipe's own description; an older plan without departures has none."""
    named = [{"name": "pretrain", "departures": {"objective": "masked-patch"}}, {"name": "plain"}]
    stages = [{"stage": one["name"], "config": {}, "trials": [], **one} for one in named]
    plan = synthetic.position(departures={"optimizer": "sgd", "steps": 500}, stages=stages, figure=NO_FIGURE)
    said = "the baseline has optimizer sgd, steps 500; the stage pretrain has objective masked-patch."
    found = synthetic.untrained(plan)
    assert f"{plan['description']} Unlike the recipe, {said}" in Page(report.render([found], MADE)).text
    assert f"Unlike the recipe, {said}" in layout.render(study_table.table(found), "latex")
    assert "Unlike" not in report.render([synthetic.untrained(synthetic.position(figure=NO_FIGURE))], MADE)


def test_differences_in_code_between_trials_are_folded_away() -> None:
    plan = synthetic.position(figure=NO_FIGURE)
    records = synthetic.simulate(plan)
    key = synthetic.trial_id(plan, "position=none", 3)
    page = report.render([synthetic.results(plan, records | {key: synthetic.changed(records[key], code="fed")})], MADE)
    shut = re.findall(r"<details[^>]*>\s*<summary>(.*?)</summary>(.*?)</details>", page, flags=re.DOTALL)
    assert [summary for summary, _ in shut] == ["Made 2026-01-02 03:04 UTC", "Not the same for all trials: code"]
    assert "code differs between trials: 0123456789ab (19), fed (position=none seed 3)." in shut[1][1]
    assert "differs between" not in re.sub(r"<details.*?</details>", "", page, flags=re.DOTALL)


def test_a_trial_that_studies_share_costs_once(complete: str) -> None:
    seconds = {t.id: t.train_seconds for study in five() for t in study.trials.itertuples()}
    text = Page(complete).text
    assert f"{len(seconds)} of {len(seconds)} trials finished, {units.duration_text(sum(seconds.values()))}" in text
    assert "5 of its 20 trials shared with other studies of this report" in text


def test_pre_training_is_part_of_the_cost(tmp_path: Path) -> None:
    """A trial that is a stage here and an arm elsewhere costs once; an export carries its cost."""
    plan, other = synthetic.position(), synthetic.pooling()
    ids = [synthetic.trial_id(other, "pool=cls,lr=0.001", seed) for seed in range(5)]
    trials = [{"seed": seed, "id": one} for seed, one in enumerate(ids)]
    plan["stages"] = [{"name": "pretrain", "stage": "pretrain", "parent": "", "config": {}, "trials": trials}]
    synthetic.write(tmp_path / "runs", other)
    studies = load_studies(synthetic.write(tmp_path / "runs", plan))
    taken = 5 * 9.0 + 0.1 * (0 + 1 + 2 + 3 + 4)
    study = next(one for one in studies if one.plan.study == plan["study"])
    said = f"; before it {units.duration_text(taken)} in 5 trials that they start from"
    assert said in report.cost_text(study, Counter(study.columns["id"]))
    assert len(report.trial_seconds([study])) == 25
    assert len(report.trial_seconds(studies)) == len({one for each in studies for one in each.columns["id"]})
    export.write(studies, tmp_path / "all.parquet")
    assert report.trial_seconds(load_studies(tmp_path / "all.parquet")) == report.trial_seconds(studies)


def test_studies_are_linked_where_they_share_something() -> None:
    """Studies of one question on other data, and studies that share trials, link to each other's section."""
    other = {"recipe": "cifar10", "name": "position-embedding@cifar10", "overrides": {"width": 64}}
    plans = [synthetic.position(), synthetic.pooling(), synthetic.position(**other)]
    page = Page(report.render([synthetic.untrained(plan | {"figure": NO_FIGURE}) for plan in plans], MADE))
    assert "Relatedpooling@digits (5 shared trials); position-embedding@cifar10 (the same question) Made" in page.text
    assert page.loads.count("#pooling-digits") == 2, "from the contents and from its relative"
    assert page.text.count("Related") == 3


def test_an_incomplete_study_says_so_and_hides_no_cell() -> None:
    """Equal studies give equal pages."""
    text = report.render([synthetic.with_holes()], MADE)
    assert report.render([synthetic.with_holes()], MADE) == text
    page = Page(text)
    assert "Incomplete: 13 of 20 trials finished" in page.text
    assert all(word in page.text for word in ("5 missing", "1 failed", "1 diverged", "ValueError: boom"))
    row = next(row for row in page.rows if row.startswith("position=2d"))
    assert "0/5" in row
    assert "not across studies" in page.text


def test_a_study_without_a_finished_trial_is_a_page() -> None:
    text = Page(report.render([synthetic.untrained(synthetic.position())], MADE)).text
    assert all(words in text for words in ("0 of 20 trials finished", "nothing trained yet"))


def test_what_users_write_is_text() -> None:
    """Questions, sources, arms, reasons and overrides cannot become markup."""
    evil = "--><script>alert('x')</script><img src=http://x.example/y>"
    texts: dict[str, Any] = dict.fromkeys(("question", "source", "description", "found"), evil)
    texts |= {"caveats": [evil], "overrides": {"width": evil}}
    plan = synthetic.make_plan("evil", {"position": ["1d", evil]}, {"position": "1d"}, **texts)
    broken = {plan["arms"][1]["trials"][0]["id"]: synthetic.hole("failed", evil)}
    text = report.render([synthetic.results(plan, broken)], MADE)
    page = Page(text)
    assert evil not in text.replace("\n", "")
    assert (text.count("<script"), text.count("<img")) == (1, 0)
    assert all(load.startswith(("#", "data:,")) for load in page.loads)
    assert evil in page.text


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError("No space left on device")

    path = tmp_path / "report.html"
    path.write_text("the old report")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        report.write([synthetic.untrained(synthetic.position(figure=NO_FIGURE))], path)
    assert path.read_text() == "the old report"
    assert list(tmp_path.iterdir()) == [path]


def test_an_unknown_figure_costs_only_itself() -> None:
    plans = synthetic.patch_size(figure="patch"), synthetic.position()
    text = report.render(list(map(synthetic.untrained, plans)), MADE)
    page = Page(text)
    expected = f"No figure: figure=patch of study patch-size: one of {', '.join(FIGURE_KINDS)}"
    assert page.text.count(expected) == 1
    assert len(re.findall(r"<svg", text)) == 2
    assert any(row.startswith("patch=4") for row in page.rows)


def test_names_and_durations_are_written_as_a_person_reads_them() -> None:
    """A long name may break after its signs."""
    assert report.breakable_name("weight_decay=0.05,x<y") == "weight_<wbr>decay=<wbr>0.05,<wbr>x&lt;y"
    written = {0: "0.0 s", 9.24: "9.2 s", 59.97: "1 min 0 s", 190: "3 min 10 s", 7500: "2 h 5 min"}
    assert {seconds: units.duration_text(seconds) for seconds in written} == written


def test_provenance_names_every_value_that_occurs() -> None:
    trials = list(rows_of(synthetic.results(synthetic.position()).columns))
    assert report.provenance(trials)["device"] == "cpu"
    trials[0]["device"] = "cuda"
    assert report.provenance(trials)["device"] == "cpu (19 trials), cuda (1 trial)"
