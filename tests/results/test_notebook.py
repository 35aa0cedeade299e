"""A study in a notebook: what Jupyter displays, and data frames."""

import re
from base64 import b64decode
from pathlib import Path

import pytest
import synthetic

from results import open_study
from results.load import load_studies

EXAMPLES = Path(__file__).parents[2] / "examples" / "digits.parquet"
BAD = '<img src=x onerror="alert(1)">'


def test_a_notebook_shows_answer_verdicts_and_figure() -> None:
    shown = open_study("position-embedding", EXAMPLES)._repr_html_()
    assert re.search(r">position=none<[^\n]*>worse<", shown)
    (png,) = re.findall(r'src="data:image/png;base64,([^"]+)"', shown)
    assert b64decode(png).startswith(b"\x89PNG")
    assert "<script" not in shown


def test_text_of_a_study_is_escaped_in_a_notebook(tmp_path: Path) -> None:
    plan = synthetic.position(seeds=2)
    plan["question"] = BAD
    plan["figure"] = BAD
    synthetic.write(tmp_path, plan)
    shown = open_study(plan["study"], tmp_path)._repr_html_()
    assert BAD not in shown
    assert shown.count("&lt;img") >= 2


def test_frames_have_a_row_per_trial_and_per_arm() -> None:
    study = open_study("position-embedding", EXAMPLES)
    (read,) = load_studies(EXAMPLES, ["position-embedding"])
    trials = study.to_frame()
    assert list(zip(trials["arm"], trials["seed"], trials["test_accuracy"], strict=True)) == list(
        zip(*(read.columns[name] for name in ("arm", "seed", "test_accuracy")), strict=True)
    )
    assert set(trials["position"]) > {"none", "1d"}
    arms = study.to_frame("arms").set_index("arm")
    means = trials.groupby("arm")["test_accuracy"].mean()
    assert arms["mean"].to_dict() == pytest.approx(means.to_dict())
    assert arms.loc["position=none", "verdict"] == "worse"
    with pytest.raises(ValueError, match="rows=seeds: one of trials, arms"):
        study.to_frame("seeds")


def test_name_of_several_studies_is_refused(tmp_path: Path) -> None:
    for recipe in ("digits", "mnist"):
        synthetic.write(
            tmp_path, synthetic.position(seeds=2) | {"recipe": recipe, "name": f"position-embedding@{recipe}"}
        )
    with pytest.raises(
        ValueError, match="position-embedding: one of position-embedding@digits, position-embedding@mnist"
    ):
        open_study("position-embedding", tmp_path)


def test_a_terminal_shows_the_table() -> None:
    assert "| position=none " in repr(open_study("position-embedding", EXAMPLES))
