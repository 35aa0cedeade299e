"""The table of a study: its keys, its numbers, its holes, and how it is written."""

import csv
import io
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import latex
import numpy as np
import pytest
import scipy.stats
import synthetic
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint
from synthetic import ACCURACIES

from results import store
from results.load import load_studies
from results.records import Row, Table
from results.store.record import Record
from results.tables import across_recipes, layout, sentences
from results.tables.formats import FORMATS
from results.tables.layout import render
from results.tables.study_table import table
from results.units import PERCENT

ROW = [
    *("arm", "n", "planned", "mean", "sd", "ci95", "delta", "delta_ci95", "p", "p_holm", "verdict", "margin_met"),
    *("published", "params", "flops", "baseline", "n_pairs", "delta_ci95_images", "delta_ci95_simultaneous"),
    *("diverged", "failed", "missing", "notes"),
]


def make_table(plan: dict[str, Any] | None = None, interim: bool = False, **changes: list[float | None]) -> Table:
    """Return the table of made-up accuracies; `none=[...]` replaces those of position=none."""
    plan = plan or synthetic.position()
    accuracies = ACCURACIES | {f"position={name}": values for name, values in changes.items()}
    return table(synthetic.results(plan, synthetic.from_accuracies(plan, accuracies)), interim=interim)


def row_of_arm(made: Table, arm: str) -> Row:
    return next(row for row in made.rows if row.arm == arm)


def table_with_holes(
    holes: Mapping[tuple[str, int], Record], plan: dict[str, Any] | None = None, interim: bool = False
) -> Table:
    """Return the table of ACCURACIES with other records of these trials, each an arm and a seed."""
    plan = plan or synthetic.position()
    records = {synthetic.trial_id(plan, *trial): record for trial, record in holes.items()}
    return table(synthetic.results(plan, synthetic.from_accuracies(plan, ACCURACIES) | records), interim=interim)


def table_with_hole(status: str, reason: str = "", arm: str = "position=2d") -> Table:
    return table_with_holes({(arm, 3): synthetic.hole(status, reason)})


def test_keys_are_those_that_others_read() -> None:
    found = json.loads(render(make_table(), "json"))
    assert list(found)[:5] == ["study", "recipe", "metric", "baseline", "rows"]
    assert [list(row) for row in found["rows"]] == [ROW] * 4
    assert (found["study"], found["recipe"], found["baseline"]) == ("position-embedding", "digits", "position=1d")


def test_verdicts_follow_the_data() -> None:
    found = make_table()
    assert [row.verdict for row in found.rows] == ["worse", None, "equivalent", "worse"]
    row = row_of_arm(found, "position=1d")
    compared = ("delta", "delta_ci95", "delta_ci95_images", "p", "p_holm", "n_pairs")
    assert [getattr(row, name) for name in compared] == [None] * 6
    loss = row_of_arm(make_table(synthetic.position(metric="test_loss", margin=None, claims=[])), "position=none")
    assert (loss.delta > 0, loss.verdict) == (True, "worse")


def test_every_point_of_a_curve_has_its_own_baseline_and_confounds_are_footnotes() -> None:
    found = table(synthetic.results(synthetic.pooling()))
    assert found.family == 3
    for row in found.rows:
        assert row.baseline == f"pool=cls,{row.arm.partition(',')[2]}"
        assert (row.delta is None) == row.arm.startswith("pool=cls")
    text = render(found, "md")
    assert "| pool=gap,lr=0.002 [1]" in text
    assert "[1] one token fewer (no class token)" in text


def test_official_test_sets_have_a_second_interval() -> None:
    """Where all seeds test the same images, there is an interval over seeds and images too."""
    found = table(synthetic.results(synthetic.position(split={"kind": "official", "images": 500})))
    for row in found.rows:
        if row.delta is not None:
            outer, inner = row.delta_ci95_images, row.delta_ci95
            assert outer[0] <= inner[0] <= inner[1] <= outer[1]
    both = "over seeds on these test images"
    assert all(both in render(found, format) for format in ("md", "html"))
    assert both not in render(found, "md", columns=["arm", "delta"])


