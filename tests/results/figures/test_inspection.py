"""`ablate inspect` and the report's section: arrays read back, figures of all kinds drawn, mistakes one clear line."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
from in_process import called
from matplotlib.figure import Figure

from ablations.reporting.inspect_trial import distinct_labels
from results import export, report, store
from results.figures import inspection
from results.figures.inspected import similarity
from results.load import load_inspections, load_studies
from results.store import eval_files, inspection_data
from results.store.inspection_data import Inspection
from vitcore.config import Config
from vitcore.identity import identity, trial_id
from vitcore.training.loop import train

Ablate = Callable[..., tuple[int, str, str]]


def made_up(
    grid: tuple[int, int] = (7, 7),
    depth: int = 4,
    heads: int = 3,
    channels: int = 3,
    sites: tuple[str, ...] = ("tokens",),
    components: int = 28,
    label: int = 3,
) -> Inspection:
    """An inspection of a model that never was."""
    rng, count, patch = np.random.default_rng(0), grid[0] * grid[1], 8
    arrays: dict[str, Any] = {
        "filters": rng.normal(size=(components, channels, patch, patch)),
        "filters_share": np.full(components, 1 / (components + 4)),
        "distance": rng.uniform(5, 40, (depth, heads)),
        "rollout": rng.uniform(0, 0.02, (8, *grid)),
        "images": rng.integers(0, 256, (8, channels, patch * grid[0], patch * grid[1]), dtype=np.uint8),
        "labels": np.arange(8),
        "predicted": np.full(8, label),
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
    facts = {
        "images": 128,
        "grid": list(grid),
        "patch": patch,
        "image_size": patch * grid[0],
        "position": "1d",
        "uniform_distance": 24.0,
        "rollout_of": "class token",
        "summary": rows,
        "filters_of": "stem.weight",
        "sites": [{"site": site, "note": "what it is"} for site in sites],
    }
    return Inspection("0123456789ab", facts, arrays)


CASES = {
    "as the paper's": made_up(),
    "digits": made_up((4, 4), 3, 2, channels=1, components=4),
    "bias": made_up(sites=("bias",)),
    "two sites": made_up(sites=("tokens", "rotate")),
    "no position": made_up(sites=("",)),
    "one patch": made_up((1, 1), 1, 1, components=1),
    "not square": made_up((3, 6), 2, 8, channels=5),
}


@pytest.mark.parametrize("case", CASES)
def test_every_figure_is_drawn(case: str, tmp_path: Path) -> None:
    """All sizes and kinds."""
    paths = inspection.draw(CASES[case], tmp_path)
    assert [path.stem for path in paths] == inspection.drawable_figures(CASES[case])
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_figures_follow_what_there_is() -> None:
    """No map of a position that has none; no map of heads where all are alike."""
    every = ["filters", "position", "attention-distance", "rollout"]
    assert inspection.drawable_figures(CASES["as the paper's"]) == every
    assert inspection.drawable_figures(CASES["no position"]) == [name for name in every if name != "position"]
    assert "position-heads" in inspection.drawable_figures(CASES["bias"])


def test_grid_of_grids_shows_the_numbers_that_were_computed() -> None:
    """What is drawn at a patch is the row of the similarity matrix that belongs to it."""
    case = CASES["not square"]
    figure = Figure(layout="constrained")
    similarity.pairs(case, figure)
    drawn = np.asarray(figure.axes[0].images[0].get_array())
    expected = case.arrays["tokens_pairs"][1 * 6 + 4].reshape(3, 6)  # the patch at row 1, column 4
    np.testing.assert_allclose(drawn[4:7, 28:34], expected)


def test_layers_that_are_alike_are_one_row_with_their_sum() -> None:
    """And the last row is the whole model."""
    rows = [[cell.text for cell in row] for row in inspection.layer_grid(CASES["digits"]).rows]
    assert rows == [
        ["stem", "16 x 16", "100", "2.0k"],
        ["blocks 0-2: attention", "16 x 16", "150", "3.0k"],
        ["blocks 0-2: mlp", "16 x 16", "150", "3.0k"],
        ["whole model", "", "400", "8.0k"],
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with one trained trial, and one that was never begun."""
    folder = tmp_path_factory.mktemp("inspected") / "runs"
    config = Config(data="digits", width=16, depth=2, heads=2, patch=2, steps=20, batch=16)
    trial = store.trial(folder, trial_id(config))
    trial.create({"config": config.model_dump(), "identity": identity(config)})
    with synthetic.claimed(trial) as attempt:
        outcome = train(config, attempt)
        attempt.publish({"status": outcome.status, "metrics": outcome.metrics})
    other = store.trial(folder, "fff" + "0" * 9)
    other.create({"config": {}})
    return folder


