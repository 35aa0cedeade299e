"""Tables of runs that were trained elsewhere: read as a study, with the statistics of any other."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from in_process import Ablate, refusal
from scipy import stats

from results import export
from results.imported import Columns, read_study
from results.tables import layout, study_table

SEEDS = range(5)
RNG = np.random.default_rng(1)
RESNET = 0.71 + RNG.normal(0, 0.01, 5)
VIT = RESNET + 0.03 + RNG.normal(0, 0.002, 5)
REQUEST = Columns(study="runs", arms=["model"], seed="seed", metrics=["acc"], baseline="resnet")


def rows() -> list[dict[str, object]]:
    values = {"resnet": RESNET, "vit": VIT}
    return [{"model": arm, "seed": seed, "acc": own[seed]} for arm, own in values.items() for seed in SEEDS]


def written(folder: Path, table: pd.DataFrame, name: str = "runs.csv") -> Path:
    path = folder / name
    table.to_csv(path, index=False)
    return path


def test_a_table_of_runs_has_the_verdict_of_a_paired_t_test(tmp_path: Path) -> None:
    """SciPy's paired t test gives the same p as the table's only contrast."""
    table = study_table.table(read_study(written(tmp_path, pd.DataFrame(rows())), REQUEST))
    row = next(one for one in table.rows if one.arm == "model=vit")
    assert row.delta == pytest.approx((VIT - RESNET).mean())
    assert row.p == pytest.approx(stats.ttest_rel(VIT, RESNET).pvalue)
    assert (row.verdict, row.n_pairs) == ("better", 5)


def flat(table: pd.DataFrame, folder: Path) -> Path:
    return written(folder, table)


def tracker(table: pd.DataFrame, folder: Path) -> Path:
    """The data frame of MLflow's client."""
    names = {"model": "params.model", "seed": "params.seed", "acc": "metrics.acc"}
    return written(folder, table.rename(columns=names).assign(status="FINISHED"))


def nested(table: pd.DataFrame, folder: Path) -> Path:
    """The data frame of the client of Weights & Biases, as its documentation saves it to CSV."""
    config = [{"model": row["model"], "seed": row["seed"]} for row in rows()]
    summary = [{"acc": float(row["acc"]), "_step": 3} for row in rows()]  # type: ignore[arg-type]  # a number
    return written(folder, pd.DataFrame({"summary": summary, "config": config, "name": "run"}))


def lines(table: pd.DataFrame, folder: Path) -> Path:
    path = folder / "runs.jsonl"
    table.to_json(path, orient="records", lines=True, double_precision=15)
    return path


def parquet(table: pd.DataFrame, folder: Path) -> Path:
    path = folder / "runs.parquet"
    table.to_parquet(path)
    return path


@pytest.mark.parametrize("write", [flat, tracker, nested, lines, parquet])
def test_files_of_all_kinds_hold_the_same_runs(write: Callable[[pd.DataFrame, Path], Path], tmp_path: Path) -> None:
    study = read_study(write(pd.DataFrame(rows()), tmp_path), REQUEST)
    assert study.columns["arm"] == ["model=resnet"] * 5 + ["model=vit"] * 5
    assert study.columns["acc"] == pytest.approx([*RESNET, *VIT])


def test_a_wide_table_has_a_column_for_each_arm(tmp_path: Path) -> None:
    wide = pd.DataFrame({"seed": SEEDS, "resnet": RESNET, "vit": VIT})
    request = Columns(study="runs", arms=[], seed="seed", metrics=["acc"], baseline="resnet")
    study = read_study(written(tmp_path, wide), request)
    assert study.columns["acc"] == pytest.approx([*RESNET, *VIT])
    assert study.plan.baseline == "arm=resnet"


UNEVEN = {"resnet": RESNET, "vit": VIT[[3, 0, 1, 2]]}
NUMBERED = Columns(study="runs", arms=["model"], seed="", metrics=["acc"], baseline="resnet")


@pytest.mark.parametrize("form", ["long", "wide"])
def test_a_table_without_seeds_has_the_verdict_of_welchs_test(form: str, tmp_path: Path) -> None:
    """Repeats are numbered in the order of rows; arms may have different numbers of them."""
    table = pd.DataFrame([{"model": arm, "acc": value} for arm, own in UNEVEN.items() for value in own])
    request = NUMBERED
    if form == "wide":
        table = pd.DataFrame({arm: pd.Series(own) for arm, own in UNEVEN.items()})
        request = replace(NUMBERED, arms=[])
    study = read_study(written(tmp_path, table), request)
    assert study.columns["seed"] == [0, 1, 2, 3, 4, 0, 1, 2, 3]
    shown = study_table.table(study)
    test = stats.ttest_ind(UNEVEN["vit"], RESNET, equal_var=False)
    assert (shown.rows[1].p, shown.rows[1].verdict) == (pytest.approx(test.pvalue), "better")
    assert shown.rows[1].delta_ci95 == pytest.approx(list(test.confidence_interval()))
    text = layout.render(shown, "md")
    assert "unpaired (Welch)" in text
    assert "the repeats of an arm are numbered in the order of rows" in text