@pytest.mark.parametrize("repetitions", [1, 2, 3])
def test_repetitions_of_folds_widen_the_interval(repetitions: int) -> None:
    """r repetitions add (1 - 1/r) t^2 / 1797 to SE^2, where t^2 is the mean covariance between them; one adds none."""
    n = 5 * repetitions
    study = synthetic.results(synthetic.position(seeds=n))
    row = row_of_arm(table(study), "position=none")
    differences, whole = np.zeros(n), np.zeros((repetitions, 1797))
    for arm, sign in (("position=none", 1), ("position=1d", -1)):
        mine = study.trials[study.trials["arm"] == arm]
        differences += sign * mine["test_accuracy"].to_numpy()
        for seed, trial in zip(mine["seed"], mine["id"], strict=True):
            index, correct = study.correct[trial]
            whole[seed // 5, index] += sign * correct.astype(float)
    shared = [np.cov(whole[i], whole[j])[0, 1] for i in range(repetitions) for j in range(i)]
    assert repetitions == 1 or np.mean(shared) > 0
    se = np.sqrt(differences.var(ddof=1) / n + (1 - 1 / repetitions) * np.mean(shared or [0.0]) / 1797)
    half = scipy.stats.t.ppf(0.975, n - 1) * se
    assert row.delta_ci95 == pytest.approx([differences.mean() - half, differences.mean() + half])
    assert row.p == pytest.approx(2 * scipy.stats.t.sf(abs(differences.mean()) / se, n - 1))


@pytest.mark.parametrize("status", ["missing", "running", "interrupted", "broken", "failed", "diverged"])
def test_a_cell_without_a_number_is_counted_and_named(status: str) -> None:
    row = row_of_arm(table_with_hole(status, "why"), "position=2d")
    counted = status if status in ("failed", "diverged") else "missing"
    assert (row.n, row.planned, row.n_pairs, getattr(row, counted)) == (4, 5, 4, 1)
    assert row.diverged + row.failed + row.missing == 1
    assert f"seed 3 {counted}: why" in row.notes
    assert "the difference is over seeds 0, 1, 2, 4, which both arms finished" in row.notes
    of_baseline = table_with_hole(status, arm="position=1d")
    assert [(row.n, row.n_pairs) for row in of_baseline.rows] == [(5, 4), (4, None), (5, 4), (5, 4)]


def test_a_missing_contrast_stays_in_the_family() -> None:
    whole, without = make_table(), make_table(interim=True, relative=[None] * 5)
    row = row_of_arm(without, "position=relative")
    assert (row.n, row.mean, row.delta, row.p_holm, row.verdict) == (0, None, None, None, None)
    assert row_of_arm(without, "position=none").p_holm == row_of_arm(whole, "position=none").p_holm
    assert row_of_arm(without, "position=2d").p_holm == pytest.approx(min(1, 2 * row_of_arm(whole, "position=2d").p))
    planned = row_of_arm(make_table(synthetic.position() | {"family": 7}), "position=none")  # four were pruned
    assert planned.p_holm == pytest.approx(7 * planned.p)


def test_the_rate_of_divergence_is_over_trials_that_ended() -> None:
    states = {("position=2d", seed): state for seed, state in enumerate(["diverged", "diverged", "missing", "failed"])}
    states |= {("position=1d", 3): "missing", ("position=1d", 4): "missing"}
    holes = {trial: synthetic.hole(state) for trial, state in states.items()}
    row = row_of_arm(table_with_holes(holes, interim=True), "position=2d")
    low, high = proportion_confint(2, 3, method="beta")
    assert f"2 of 3 diverged (95% interval {low:.0%} to {high:.0%})" in row.notes
    assert sentences.difference_text(row, PERCENT) == "as 2 of 3 trials diverged"
    assert row.p == pytest.approx(scipy.stats.fisher_exact([[2, 1], [0, 3]], alternative="greater").pvalue)
    row = row_of_arm(
        table_with_holes(holes | {("position=2d", 4): synthetic.hole("finished")}, interim=True), "position=2d"
    )
    assert (row.n, row.diverged, row.failed, row.missing) == (0, 2, 1, 2)
    assert f"2 of 2 diverged (95% interval {proportion_confint(2, 2, method='beta')[0]:.0%} to 100%)" in row.notes


@pytest.mark.parametrize(("seeds", "note"), [(1, "one seed gives no interval"), (2, "2 seeds resolve only"), (5, "")])
def test_a_table_of_few_seeds_states_what_they_can_test(seeds: int, note: str) -> None:
    notes = table(synthetic.results(synthetic.position(seeds=seeds))).notes
    assert [text.startswith(note) for text in notes] == ([True] if note else [])


def table_with_divergence(arm: int, baseline: int = 0) -> Table:
    """Return the table in which the first trials of position=2d and of its baseline diverged."""
    counts = {"position=2d": arm, "position=1d": baseline}
    lost = [(name, seed) for name, count in counts.items() for seed in range(count)]
    return table_with_holes(dict.fromkeys(lost, synthetic.hole("diverged")), synthetic.position(margin=None))


def test_an_arm_that_always_diverges_is_worse() -> None:
    found = table_with_divergence(5)
    row, p = row_of_arm(found, "position=2d"), scipy.stats.fisher_exact([[5, 0], [0, 5]], alternative="greater").pvalue
    assert (row.p, row.verdict, row.margin_met) == (pytest.approx(p), "worse", None)
    compared = [one for one in found.rows if one.arm != "position=1d"]
    assert [one.p_holm for one in compared] == pytest.approx(
        multipletests([one.p for one in compared], method="holm")[1]
    )
    assert "no interval of the difference: n = 0" in row.notes
    assert any("Fisher's exact test" in note for note in row.notes)
    assert "position=2d as 5 of 5 trials diverged" in sentences.answer(found)


def test_divergence_is_tested_beside_the_finished_pairs() -> None:
    """p is twice the smaller of two; where the baseline diverges too, it is Fisher's alone."""
    some = row_of_arm(table_with_divergence(3), "position=2d")
    pairs = scipy.stats.ttest_rel(ACCURACIES["position=2d"][3:], ACCURACIES["position=1d"][3:]).pvalue
    more = scipy.stats.fisher_exact([[3, 2], [0, 5]], alternative="greater").pvalue
    assert some.p == pytest.approx(min(1, 2 * min(pairs, more)))
    assert some.verdict == "not-resolved"
    both = row_of_arm(table_with_divergence(2, baseline=2), "position=2d")
    assert both.p == pytest.approx(scipy.stats.fisher_exact([[2, 3], [2, 3]], alternative="greater").pvalue)


def test_answer_names_arms_that_sometimes_diverge_among_others() -> None:
    rows = [
        replace(one, p=0.5, verdict="not-resolved") for one in table_with_divergence(1).rows if one.arm != "position=1d"
    ]
    assert "position=2d (1 of 5 trials diverged), " in sentences.arm_list(rows)
    assert " at ," not in sentences.arm_list(rows)


def test_equivalence_is_corrected_too() -> None:
    """Holm adjusts the one-sided tests; the smallest margin met is the end of the 90% interval."""
    plan = synthetic.position(margin=0.0125)
    found = make_table(plan, none=[0.95, 0.94, 0.94, 0.95, 0.95], relative=[0.95, 0.94, 0.94, 0.95, 0.95])
    base = np.array(ACCURACIES["position=1d"])
    arm = np.array([0.95, 0.94, 0.94, 0.95, 0.95])
    interval = scipy.stats.ttest_rel(arm, base).confidence_interval(0.90)
    p = scipy.stats.ttest_rel(arm, base + 0.0125, alternative="less").pvalue
    assert 0.05 / 3 < p < 0.05
    rows = [row for row in found.rows if row.delta is not None]
    assert [row.margin_met for row in rows] == pytest.approx([max(-interval.low, interval.high)] * 3)
    assert rows[0].margin_met < 0.0125
    assert [row.verdict for row in rows] == ["not-resolved"] * 3
    assert "the 90% interval is within the margin, but not after correction for 3 contrasts" in rows[0].notes
    wide = make_table(synthetic.position(margin=0.05), none=list(arm), relative=list(arm))
    assert [row.verdict for row in wide.rows if row.delta is not None] == ["equivalent"] * 3


def test_a_table_whose_trials_are_not_all_over_has_no_verdict() -> None:
    holes: list[float | None] = [0.76, 0.75, 0.77, 0.74, None]
    plain, asked = make_table(none=holes), make_table(interim=True, none=holes)
    assert (plain.interim, plain.judged, asked.judged) == (True, False, True)
    for row, other in zip(plain.rows, asked.rows, strict=True):
        assert (row.p, row.p_holm, row.verdict) == (None, None, None)
        assert (row.mean, row.delta, row.delta_ci95) == (other.mean, other.delta, other.delta_ci95)
    assert row_of_arm(asked, "position=none").verdict == "worse"
    assert {claim.verdict for claim in plain.claims} == {None}
    assert "19 of 20 trials are done): no verdict" in sentences.answer(plain)
    text = render(plain, "md")
    assert "Interim: 19 of 20 planned trials are done" in text
    assert "p (Holm)" not in text
    assert "worse (interim)" in render(asked, "md")
    assert next(csv.DictReader(io.StringIO(render(asked, "csv"))))["verdict"] == "worse (interim)"
    assert "Interim" not in render(make_table(), "md")


def test_intervals_are_simultaneous_where_asked() -> None:
    plan = synthetic.position()
    study = synthetic.results(plan, synthetic.from_accuracies(plan, ACCURACIES))
    found = table(study, simultaneous=True)
    for row in found.rows:
        if row.delta is not None:
            outer, inner = row.delta_ci95_simultaneous, row.delta_ci95
            assert outer[0] < inner[0] < inner[1] < outer[1]
    assert "95% CI, simultaneous" in render(found, "md")
    assert "simultaneous" not in render(table(study), "md")


def test_a_wide_margin_and_an_outlier_are_noted() -> None:
    """A margin wider than the baseline's error would make an arm without errors a tie."""
    assert make_table(synthetic.position(margin=0.05)).notes == []
    noted = "the margin of 6.00 points is wider than the baseline's error of 5.60 points"
    assert make_table(synthetic.position(margin=0.06)).notes == [noted]
    assert not any("is an outlier" in note for row in make_table().rows for note in row.notes)
    row = row_of_arm(make_table(**{"2d": [0.95, 0.94, 0.94, 0.75, 0.95]}), "position=2d")
    assert "seed 3 is an outlier: -19.00, the median is -1.00 points" in row.notes


def test_a_study_that_has_not_begun_is_a_table_of_holes() -> None:
    """A cell without a verdict is a dash, as a word could be mistaken for an arm's value."""
    found = make_table(**{name.partition("=")[2]: [None] * 5 for name in ACCURACIES})
    assert [(row.n, row.missing) for row in found.rows] == [(0, 5)] * 4
    assert "0 of 20 trials are done" in sentences.answer(found)
    for form in FORMATS:
        assert "position=none" in render(found, form)
    for form, cell in {"md": "| – ", "latex": "& -- ", "html": ">–<"}.items():
        text = render(found, form, ["arm", "verdict"])
        assert text.count("none") == text.count("position=none")
        assert cell in text


EAGER = {"compile": "false", "attention": "flash", "matmul_precision": "highest", "tf32": "convolutions"}
COMPILED = {"compile": "true", "attention": "math", "matmul_precision": "high", "tf32": "none"}
CODE, OTHER = "0123456789ab", "fedcba987654"
AFTER = "position=none seed 3"


def plugins(*digests: str) -> dict[str, str]:
    """Return the provenance of a trial that loaded plugins of these digests; patch.py is the first."""
    names = dict(zip(("patch.py", "other.py"), digests, strict=False))
    return {"code": f"{CODE}+{'+'.join(digests)}", "plugins": json.dumps(names)}


@pytest.mark.parametrize(
    ("values", "notes"),
    [
        ({3: {"code": OTHER}}, [f"code differs between trials: {CODE} (19), {OTHER} ({AFTER})"]),
        (
            {3: {"threads": "2", "fused": "8", "micro_batch": "64", "ranks": "2"}},
            [
                *(f"{name} differs between trials: 1 (19), 2 ({AFTER})" for name in ("threads", "ranks")),
                f"micro-batch differs between trials: the whole batch (19), 64 ({AFTER})",
                f"trained differs between trials: alone (19), as one ({AFTER})",
            ],
        ),
        ({1: EAGER, 2: EAGER}, []),  # the others do not say
        (
            {1: EAGER, 2: EAGER, 3: COMPILED},
            [
                f"compile differs between trials: false (2), true ({AFTER})",
                f"attention differs between trials: flash (2), math ({AFTER})",
                f"precision of float32 products differs between trials: highest (2), high ({AFTER})",
                f"TF32 differs between trials: convolutions (2), none ({AFTER})",
            ],
        ),
        ({3: plugins("aaaa")}, []),  # a shared baseline is trained without them
        (
            {0: plugins("aaaa", "cccc"), 1: plugins("aaaa", "cccc"), 3: plugins("bbbb", "cccc")},
            [f"plugin patch.py differs between trials: aaaa (2), bbbb ({AFTER})"],
        ),
        (
            {3: {"code": f"{CODE} then {OTHER}"}},
            [f"code differs between trials: {CODE} (19), {CODE} then {OTHER} ({AFTER})"],
        ),
        ({3: {"code": f"{CODE} then {CODE}+aaaa", "plugins": '{"patch.py": "aaaa"}'}}, []),
        (
            {3: {"code": f"{CODE}+aaaa then {CODE}+bbbb", "plugins": '{"patch.py": "aaaa then bbbb"}'}},
            ["plugin patch.py differs within trials: aaaa then bbbb (1)"],
        ),
        (
            {seed: {"code": OTHER} for seed in range(5)},
            [f"code differs between trials: {CODE} (15), {OTHER} (all of position=none)"],
        ),
    ],
)
def test_trials_that_ran_otherwise_are_named(values: dict[int, dict[str, str]], notes: list[str]) -> None:
    plan = synthetic.position()
    records = synthetic.simulate(plan)
    for seed, changes in values.items():
        key = synthetic.trial_id(plan, "position=none", seed)
        records[key] = synthetic.changed(records[key], **changes)
    assert table(synthetic.results(plan, records)).notes == notes


def test_many_arms_that_ran_otherwise_are_counted() -> None:
    study = synthetic.results(synthetic.position())
    study.columns["code"] = [OTHER if seed == 1 else CODE for seed in study.columns["seed"]]
    assert table(study).notes == [f"code differs between trials: {CODE} (16), {OTHER} (4 trials of 4 arms)"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("damage"), synthetic.position())


EDITED = "edited or damaged since its result was published"


@pytest.mark.parametrize(
    ("name", "n", "note"),
    [
        ("result.json", 4, "seed 1 missing: result.json"),
        ("correct.npz", 5, f"seed 1 finished: correct.npz: {EDITED}"),
        ("metrics.jsonl", 5, f"seed 1 finished: metrics.jsonl: {EDITED}"),
        ("env.json", 5, f"seed 1 finished: env.json: {EDITED}"),
        ("released.json", 5, ""),
    ],
)
def test_a_damaged_file_is_named_and_only_a_result_is_a_hole(runs: Path, name: str, n: int, note: str) -> None:
    trial = store.trial(runs, synthetic.trial_id(synthetic.position(), "position=2d", 1))
    path = (trial.path if name == "result.json" else trial.path / "attempts/0001") / name
    whole, before = path.read_bytes(), table(load_studies(runs)[0]).rows
    middle = len(whole) // 2
    try:
        for damaged in (b"", b"[]", b"{}", whole * 2, whole[:-9], whole[:middle] + b"7" + whole[middle + 1 :]):
            path.write_bytes(damaged)
            rows = table(load_studies(runs)[0]).rows
            row = next(row for row in rows if row.arm == "position=2d")
            named = [text for text in row.notes if "seed 1" in text]
            assert (row.n, [text[: len(note)] for text in named]) == (n, [note] if note else [])
            if n == 5:
                assert [replace(row, notes=[]) for row in rows] == [replace(row, notes=[]) for row in before]
    finally:
        path.write_bytes(whole)


def test_markdown_lines_up_in_a_terminal() -> None:
    text = render(make_table(), "md")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1
    assert re.search(r"\| position=none +\| +5 \| +76\.00 ± 1\.96 \| +-18\.40 ± \d\.\d\d \|", text)
    assert "published†" in lines[0]
    assert "61.38" in text
    assert "† arXiv 2010.11929, Table 8: another setting" in text


def test_claims_and_published_numbers_name_their_sources() -> None:
    text = render(make_table(synthetic.position(published_of="Table 9 (ViT-S)")), "md")
    assert "† Table 9 (ViT-S): another setting" in text
    assert "Claims of arXiv 2010.11929, Table 8: position=none < position=1d: agrees;" in text
    text = render(make_table(synthetic.position(source="")), "md")
    assert "Claims of the study: " in text
    assert "† the study: another setting" in text


def test_csv_has_raw_numbers() -> None:
    found = make_table()
    rows = list(csv.DictReader(io.StringIO(render(found, "csv"))))
    assert [row["arm"] for row in rows] == list(ACCURACIES)
    assert float(rows[0]["mean"]) == row_of_arm(found, "position=none").mean
    assert float(rows[0]["delta_ci95_low"]) == row_of_arm(found, "position=none").delta_ci95[0]
    assert rows[1]["verdict"] == ""


def test_other_numbers_can_be_columns() -> None:
    study = synthetic.results(synthetic.position(), synthetic.from_accuracies(synthetic.position(), ACCURACIES))
    names = ["arm", "val_accuracy", "train_seconds", "train_seconds_ci95"]
    found = table(study, layout.further_metrics(names))
    for arm, trials in study.trials.groupby("arm"):
        row = row_of_arm(found, str(arm))
        for name in ("val_accuracy", "train_seconds"):
            values = trials[name].to_numpy()
            assert row.value(name) == pytest.approx(values.mean())
            low, high = scipy.stats.t.interval(0.95, len(values) - 1, values.mean(), scipy.stats.sem(values))
            assert row.value(f"{name}_ci95") == pytest.approx([low, high])
    text = render(found, "md", names)
    header, _, first, *_ = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"
    )
    assert header == ["arm", "val accuracy", "train seconds", "95% CI of train seconds"]
    row = found.rows[0]
    half = 50 * (row.value("val_accuracy_ci95")[1] - row.value("val_accuracy_ci95")[0])
    assert first[1] == f"{100 * row.value('val_accuracy'):.2f} ± {half:.2f}"
    assert first[2].startswith(f"{row.value('train_seconds'):.1f} ± ")
    assert "val accuracy in %, train seconds, ±" in text
    flat = next(csv.DictReader(io.StringIO(render(found, "csv", names))))
    assert list(flat) == [*names[:3], "train_seconds_ci95_low", "train_seconds_ci95_high"]
    assert json.loads(render(found, "json", names))["rows"][0].keys() == set(names)
    assert across_recipes.render([found, found], "md", names).count("val accuracy |") == 2
    with pytest.raises(ValueError, match=r"digits: columns=val_acc: one of arm, .*did you mean 'val_accuracy'"):
        table(study, ["val_acc"])


