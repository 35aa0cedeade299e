"""`ablate inspect` and the report's section: arrays read back, figures of all kinds drawn, errors on one line."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
from in_process import Ablate, json_output, refusal
from matplotlib.figure import Figure

from ablations.cli.inspections import distinct_labels, select_trials
from results import export, store
from results.figures import inspection
from results.load import load_inspections, load_studies
from results.store import eval_files
from results.store.eval_files import Inspection
from results.store.plan_files import known_name
from vitcore.config import Config
from vitcore.identity import identity, trial_id
from vitcore.training.loop import train


def synthetic_inspection(
    grid: tuple[int, int] = (7, 7),
    depth: int = 4,
    heads: int = 3,
    channels: int = 3,
    sites: tuple[str, ...] = ("tokens",),
    components: int = 28,
) -> Inspection:
    rng, count, patch = np.random.default_rng(0), grid[0] * grid[1], 8
    arrays: dict[str, Any] = {
        "filters": rng.normal(size=(components, channels, patch, patch)),
        "filters_share": np.full(components, 1 / (components + 4)),
        "distance": rng.uniform(5, 40, (depth, heads)),
        "rollout": rng.uniform(0, 0.02, (8, *grid)),
        "images": rng.integers(0, 256, (8, channels, patch * grid[0], patch * grid[1]), dtype=np.uint8),
        "labels": np.arange(8),
        "predicted": np.full(8, 3),
    }
    for site in filter(None, sites):
        layers = (1, 1) if site == "tokens" else (depth, heads)
        arrays[f"{site}_pairs"] = rng.uniform(-1, 1, (count, count))
        arrays[f"{site}_centre"] = rng.uniform(-1, 1, (*layers, count))
    rows = [{"part": "stem", "shape": [count, 16], "params": 100, "flops": 2000}]
    rows += [
        {"part": f"encoder.blocks.{layer}.{part}", "shape": [count, 16], "params": 50, "flops": 1000}
        for layer in range(depth)
        for part in ("attention", "mlp")
    ]
    facts = {"images": 128, "grid": list(grid), "patch": patch, "image_size": patch * grid[0], "position": "1d"}
    facts |= {"uniform_distance": 24.0, "rollout_of": "class token", "filters_of": "stem.weight", "summary": rows}
    facts |= {"sites": [{"site": site, "note": "what it is"} for site in sites]}
    return Inspection("0123456789ab", facts, arrays)


CASES = {
    "as the paper's": synthetic_inspection(),
    "digits": synthetic_inspection((4, 4), 3, 2, channels=1, components=4),
    "bias": synthetic_inspection(sites=("bias",)),
    "two sites": synthetic_inspection(sites=("tokens", "rotate")),
    "no position": synthetic_inspection(sites=("",)),
    "one patch": synthetic_inspection((1, 1), 1, 1, components=1),
    "not square": synthetic_inspection((3, 6), 2, 8, channels=5),
}
del CASES["one patch"].arrays["predicted"]  # as of an objective that predicts no classes
EVERY = ["filters", "position", "attention-distance", "rollout"]


@pytest.mark.parametrize("case", ["two sites", "one patch", "not square"])
def test_every_figure_is_drawn(case: str, tmp_path: Path) -> None:
    paths = inspection.draw(CASES[case], tmp_path)
    assert [path.stem for path in paths] == inspection.drawable_figures(CASES[case])
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_figures_follow_what_there_is() -> None:
    assert inspection.drawable_figures(CASES["as the paper's"]) == EVERY
    assert inspection.drawable_figures(CASES["no position"]) == [name for name in EVERY if name != "position"]
    assert "position-heads" in inspection.drawable_figures(CASES["bias"])


def test_grid_of_grids_shows_the_numbers_that_were_computed() -> None:
    case = CASES["not square"]
    figure = Figure(layout="constrained")
    inspection.draw_pairs(case, figure)
    drawn = np.asarray(figure.axes[0].images[0].get_array())
    expected = case.arrays["tokens_pairs"][1 * 6 + 4].reshape(3, 6)  # the patch at row 1, column 4
    np.testing.assert_allclose(drawn[4:7, 28:34], expected)


def test_layers_that_are_alike_are_one_row_with_their_sum() -> None:
    rows = [[cell.text for cell in row] for row in inspection.layer_grid(CASES["digits"]).rows]
    assert rows == [
        ["stem", "16 x 16", "100", "2.0k"],
        ["blocks 0-2: attention", "16 x 16", "150", "3.0k"],
        ["blocks 0-2: mlp", "16 x 16", "150", "3.0k"],
        ["whole model", "", "400", "8.0k"],
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspected") / "runs"
    config = Config(data="digits", width=16, depth=2, heads=2, patch=2, steps=20, batch=16)
    trial = store.trial(folder, trial_id(config))
    trial.create({"config": config.model_dump(), "identity": identity(config)})
    with synthetic.claimed(trial) as attempt:
        outcome = train(config, attempt)
        attempt.publish({"status": outcome.status, "metrics": outcome.metrics})
    store.trial(folder, "fff" + "0" * 9).create({"config": {}})
    return folder


@pytest.fixture
def ablate(ablate: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ablate:
    monkeypatch.chdir(tmp_path)
    return ablate


def finished(runs: Path) -> store.Trial:
    return next(store.Trial(path) for path in (runs / "trials").iterdir() if (path / "result.json").exists())


def test_inspect_writes_arrays_and_figures_and_prints_the_layers(ablate: Ablate, runs: Path, tmp_path: Path) -> None:
    trial = finished(runs)
    status, output, errors = ablate("inspect", trial.id[:6], "--runs", str(runs), "--out", "figures", "--images", "9")
    assert status == 0, errors
    assert "| whole model" in output
    assert "blocks 0-1: attention" in output
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == {*EVERY}
    before = (trial.path / "evals/inspect.json").read_bytes()
    assert json.loads(before)["weights_sha256"] == trial.result().weights_sha256
    with np.load(trial.path / "evals/inspect.npz", allow_pickle=False) as arrays:
        assert arrays["distance"].shape == (2, 2)
    view = json_output(ablate, "inspect", trial.id, "--runs", str(runs), "--format", "svg")
    assert (view["images"], len(view["figures"])) == (9, 4)
    assert (trial.path / "figures/rollout.svg").exists()
    assert (trial.path / "evals/inspect.json").read_bytes() == before


def test_inspect_names_a_damaged_plan_only_if_it_is_asked_for(runs: Path, ablate: Ablate, tmp_path: Path) -> None:
    trial = finished(runs)
    shutil.copytree(trial.path, tmp_path / "runs/trials" / trial.id)
    (tmp_path / "runs/studies/s@r").mkdir(parents=True)
    (tmp_path / "runs/studies/s@r/plan.json").write_text("[]")
    status, output, _ = ablate("inspect", trial.id, "--runs", "runs")
    assert (status, "| whole model" in output) == (0, True)
    assert "s@r/plan.json is not a JSON object" in refusal(ablate, "inspect", "s@r", "--runs", "runs")


def test_damaged_arrays_and_other_images_are_computed_again(runs: Path, ablate: Ablate) -> None:
    trial = finished(runs)
    words = ("inspect", trial.id, "--runs", str(runs), "--out", "figures")
    assert ablate(*words, "--images", "5")[0] == 0
    assert eval_files.read_inspection(trial).facts["images"] == 5
    path = trial.path / "evals/inspect.npz"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(store.Broken, match="its checksum differs"):
        eval_files.read_inspection(trial)
    assert ablate(*words)[0] == 0
    assert eval_files.read_inspection(trial).facts["images"] == 128


def test_trial_that_cannot_be_inspected_is_one_line(runs: Path, tmp_path: Path, ablate: Ablate) -> None:
    for name in ("abc", "abd"):
        (tmp_path / "runs/trials" / name).mkdir(parents=True)
    for prefix, folder, said in (
        ("zz", runs, "no trial or study 'zz' in "),
        ("", runs, "no trial or study '' in "),
        ("fff", runs, "has no weights to inspect: missing (not started)"),
        ("ab", tmp_path / "runs", "trial 'ab' is not unique: 2 begin with it (abc, abd)"),
    ):
        assert said in refusal(ablate, "inspect", prefix, "--runs", str(folder))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Export a study of which two arms were inspected; return the file and the ids of those trials.

    Of position=1d only the second seed is finished, of position=none no seed.
    """
    folder, plan = tmp_path_factory.mktemp("exported"), synthetic.position(seeds=2)
    unfinished = [("position=none", 0), ("position=none", 1), ("position=1d", 0)]
    holes = {synthetic.trial_id(plan, *one): synthetic.hole("missing", "not started") for one in unfinished}
    runs = synthetic.write(folder / "theirs", plan, holes)
    ids = [synthetic.trial_id(plan, "position=1d", 1), synthetic.trial_id(plan, "position=2d", 0)]
    for one, case in zip(ids, ("digits", "as the paper's"), strict=True):
        trial = store.trial(runs, one)
        eval_files.write(trial, "inspect", trial.result().weights_sha256, dict(CASES[case].facts), CASES[case].arrays)
    studies = load_studies(runs)
    export.write(studies, folder / "all.parquet", load_inspections(runs, studies))
    shutil.rmtree(runs)
    return folder / "all.parquet", ids