def test_seeds_that_pair_nothing_are_not_paired(tmp_path: Path) -> None:
    study = read_study(written(tmp_path, pd.DataFrame(rows())), replace(REQUEST, unpaired=True))
    row = study_table.table(study).rows[1]
    assert row.p == pytest.approx(stats.ttest_ind(VIT, RESNET, equal_var=False).pvalue)


def test_a_gap_in_an_arm_is_a_failed_run_but_the_cells_below_are_none(tmp_path: Path) -> None:
    wide = pd.DataFrame({"resnet": RESNET, "vit": [0.7, np.nan, 0.72, np.nan, np.nan]})
    row = study_table.table(read_study(written(tmp_path, wide), replace(NUMBERED, arms=[]))).rows[1]
    assert (row.n, row.failed, row.planned) == (2, 1, 3)


def test_an_empty_column_stays_an_arm_of_the_family(tmp_path: Path) -> None:
    """Bonferroni's factor of the only p value is the number of planned contrasts."""
    wide = pd.DataFrame({"resnet": RESNET, "vit": VIT, "mixer": np.nan})
    path = tmp_path / "export.parquet"
    export.write([read_study(written(tmp_path, wide), replace(NUMBERED, arms=[]))], path)
    shown = study_table.table(export.read(path)[0])
    vit, mixer = shown.rows[1:]
    assert vit.p_holm == pytest.approx(2 * stats.ttest_ind(VIT, RESNET, equal_var=False).pvalue)
    assert (mixer.arm, mixer.n, mixer.planned, mixer.verdict) == ("arm=mixer", 0, 0, None)
    assert "no run: its column is empty" in mixer.notes


@pytest.mark.parametrize(("value", "name"), [("None", "None"), ("NA", "NA"), ("null", "null"), ("", "")])
def test_an_arm_may_be_called_none_but_a_cell_without_a_text_names_none(value: str, name: str, tmp_path: Path) -> None:
    """Numbers in its column stay numbers, and NA is a missing number among metrics."""
    path = tmp_path / "runs.csv"
    path.write_text(f"drop,seed,acc\n{value},0,0.5\n{value},1,NA\n2,0,0.6\n2,1,0.7\n")
    study = read_study(path, replace(REQUEST, arms=["drop"], baseline="2"))
    assert [arm.values["drop"] for arm in study.plan.arms] == [name, 2]
    assert study.columns["status"] == ["finished", "failed", "finished", "finished"]


@pytest.mark.parametrize("seed", ["seed", ""])
@pytest.mark.parametrize("write", [lines, parquet])
def test_lists_are_settings(write: Callable[[pd.DataFrame, Path], Path], seed: str, tmp_path: Path) -> None:
    table = pd.DataFrame(rows())
    table["layers"] = table["model"].map({"resnet": [1, 0], "vit": [1, 1]})
    request = replace(REQUEST, arms=["layers"], seed=seed, baseline="[1, 0]")
    study = read_study(write(table.drop(columns=[] if seed else ["seed"]), tmp_path), request)
    assert [arm.name for arm in study.plan.arms] == ["layers=[1, 0]", "layers=[1, 1]"]
    assert study.columns["seed"] == [*SEEDS, *SEEDS]


@pytest.mark.parametrize("name", ["Seed", "params.SEED", " seed", "sed", "random_seed", "random_state"])
@pytest.mark.parametrize("form", ["long", "wide"])
def test_seeds_under_another_name_are_an_error_that_names_them(form: str, name: str, tmp_path: Path) -> None:
    table = pd.DataFrame(rows()).rename(columns={"seed": name})
    request = NUMBERED
    if form == "wide":
        table = pd.DataFrame({name: SEEDS, "resnet": RESNET, "vit": VIT})
        request = replace(NUMBERED, arms=[])
    path = written(tmp_path, table)
    with pytest.raises(ValueError, match=rf"no column seed, but '{name}' seems to hold seeds: give --seed '?{name}"):
        read_study(path, request)
    assert read_study(path, replace(request, seed=name)).plan.is_paired


def test_columns_that_the_request_explains_are_no_seeds(tmp_path: Path) -> None:
    table = pd.DataFrame(rows()).rename(columns={"seed": "Seed"})
    assert not read_study(written(tmp_path, table), replace(NUMBERED, unpaired=True)).plan.is_paired
    table = pd.DataFrame(rows()).rename(columns={"seed": "metrics.speed"})
    assert not read_study(written(tmp_path, table), replace(NUMBERED, metrics=["acc", "speed"])).plan.is_paired
    wide = pd.DataFrame({"resnet": RESNET, "seeded": VIT})
    assert len(read_study(written(tmp_path, wide), replace(NUMBERED, arms=[])).plan.arms) == 2