@pytest.mark.parametrize("columns", [None, list(layout.COLUMNS)], ids=["usual", "all"])
def test_a_strict_reader_of_latex_finds_every_cell(columns: list[str] | None) -> None:
    found = table_with_hole("failed", "ValueError: 50% of $x_1 & \\y{}#~^<b> −3 × 2")
    rows = latex.check(render(found, "latex", columns))
    lines = [line.split("|")[1:-1] for line in render(found, "md", columns).splitlines() if line.startswith("|")]
    assert [len(row) for row in rows] == [len(line) for line in lines[:1] + lines[2:]]
    assert [row[0].partition("\\")[0] for row in rows[1:]] == list(ACCURACIES)


def test_notes_are_as_long_as_asked_for() -> None:
    """ "short" keeps notes on the columns shown, "none" only warnings; LaTeX has short notes by default."""
    size, change = "parameters 51,010 against 51,000", "with lr 0.1 against 0.2, declared"
    plan = synthetic.position(notes={"position=2d": [size, change]})
    plan["arms"][2]["notes_about"] = {size: "params"}
    found = table_with_holes({("position=2d", 3): synthetic.hole("failed", "ValueError: boom")}, plan)
    hole, pairs = "seed 3 failed: ValueError: boom", "the difference is over seeds 0, 1, 2, 4, which both arms finished"
    every = [size, change, hole, pairs, "Answer: ", "Claims of ", "Not covered: "]

    def told(*columns: str, format: str = "md", notes: str | None = None) -> list[str]:
        text = render(found, format, list(columns) or None, notes)
        return [one for one in every if one in text]

    assert told() == every
    assert told(notes="short") == told(format="latex") == [size, change, hole, pairs]
    assert told("arm", "mean", notes="short") == [change, hole]
    assert told("arm", "mean", "verdict", notes="none") == [hole, pairs]
    assert told("arm", "mean", notes="none") == [hole]
    assert told(format="latex", notes="all") == every
    assert json.loads(render(found, "json", notes="none"))["rows"][2]["notes"] == [hole, pairs]