@pytest.fixture
def ablate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ablate:
    """The command in this process; exit status, standard output and error."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, str]:
        return called(monkeypatch, *words)

    return call


def finished(runs: Path) -> store.Trial:
    return next(store.Trial(path) for path in (runs / "trials").iterdir() if (path / "result.json").exists())


def test_inspect_writes_arrays_and_figures_and_prints_the_layers(ablate: Ablate, runs: Path, tmp_path: Path) -> None:
    """By the beginning of an id; what is computed once is read the next time."""
    trial = finished(runs)
    status, output, errors = ablate("inspect", trial.id[:6], "--runs", str(runs), "--out", "figures", "--images", "9")
    assert status == 0, errors
    assert "| whole model" in output
    assert "blocks 0-1: attention" in output
    names = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert names == {"filters", "position", "attention-distance", "rollout"}
    before = (trial.path / "evals/inspect.json").read_bytes()
    content = json.loads(before)
    assert content["images"] == 9
    assert content["weights_sha256"] == trial.result().weights_sha256
    with np.load(trial.path / "evals/inspect.npz", allow_pickle=False) as arrays:
        assert arrays["distance"].shape == (2, 2)
    assert ablate("inspect", trial.id, "--runs", str(runs), "--format", "svg")[0] == 0
    assert (trial.path / "figures/rollout.svg").exists()
    assert (trial.path / "evals/inspect.json").read_bytes() == before
    view = json.loads(ablate("inspect", trial.id, "--runs", str(runs), "--images", "5", "--json")[1])
    assert view["images"] == 5
    assert len(view["figures"]) == 4


@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        ("zz", "no trial or study 'zz' in "),
        ("", "no trial or study '' in "),
        ("f", "has no weights to inspect: missing (not started)"),
    ],
)
def test_trial_that_cannot_be_looked_at_is_one_line(ablate: Ablate, runs: Path, prefix: str, said: str) -> None:
    """Unknown, or not finished: status 2."""
    status, _, errors = ablate("inspect", "fff" if prefix == "f" else prefix, "--runs", str(runs))
    assert status == 2
    assert said in errors
    assert errors.count("\n") == 1


def test_prefix_that_fits_several_trials_is_refused(ablate: Ablate, tmp_path: Path) -> None:
    """By number and the first of them."""
    for name in ("abc", "abd"):
        (tmp_path / "runs/trials" / name).mkdir(parents=True)
    status, _, errors = ablate("inspect", "ab")
    assert status == 2
    assert "trial 'ab' is not unique: 2 begin with it (abc, abd)" in errors


def test_damaged_arrays_are_not_drawn(runs: Path, ablate: Ablate) -> None:
    """The JSON names their checksum; they are computed again."""
    trial = finished(runs)
    assert ablate("inspect", trial.id, "--runs", str(runs), "--out", "figures")[0] == 0
    path = trial.path / "evals/inspect.npz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with pytest.raises(store.Broken, match="its checksum differs"):
        inspection_data.read(trial)
    assert ablate("inspect", trial.id, "--runs", str(runs), "--out", "figures")[0] == 0
    assert inspection_data.read(trial).facts["images"] == 128


@pytest.fixture
def carried(tmp_path: Path) -> tuple[Path, list[str]]:
    """An export of a study of which two arms were inspected, and the ids of those trials."""
    plan = synthetic.position(seeds=2)
    runs = synthetic.write(tmp_path / "theirs", plan)
    ids = [synthetic.trial_id(plan, arm, 0) for arm in ("position=1d", "position=2d")]
    for one, case in zip(ids, ("digits", "as the paper's"), strict=True):
        trial = store.trial(runs, one)
        eval_files.write(trial, "inspect", trial.result().weights_sha256, dict(CASES[case].facts), CASES[case].arrays)
    studies = load_studies(runs)
    export.write(studies, tmp_path / "all.parquet", load_inspections(runs, studies))
    shutil.rmtree(runs)
    return tmp_path / "all.parquet", ids


def test_an_export_is_looked_into_without_torch(carried: tuple[Path, list[str]], tmp_path: Path) -> None:
    """Of two trials by the beginnings of their ids: the figures of each, and their positions side by side."""
    file, ids = carried
    words = ["ablate", "inspect", *(one[:8] for one in ids), "--runs", str(file), "--format", "svg"]
    code = (
        f"import sys; sys.argv = {words}\n"
        "from ablations import cli; cli.app(standalone_mode=False); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    drawn = {str(path.relative_to(tmp_path / "figures")) for path in (tmp_path / "figures").rglob("*.svg")}
    names = ("filters", "position", "attention-distance", "rollout")
    assert drawn == {f"{one}/{name}.svg" for one in ids for name in names} | {"position-beside.svg"}
    assert "whole model" in done.stdout


@pytest.mark.parametrize(("arm", "shown"), [("*", [0, 1]), ("position=2?", [1])])
def test_a_study_means_the_first_seed_of_its_arms(
    ablate: Ablate, carried: tuple[Path, list[str]], arm: str, shown: list[int]
) -> None:
    """Those that match and that there is something to see of; Figure 10 of the arms of a study is one command."""
    file, ids = carried
    name = load_studies(file)[0].plan.study
    status, output, errors = ablate("inspect", name, "--runs", str(file), "--arm", arm, "--format", "svg", "--json")
    assert status == 0, errors
    found = json.loads(output)
    assert [one["trial"] for one in (found if len(shown) > 1 else [found])] == [ids[k] for k in shown]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["STUDY", "--arm", "position=none"], "--arm position=none: no trial of STUDY@digits to inspect"),
        (["STUDY", "--arm", "x"], "--arm x: STUDY@digits has the arms position="),
        (["all"], "no trial or study 'all' in all.parquet"),
        (["zzz"], "no trial or study 'zzz' in all.parquet: it holds what `ablate inspect` found for 2 of its trials"),
        (["", "--images", "5"], "--images 5: not with all.parquet, which holds only what was computed before"),
    ],
)
def test_what_an_export_has_not_is_one_line(
    ablate: Ablate, carried: tuple[Path, list[str]], words: list[str], said: str
) -> None:
    """A trial or an arm that it does not carry, or another number of images."""
    study = load_studies(carried[0])[0].plan.study
    status, _, errors = ablate("inspect", *(word.replace("STUDY", study) for word in words), "--runs", "all.parquet")
    assert status == 2
    assert said.replace("STUDY", study) in errors
    assert errors.count("\n") == 1


def test_a_style_is_that_of_inspections_too(ablate: Ablate, carried: tuple[Path, list[str]], tmp_path: Path) -> None:
    """Their size, their colours, and no title where it wants none."""
    file, ids = carried
    (tmp_path / "paper.yaml").write_text(
        "size: {column: 2.5, width: 5}\ntitle: false\ncolours: {palette: ['#123456', '#654321', '#abcdef']}\n"
    )
    words = ("inspect", ids[1], "--runs", str(file), "--format", "svg", "--out")
    for out, more in (("plain", []), ("styled", ["--style", "paper.yaml"])):
        status, _, errors = ablate(*words, out, *more)
        assert status == 0, errors
    plain, styled = ((tmp_path / out / "attention-distance.svg").read_text() for out in ("plain", "styled"))
    assert ('width="244.8pt"' in plain, 'width="180pt"' in styled) == (True, True)
    assert 'width="360pt"' in (tmp_path / "styled/rollout.svg").read_text()
    assert "#123456" in styled
    assert "#123456" not in plain
    assert inspection.picture(CASES["digits"], "rollout", "svg", described=False).count(b"#abcdef") == 0


def test_the_report_of_an_export_looks_inside(ablate: Ablate, carried: tuple[Path, list[str]], tmp_path: Path) -> None:
    """The arms that were inspected, without their run directory."""
    assert ablate("report", "--runs", str(carried[0]), "--out", "r.html")[0] == 0
    assert (tmp_path / "r.html").read_text().count('aria-label="Mean attention distance, position=') == 2


def test_trials_beside_others_are_called_by_what_differs() -> None:
    """Options of parts too, where all have them; equal ones by their ids."""
    case = CASES["digits"]
    adamw = {"optimizer": "adamw", "lr": 0.001, "width": 8, "options": {"optimizer.beta1": 0.9, "stem.form": "a"}}
    sgd = {"optimizer": "sgd", "lr": 0.1, "width": 8, "options": {"optimizer.momentum": 0.9, "stem.form": "b"}}
    assert distinct_labels([(case, adamw), (case, sgd)]) == [
        "optimizer=adamw, lr=0.001, stem.form=a",
        "optimizer=sgd, lr=0.1, stem.form=b",
    ]
    assert distinct_labels([(case, sgd), (case, sgd)]) == [case.trial, case.trial]


def test_positions_stand_side_by_side_on_one_scale(tmp_path: Path) -> None:
    """A panel a trial with its own numbers; the colours mean the same in all, also of biases of other sizes."""
    small, large = made_up(sites=("bias",)), made_up((4, 4), sites=("bias",))
    large.arrays["bias_pairs"][:] *= 7
    figure = Figure(figsize=(7, 3), layout="constrained")
    similarity.side_by_side([small, large], ["lr=0.001", "lr=0.01"], figure)
    panels = [ax for ax in figure.axes if ax.get_title(loc="left")]
    assert [ax.get_title(loc="left") for ax in panels] == ["lr=0.001", "lr=0.01"]
    limits = {ax.images[0].get_clim() for ax in panels}
    most = float(np.abs(large.arrays["bias_pairs"]).max())
    assert limits == {(-most, most)}
    drawn = np.asarray(panels[1].images[0].get_array())
    np.testing.assert_allclose(drawn[:4, :4], large.arrays["bias_pairs"][0].reshape(4, 4))
    assert inspection.draw_side_by_side([small, CASES["digits"]], ["a", "b"], tmp_path) == []
    (path,) = inspection.draw_side_by_side([small, large], ["a", "b"], tmp_path, "svg")
    again = inspection.draw_side_by_side([small, large], ["a", "b"], tmp_path / "again", "svg")
    assert path.read_bytes() == again[0].read_bytes()


def test_report_shows_arms_inside_and_names_those_that_it_cannot() -> None:
    """One that was not inspected, and one without a finished trial; shown is the first finished seed of an arm."""
    plan = synthetic.position(seeds=2)
    missing = [("position=none", 0), ("position=none", 1), ("position=1d", 0)]
    holes = {synthetic.trial_id(plan, *one): synthetic.hole("missing", "not started") for one in missing}
    study = synthetic.results(plan, holes)
    inside = {synthetic.trial_id(plan, "position=1d", 1): CASES["digits"]}
    view = report.section_view(study, {trial: 1 for trial in study.columns["id"]}, inside)
    assert [(one["arm"], one["seed"]) for one in view["inside"]] == [("position=1d", 1)]
    assert view["not_inside"] == [
        "position=none (no finished trial)",
        "position=2d (not inspected)",
        "position=relative (not inspected)",
    ]
    page = report.render([study], datetime(2026, 1, 1, tzinfo=UTC), inside)
    assert page.count("Looking inside") == 1
    assert "blocks 0-2: attention" in page
    assert page.count('aria-label="Mean attention distance, position=1d"') == 1
    assert "Not shown: position=none (no finished trial), position=2d" in page
    without = report.render([study], datetime(2026, 1, 1, tzinfo=UTC))
    assert not any(words in without for words in ("Not shown", "Looking inside"))