def test_row_numbers_and_empty_columns_without_a_name_are_no_arms(tmp_path: Path) -> None:
    """The metric is still known as an accuracy."""
    wide = pd.DataFrame({"": SEEDS, "resnet": RESNET, "vit": VIT, " ": np.nan}).rename(columns={" ": ""})
    plan = read_study(written(tmp_path, wide), replace(NUMBERED, arms=[])).plan
    assert ([arm.name for arm in plan.arms], plan.family) == (["arm=resnet", "arm=vit"], 1)
    assert plan.primary_metric.is_accuracy


def test_other_columns_without_a_name_are_refused(tmp_path: Path) -> None:
    wide = pd.DataFrame({"resnet": RESNET, "vit": VIT, "": VIT})
    with pytest.raises(ValueError, match="column 3 has no name: an arm needs one"):
        read_study(written(tmp_path, wide), replace(NUMBERED, arms=[]))


def test_a_column_of_seeds_that_is_asked_for_has_to_be_there(tmp_path: Path) -> None:
    table = written(tmp_path, pd.DataFrame(rows()).rename(columns={"seed": "repeat"}))
    with pytest.raises(ValueError, match="--seed=seed: no such column"):
        read_study(table, REQUEST)
    assert read_study(table, replace(REQUEST, seed="repeat")).plan.is_paired
    assert not read_study(table, NUMBERED).plan.is_paired


def test_an_import_survives_its_export_and_says_where_it_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "export.parquet"
    export.write([read_study(written(tmp_path, pd.DataFrame(rows())), REQUEST)], path)
    text = layout.render(study_table.table(export.read(path)[0]), "md")
    assert "Pairing by seed: correlation " in text
    assert "imported from runs.csv (SHA-256 " in text
    assert "none of its runs was trained or checked here" in text


def test_a_run_without_a_value_failed(tmp_path: Path) -> None:
    """Its state is shown, and there is no verdict while a run is missing."""
    table = pd.DataFrame(rows()).assign(State="finished")
    table.loc[9, ["acc", "State"]] = [np.nan, "crashed"]
    shown = study_table.table(read_study(written(tmp_path, table), REQUEST))
    row = next(one for one in shown.rows if one.arm == "model=vit")
    assert (row.n, row.failed, row.verdict) == (4, 1, None)
    assert any("no acc in runs.csv (crashed)" in note for note in row.notes)


def with_cell(name: str, value: object) -> pd.DataFrame:
    table = pd.DataFrame(rows()).astype(object)
    table.loc[3, name] = value
    return table


FAULTS = {
    "a column that is not there": (pd.DataFrame(rows()).rename(columns={"acc": "accuracy"}), r"--metric=acc: no such"),
    "text for a number": (with_cell("acc", "high"), "run 4: acc=high: a number"),
    "an infinite number": (with_cell("acc", "inf"), "run 4: acc=inf: a finite number"),
    "a number whose powers overflow": (with_cell("acc", "1e308"), "run 4: acc=1e.308: a finite number, at most 1e.70"),
    "text for a seed": (with_cell("seed", "b"), "run 4: seed=b: a whole number from 0 to 2147483647"),
    "no seed": (with_cell("seed", None), "run 4: seed=[nN].*: a whole number from 0 to"),
    "a large seed": (with_cell("seed", 2**31), "run 4: seed=2147483648: a whole number from 0 to 2147483647"),
    "a seed twice": (with_cell("seed", 2), "runs 3 and 4 are both model=resnet with seed 2: keep one"),
    "one arm": (pd.DataFrame(rows()[:5]), "1 arms: nothing to compare"),
    "no value at all": (pd.DataFrame(rows()).assign(acc=np.nan), "--metric=acc: no run has a value"),
    "no baseline": (pd.DataFrame(rows()).replace("resnet", "net"), r"--baseline=resnet: no arm \(there: net, vit\)"),
    "a chart": (pd.DataFrame({"Step": [1], "run - acc": [1], "run - acc__MIN": [1]}), "the export of a chart"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_imported_is_named(fault: str, tmp_path: Path) -> None:
    table, message = FAULTS[fault]
    with pytest.raises(ValueError, match=rf"runs\.csv: {message}"):
        read_study(written(tmp_path, table), REQUEST)


def test_a_metric_named_like_what_every_trial_has_is_refused(tmp_path: Path) -> None:
    table = written(tmp_path, pd.DataFrame(rows()).rename(columns={"acc": "device"}))
    with pytest.raises(ValueError, match=r"runs\.csv: --metric=device: is what every trial has"):
        read_study(table, replace(REQUEST, metrics=["device"]))


def test_the_command_writes_what_reading_commands_take(
    tmp_path: Path, ablate: Ablate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, pd.DataFrame(rows()))
    words = ["import", "runs.csv", "--arm", "model", "--metric", "acc", "--baseline", "resnet", "--margin", "0.05"]
    status, output, errors = ablate(*words)
    assert status == 0, errors
    assert "| model=vit" in output
    assert ablate("table", "--runs", "runs.parquet")[1] == output
    assert "margin=wide: a number above 0" in refusal(ablate, *words[:-1], "wide")