def test_html_and_markdown_escape_what_would_break_the_table() -> None:
    found = table_with_hole("failed", "a|b <img src=x> *c*\nd<script>")
    page = render(found, "html")
    assert "<script" not in page
    assert f'data-sort="{row_of_arm(found, "position=none").mean}"' in page
    assert page.count("<tr") == 5
    assert r"seed 3 failed: a\|b \<img src=x> \*c\* d\<script>" in render(found, "md")


def test_columns_are_chosen_by_key() -> None:
    header = next(
        line for line in render(make_table(), "md", ["arm", "verdict", "sd"]).splitlines() if line.startswith("|")
    )
    assert [cell.strip() for cell in header.strip("|").split("|")] == ["arm", "verdict", "sd"]
    assert render(make_table(), "csv", ["arm", "ci95"]).splitlines()[0] == "arm,ci95_low,ci95_high"
    assert json.loads(render(make_table(), "json", ["n"]))["rows"][0] == {"n": 5}
    for name in ROW:
        assert render(make_table(), "md", list(dict.fromkeys(["arm", name])))


@pytest.mark.parametrize(
    ("format", "columns", "message"),
    [
        ("md", ["arm", "n", "arm"], r"columns=arm,n,arm: arm is there twice"),
        ("csv", [""], r"columns=: one of arm, n"),
        ("md", ["means"], r"columns=means: one of arm, n, .* \(did you mean 'mean'\?\)"),
        ("markdown", None, r"format=markdown: one of md, latex, csv, json, html"),
    ],
)
def test_a_wrong_column_or_format_is_one_line(format: str, columns: list[str] | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        render(make_table(), format, columns)


def unresolved(found: Table) -> Table:
    rows = [row if row.delta is None else replace(row, verdict="not-resolved") for row in found.rows]
    return replace(found, rows=rows)


def test_sentences_say_what_the_verdict_allows() -> None:
    found = make_table(relative=[0.90, 0.99, 0.91, 0.99, 0.90])
    worse, baseline, equivalent, unknown = (sentences.sentence(row, found) for row in found.rows)
    assert re.fullmatch(r"worse than position=1d by 18\.40 points \(95% CI 1\d\.\d\d to \d\d\.\d\d\)", worse)
    assert (baseline, equivalent) == ("the baseline", "equivalent to position=1d within 3.00 points")
    bound = 100 * max(map(abs, row_of_arm(found, "position=relative").delta_ci95))
    assert unknown == f"not resolved against position=1d: any difference is at most {bound:.2f} points (95% CI)"


def test_sentences_are_bounded_by_the_wider_interval_where_it_bounds_something() -> None:
    """Accuracies differ by less than 100 points, so a wider interval bounds nothing; a loss has no limit."""
    found = make_table()
    row = row_of_arm(found, "position=none")
    open_row = replace(row, verdict="not-resolved", delta_ci95=(-1.3707, 1.01))
    nothing = "not resolved against position=1d: too few trials to bound the difference"
    for changed, about, end in (
        (replace(row, delta_ci95_images=(-0.4, 0.1)), found, " on these test images"),
        (replace(row, verdict="not-resolved", delta_ci95_images=(-0.3, 0.9)), found, "at most 90.00 points (95% CI)"),
        (open_row, found, nothing),
        (replace(open_row, n=4, diverged=1), found, f"{nothing}, and 1 of 5 trials diverged"),
        (replace(open_row, delta_ci95=(-0.9999, 0.9)), found, "is at most 99.99 points (95% CI)"),
        (open_row, replace(found, metric="test_loss"), "any difference is at most 1.3707 (95% CI)"),
    ):
        assert sentences.sentence(changed, about).endswith(end)


def test_the_answer_states_every_arm_and_its_setting() -> None:
    text = sentences.answer(make_table())
    assert text.startswith("On digits, n = 5 seeds per arm: worse than position=1d: position=none by 18.40 points")
    assert text.endswith("All at the baseline's learning rate.")
    assert all(name in text for name in ACCURACIES)
    assert "learning rate" not in sentences.answer(table(synthetic.results(synthetic.pooling())))


def test_the_answer_puts_arms_of_one_verdict_together() -> None:
    found = make_table(relative=[0.90, 0.91, 0.92, 0.90, 0.91])
    text = sentences.answer(found)
    worse = [row_of_arm(found, name) for name in ("position=none", "position=relative")]
    told = [f"{row.arm} by {-100 * row.delta:.2f} points (95% CI " for row in worse]
    assert text.index("worse than position=1d: ") < text.index(told[0]) < text.index(told[1])
    assert "; position=2d is equivalent to position=1d within 3.00 points." in text
    found = unresolved(found)
    largest = max(abs(end) for row in found.rows for end in row.delta_ci95 or [])
    bound = f"any difference is at most {100 * largest:.2f} points, by the 95% CI of each"
    listed = "position=none, position=2d, position=relative. "
    assert f"not resolved against position=1d ({bound}): {listed}" in sentences.answer(found)


def test_the_answer_states_points_of_a_curve_once() -> None:
    found = unresolved(table(synthetic.results(synthetic.dataset_scale())))
    text = sentences.answer(found)
    assert "): stem=conv at data_fraction=0.1, data_fraction=0.3 and data_fraction=1.0." in text
    row = next(row for row in found.rows if row.delta is not None)
    looked = replace(row, verdict="better", delta=0.01, delta_ci95=(-0.002, 0.022))
    text = sentences.answer(replace(found, rows=[looked]))
    assert "better than stem=patch: stem=conv at data_fraction=0.1 by 1.00 points (95% CI -0.20 to 2.20)" in text


@pytest.mark.parametrize(
    ("arm", "difference", "resolved", "flips"),
    [
        ("position=2d", -0.006, True, True),
        ("position=2d", -0.006, False, False),  # neither is resolved
        ("position=none", -0.1, True, False),  # the sign stays
        ("position=none", 0.1, False, True),  # ours is resolved
    ],
)
def test_a_sign_that_flips_at_twice_the_steps_is_footnoted(
    arm: str, difference: float, resolved: bool, flips: bool
) -> None:
    plan = synthetic.position()
    there = {"difference": difference, "origin": "measured: by hand, n = 5", "resolved": resolved}
    next(one for one in plan["arms"] if one["name"] == arm)["at_twice_the_steps"] = there
    notes = [note for row in make_table(plan).rows for note in row.notes if "speed" in note]
    said = f"the difference is {100 * difference:+.2f} points (measured: by hand, n = 5)"
    assert notes == ([f"optimization speed: at twice the steps {said}"] if flips else [])