def test_an_export_is_inspected_without_torch(exported: tuple[Path, list[str]], tmp_path: Path) -> None:
    file, ids = exported
    words = ["ablate", "inspect", ids[0][:8], "position-embedding", "--arm", "position=2?", "--runs", str(file)]
    code = (
        f"import sys; sys.argv = {[*words, '--format', 'svg']}\n"
        "from ablations.cli.app import app; app(standalone_mode=False); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    drawn = {str(path.relative_to(tmp_path / "figures")) for path in (tmp_path / "figures").rglob("*.svg")}
    assert drawn == {f"{one}/{name}.svg" for one in ids for name in EVERY} | {"position-beside.svg"}
    assert "whole model" in done.stdout
    assert f"Layers of trial {ids[0]} (position=1d seed 1)" in done.stdout
    assert f"trial {ids[1]} (position=2d seed 0): position=" in (tmp_path / f"figures/{ids[1]}/rollout.svg").read_text()


def test_what_an_export_has_not_is_one_line(exported: tuple[Path, list[str]], ablate: Ablate) -> None:
    file, study = exported[0], "position-embedding"
    for words, said in (
        ([study, "--arm", "position=none"], f"{study}@digits: no trial to inspect: {file} has no inspection of"),
        ([study, "--arm", "x"], f"--arm x: {study}@digits has the arms position="),
        (["all"], f"no trial or study 'all' in {file}"),
        (["zzz"], f"no trial or study 'zzz' in {file}: it holds what `ablate inspect` found for 2 of its trials"),
        (["", "--images", "5"], f"--images 5: not with {file}, which holds only what was computed before"),
    ):
        assert said in refusal(ablate, "inspect", *words, "--runs", str(file))


def test_plan_with_overrides_is_inspected_by_its_study_and_recipe() -> None:
    plan = synthetic.results(synthetic.position(seeds=1)).plan.model_copy(
        update={"name": "position-embedding@digits+1a2b3c"}
    )
    names = {"position-embedding": known_name("position-embedding@digits", [plan.name])}
    found = select_trials(names, [plan], ["position=2d"], lambda _: True, "none is finished")
    assert found == [*next(arm.ids.values() for arm in plan.arms if arm.name == "position=2d")]


PAPER = """
size: {column: 2.5, width: 5}
title: false
colours: {palette: ['#123456', '#654321', '#abcdef']}
"""


def test_a_style_is_that_of_inspections_too(ablate: Ablate, exported: tuple[Path, list[str]], tmp_path: Path) -> None:
    file, ids = exported
    (tmp_path / "paper.yaml").write_text(PAPER)
    words = ("inspect", ids[0], "--runs", str(file), "--format", "svg", "--out", "styled", "--style", "paper.yaml")
    status, _, errors = ablate(*words)
    assert status == 0, errors
    plain = inspection.picture(CASES["digits"], "attention-distance", "svg").decode()
    styled, rollout = ((tmp_path / f"styled/{name}.svg").read_text() for name in ("attention-distance", "rollout"))
    assert ('width="244.8pt"' in plain, 'width="180pt"' in styled, 'width="360pt"' in rollout) == (True, True, True)
    assert ("#123456" in styled, "#123456" in plain) == (True, False)


def test_the_report_of_an_export_shows_arms_inside_and_names_the_others(
    ablate: Ablate, exported: tuple[Path, list[str]], tmp_path: Path
) -> None:
    assert ablate("report", "--runs", str(exported[0]), "--out", "r.html")[0] == 0
    page = (tmp_path / "r.html").read_text()
    assert re.findall('aria-label="Mean attention distance, (.*?)"', page) == ["position=1d", "position=2d"]
    assert re.findall(r"\(seed (\d)\)", page) == ["1", "0"]
    assert "blocks 0-2: attention" in page
    assert "Not shown: position=none (no finished trial), position=relative (not inspected)" in page


def test_trials_beside_others_are_called_by_what_differs() -> None:
    case = CASES["digits"]
    adamw = {"optimizer": "adamw", "lr": 0.001, "width": 8, "options": {"optimizer.beta1": 0.9, "stem.form": "a"}}
    sgd = {"optimizer": "sgd", "lr": 0.1, "width": 8, "options": {"optimizer.momentum": 0.9, "stem.form": "b"}}
    assert distinct_labels([(case, adamw), (case, sgd)]) == [
        "optimizer=adamw, lr=0.001, stem.form=a",
        "optimizer=sgd, lr=0.1, stem.form=b",
    ]
    assert distinct_labels([(case, sgd), (case, sgd)]) == [case.trial, case.trial]


def test_positions_stand_side_by_side_on_one_scale(tmp_path: Path) -> None:
    small, large = synthetic_inspection(sites=("bias",)), synthetic_inspection((4, 4), sites=("bias",))
    large.arrays["bias_pairs"][:] *= 7
    figure = Figure(figsize=(7, 3), layout="constrained")
    inspection.draw_pairs_side_by_side([small, large], ["lr=0.001", "lr=0.01"], figure)
    panels = {title: ax for ax in figure.axes if (title := ax.get_title(loc="left"))}
    assert list(panels) == ["lr=0.001", "lr=0.01"]
    most = float(np.abs(large.arrays["bias_pairs"]).max())
    assert {ax.images[0].get_clim() for ax in panels.values()} == {(-most, most)}
    drawn = np.asarray(panels["lr=0.01"].images[0].get_array())
    np.testing.assert_allclose(drawn[:4, :4], large.arrays["bias_pairs"][0].reshape(4, 4))
    assert inspection.draw_side_by_side([small, CASES["digits"]], ["a", "b"], tmp_path) == []
    first, again = (
        inspection.draw_side_by_side([small, large], ["a", "b"], tmp_path / name, "svg")[0].read_bytes()
        for name in ("first", "again")
    )
    assert first == again
