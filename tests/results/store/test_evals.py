"""Evals: owed by plans, computed by workers from the weights that are kept, read and never computed by readers."""

import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import synthetic
import torch
from in_process import Ablate, json_output
from photographs import photographs
from PIL import Image
from run_trials import called_serially, planned_curves, served

from ablations.cli import watching as cleaning
from ablations.execution.compute_eval import compute_eval
from ablations.execution.launch import Place
from ablations.execution.messages import Ended, read_event
from ablations.execution.worker import Worker
from ablations.jobs import Job, jobs
from ablations.trainables.trainable import find
from results import export, store
from results.figures import frame
from results.load import load_studies
from results.store import eval_files, lease
from results.store.eval_files import computes_metric
from results.store.schemas.plans import Arm, Plan, PlannedTrial
from results.store.standing import Kind, Standings
from results.tables import cell_text, layout, study_table
from vitcore.analysis.eval import Computed, Eval, features, restore_model, trial_data
from vitcore.analysis.evals import EVAL, eval_of
from vitcore.analysis.evals import find as find_eval
from vitcore.analysis.other_images import OtherImages
from vitcore.config import Config
from vitcore.identity import trial_id
from vitcore.runtime.device import SUBNORMAL
from vitcore.training.loop import train
from vitcore.training.run import Memory

RECIPE = """
    description: Small. For tests.
    config: {data: digits, width: 16, depth: 1, heads: 2, patch: 4, pool: gap, steps: 10, batch: 16, lr: 2e-3, evaluations: 2}
    seeds: 2
"""  # noqa: E501 - one line of YAML
STUDY = """
    question: Does the pooling matter?
    baseline: {pool: gap, position: none}
    factors: {pool: [gap, cls]}
"""


def command(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Ablate:
    """Return the command, run in this process in a folder with a recipe and studies."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("ABLATE_DATA", raising=False)
    (folder / "r.yaml").write_text(dedent(RECIPE))
    for name, metric in (("few", "fewshot5_accuracy"), ("large", "test_accuracy@16")):
        (folder / f"{name}.yaml").write_text(dedent(STUDY) + f"metric: {metric}\n")
    return lambda *words: called_serially(monkeypatch, *words, "--recipe", "r.yaml")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Run `few` once; return its folder and the output of the command."""
    folder = tmp_path_factory.mktemp("done")
    with pytest.MonkeyPatch.context() as monkeypatch:
        status, output, errors = command(monkeypatch, folder)("run", "few.yaml")
    assert status == 0, errors
    return folder, output


@pytest.fixture
def ablate(done: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ablate:
    """The command in a folder with a copy of the trials of `few` and their evals."""
    shutil.copytree(done[0] / "runs", tmp_path / "runs")
    return command(monkeypatch, tmp_path)


def trials(folder: Path) -> list[store.Trial]:
    return [store.Trial(path) for path in sorted((folder / "runs/trials").iterdir())]


def count_todo(ablate: Ablate, name: str) -> int:
    planned: dict[str, int] = json_output(ablate, "plan", name)["trials"]
    assert planned["todo"] + planned["finished"] == planned["planned"] == 4
    return planned["todo"]


def test_metric_of_an_eval_is_computed_after_training(done: tuple[Path, str], ablate: Ablate, tmp_path: Path) -> None:
    """A study's `metric` alone makes `run` compute the eval, and every reading command shows it."""
    assert "5-shot accuracy" in done[1]
    for trial in trials(tmp_path):
        content = json.loads((trial.path / "evals/fewshot.json").read_text())
        assert content["weights_sha256"] == trial.result().weights_sha256
        draws = content["draws"]["fewshot5_accuracy"]
        assert content["metrics"]["fewshot5_accuracy"] == pytest.approx(np.mean(draws))
    shown = json_output(ablate, "table", "few.yaml")
    assert shown["metric"] == "fewshot5_accuracy"
    assert [row["n"] for row in shown["rows"]] == [2, 2]
    assert all(0 < row["mean"] < 1 for row in shown["rows"])
    view = json_output(ablate, "status", "few.yaml")
    assert view["finished"] == view["planned"] == 4
    assert count_todo(ablate, "few.yaml") == 0
    for words in ("plot few.yaml", "report few.yaml", "export few.yaml --out all.parquet", "export --out all.csv"):
        assert ablate(*words.split())[0] == 0
    assert "fewshot25_accuracy" in (tmp_path / "all.csv").read_text()
    exported = study_table.table(load_studies(tmp_path / "all.parquet")[0])
    assert json.loads(layout.render(exported, "json"))["rows"] == shown["rows"]


def test_trial_that_lacks_only_its_eval_is_not_trained_again(ablate: Ablate, tmp_path: Path) -> None:
    """A study that asks more of finished trials has them to do; `run` adds the evals to the same attempt."""
    results = {trial.id: trial.result() for trial in trials(tmp_path)}
    assert count_todo(ablate, "large.yaml") == 4
    assert json_output(ablate, "plan", "large.yaml")["hours"] == 0.0
    assert ablate("run", "large.yaml")[0] == 0
    assert {trial.id: trial.result() for trial in trials(tmp_path)} == results
    assert all(len(trial.attempts()) == 1 for trial in trials(tmp_path))
    assert count_todo(ablate, "large.yaml") == 0
    assert [row["n"] for row in json_output(ablate, "table", "large.yaml")["rows"]] == [2, 2]


def test_readers_compute_nothing_and_say_what_is_absent(ablate: Ablate, tmp_path: Path) -> None:
    """Without an eval the table names a missing seed, `status` counts it as missing, and no file is written."""
    gone = trials(tmp_path)[0].path / "evals/fewshot.json"
    gone.unlink()
    (row,) = [row for row in json_output(ablate, "table", "few.yaml")["rows"] if row["missing"]]
    assert (row["n"], any("fewshot5_accuracy is not computed yet" in note for note in row["notes"])) == (1, True)
    view = json_output(ablate, "status", "few.yaml")
    assert (view["finished"], view["missing"], gone.exists()) == (3, 1, False)


def test_eval_that_is_not_of_these_weights_counts_as_not_there(ablate: Ablate, tmp_path: Path) -> None:
    """An eval of other weights, edited, torn or of another trial is named in the table and computed again."""
    paths = [trial.path / "evals/fewshot.json" for trial in trials(tmp_path)]
    whole = [path.read_text() for path in paths]
    content = json.loads(whole[0]) | {"weights_sha256": "0" * 64}
    paths[0].write_text(json.dumps(content | {"checksum": store.checksum(content)}))
    paths[1].write_text(whole[1].replace('"fewshot5_accuracy": 0.', '"fewshot5_accuracy": 0.0'))
    paths[2].write_text(whole[2][:100])
    paths[3].write_text(whole[0])
    notes = [note for row in json_output(ablate, "table", "few.yaml")["rows"] for note in row["notes"]]
    for reason in ("is of other weights", "its checksum differs", "is not JSON", "belongs to fewshot of trial"):
        assert any("fewshot.json" in note and reason in note for note in notes), notes
    assert count_todo(ablate, "few.yaml") == 4
    assert ablate("run", "few.yaml")[0] == 0
    assert [path.read_text() for path in paths] == whole


def test_weights_that_were_not_kept_are_one_clear_line(ablate: Ablate, tmp_path: Path) -> None:
    """The trial fails once for one code; `retry` lets it go on after the weights have returned."""
    for trial in trials(tmp_path):
        (trial.path / "evals/fewshot.json").unlink()
        (trial.path / "attempts/0001/weights.safetensors").rename(trial.path / "weights")
    status, _, errors = ablate("run", "few.yaml")
    assert (status, "its weights were not kept" in " ".join(errors.split()), "Traceback" in errors) == (1, True, False)
    assert json_output(ablate, "status", "few.yaml")["failed"] == 4
    for trial in trials(tmp_path):
        (trial.path / "weights").rename(trial.path / "attempts/0001/weights.safetensors")
    assert ablate("run", "few.yaml")[0] == 1  # the same code: only after retry
    assert "4 trials may be run again" in ablate("retry", "few.yaml")[1]
    assert ablate("run", "few.yaml")[0] == 0


def test_weights_stay_while_an_eval_is_owed(ablate: Ablate, tmp_path: Path) -> None:
    """`clean --keep-weights none` removes only weights that no eval needs; damaged weights are refused."""
    plans, first = store.read_plans(tmp_path / "runs").all(), trials(tmp_path)[0]
    (first.path / "evals/fewshot.json").unlink()
    waste = [one.path.name for one in cleaning.find_waste(tmp_path / "runs", plans, "none")]
    assert waste.count("weights.safetensors") == 3
    (first.path / "attempts/0001/weights.safetensors").write_bytes(b"other")
    with pytest.raises(ValueError, match="damaged"):
        compute_eval(find(""), first, "fewshot", None, "code")


def test_evals_compute_as_the_training_did(ablate: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Subnormal numbers are flushed to zero in evals too; PyTorch's threads keep the setting of their start."""

    class Product(Eval):
        def compute(self, *_: object) -> Computed:
            return Computed({"product": (torch.tensor(SUBNORMAL) * 1).item()})

    monkeypatch.setitem(EVAL, "looked", Product)
    trial = trials(tmp_path)[0]
    compute_eval(find(""), trial, "looked", None, "")
    assert store.read_json(trial.path / "evals/looked.json")["metrics"] == {"product": 0.0}
    assert Product().compute().metrics["product"] != 0


def test_plans_that_share_a_trial_add_up_what_it_owes() -> None:
    arms = [Arm.model_construct(name="a", config={}, trials=[PlannedTrial.model_construct(seed=0, id="x")])]
    plan = Plan.model_construct(name="old", metric="test_loss", seeds=[0], arms=arms)
    plans = [plan.model_copy(update={"evals": names}) for names in (["a"], ["b", "a"], [])]
    (job,) = jobs(plans)
    assert (job.id, job.config, job.name, job.evals) == ("x", {"seed": 0}, "a seed 0", ("a", "b"))
    assert (job.metric, job.selection_metric) == ("test_loss", "val_accuracy")
    assert jobs([plan])[0].evals == ()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "metric: fewshot7_accuracy",
            "metric=fewshot7_accuracy: did you mean 'fewshot",
        ),
        ("metric: test_accuracy@x", "eval test@x of arm pool=gap: x: one of digits, "),
        (
            "evals: [fewshots]",
            "evals: fewshots: did you mean 'fewshot'? Known are fewshot, inspect, test@SIZE, ",
        ),
        ("metric: kNN_accuracy", "metric=kNN_accuracy: did you mean 'knn_accuracy'? Known are test_accuracy, "),
        ("metric: knn_accuracy@heads", "evals: knn@heads: one of class, mean, both\n"),
        (
            "metric: corrupt_error@gaussian_noise",
            "evals: corrupt@gaussian_noise: did you mean 'gaussian-noise'? Known are gaussian-noise, shot-noise, ",
        ),
        ("evals: [corrupt@rain]", "evals: corrupt@rain: one of gaussian-noise, shot-noise, "),
        ("metric: test_accuracy@18", "eval test@18 of arm pool=gap: images of 18 pixels: patch=4 does not divide them"),
        ("evals: [knockout@registers]", "eval knockout@registers of arm pool=gap: registers=0"),
    ],
)
def test_impossible_evals_are_refused_before_training(ablate: Ablate, tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "bad.yaml").write_text(dedent(STUDY) + f"{line}\n")
    status, _, errors = ablate("run", "bad.yaml", "--runs", "new")
    assert status == 2
    assert said in errors
    assert not (tmp_path / "new").exists()


def test_a_broken_test_image_is_named_before_training(
    ablate: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = photographs(tmp_path / "data" / "broken", {"3": 2, "5": 3})
    (root / "5" / "0001.png").write_bytes(b"no image")
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path / "data"))
    (tmp_path / "broken.yaml").write_text(dedent(STUDY) + "evals: [test@broken]\n")
    for command in ("plan", "run"):
        status, _, errors = ablate(command, "broken.yaml", "--runs", "new")
        assert (status, "broken/5/0001.png: " in errors) == (2, True)
    assert not (tmp_path / "new").exists()


def test_tables_show_other_test_images_and_corrupted_ones(
    ablate: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photographs(tmp_path / "data" / "photos", {"3": 2, "5": 3})
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path / "data"))
    asked = "metric: corrupt_accuracy@contrast\nevals: [test@photos]\n"
    (tmp_path / "robust.yaml").write_text(dedent(STUDY) + asked)
    assert ablate("run", "robust.yaml")[0] == 0
    columns = "arm,mean,corrupt_error@contrast,test_accuracy@photos"
    status, output, _ = ablate("table", "robust.yaml", "--columns", columns)
    assert status == 0
    assert "accuracy on corrupted images (contrast)" in output
    assert "mean corruption error (contrast)" in output
    assert "test accuracy on photos" in output
    assert "On photos, only 2 of 10 classes compete for the prediction." in ablate("table", "robust.yaml")[1]
    assert [row["n"] for row in json_output(ablate, "table", "robust.yaml")["rows"]] == [2, 2]


def test_killed_worker_of_an_eval_is_counted_against_the_eval(tmp_path: Path) -> None:
    """An eval whose workers keep dying ends as a failed trial, not in a loop; `retry` counts anew."""
    config = Config(data="digits", width=16, depth=1, heads=2, steps=2, batch=8, position="none")
    trial = store.trial(tmp_path, trial_id(config))
    with store.claim(trial, lease.Watch()) as attempt:
        trial.create({"config": config.model_dump()})
        train(config, attempt)
        attempt.publish({"status": "finished", "metrics": {}})
    job = Job(trial.id, config.model_dump(), "arm", "study", ("fewshot",))
    for before in range(3):
        assert eval_files.count_start(trial, "fewshot") == before
    last = served(tmp_path, job)
    assert (last.kind, last.cause) == ("failed", "eval fewshot: its worker was killed 3 times")
    code = Place(tmp_path, None).code
    found = job.standing(Standings(tmp_path, code))
    assert (found.kind, found.why) == (Kind.FAILED, last.cause)
    assert job.standing(Standings(tmp_path, "other code")).kind is Kind.OWES_EVALS
    assert eval_files.clear_failures(trial)
    assert served(tmp_path, job).kind == "finished"


def test_no_eval_is_begun_after_sigterm(tmp_path: Path) -> None:
    """The worker would be killed in it, and after three kills the eval has failed."""
    runs, (job, *_) = planned_curves(tmp_path)
    assert served(runs, job).kind == "finished"
    channel = io.StringIO()
    worker = Worker(Place(runs, None, trainable=job.trainable), channel)
    worker.stop_requested = True
    worker.serve(replace(job, evals=("fewshot",)))
    assert read_event(channel.getvalue()) == Ended("stopped", leaving=True)
    assert not list(runs.glob("trials/*/evals/*.begun"))


def test_a_folder_of_evals_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    runs, (job, *_) = planned_curves(tmp_path)
    assert served(runs, job).kind == "finished"
    (runs / "trials" / job.id / "evals").touch()
    last = served(runs, job)
    assert (last.kind, "evals" in last.cause) == ("interrupted", True)


SMALL = {"width": 16, "depth": 1, "heads": 2, "patch": 4, "pool": "gap", "position": "none"}


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_evals_see_the_model_and_images_of_its_training(precision: str) -> None:
    """At the size of the training an eval has its metrics; features of a bf16 trial have bfloat16's precision."""
    config, run = Config(data="digits", steps=20, batch=16, lr=1e-2, precision=precision, **SMALL), Memory()
    outcome = train(config, run)
    model = restore_model(config, run.weights or b"")
    found = OtherImages("8").compute(model).metrics
    assert found["test_accuracy@8"] == pytest.approx(outcome.metrics["test_accuracy"])
    assert found["test_loss@8"] == pytest.approx(outcome.metrics["test_loss"], rel=1e-6)
    if precision == "bf16":
        vectors = features(model, trial_data(model), trial_data(model).test.select(slice(4)))
        assert vectors.dtype == torch.float32
        with torch.no_grad():
            plain = model.features(trial_data(model).standardize(trial_data(model).test.pixels[:4]))
        assert 0 < (vectors - plain).abs().max() < 0.1


def test_images_are_made_from_the_originals_and_standardized_as_in_training(tmp_path: Path) -> None:
    counts = {f"{part}/{name}": count for part, count in (("train", 6), ("test", 3)) for name in "ab"}
    folder = photographs(tmp_path / "images", counts, (16, 16))
    config, run = Config(data=f"imagefolder:{folder}", image_size=8, steps=4, batch=4, **SMALL), Memory()
    train(config, run)
    model = restore_model(config, run.weights or b"")
    train_files, test_files = (sorted((folder / part).rglob("*.png")) for part in ("train", "test"))
    pixels = torch.from_numpy(np.stack([np.asarray(Image.open(file)) for file in test_files])).permute(0, 3, 1, 2)
    small = [Image.open(file).resize((8, 8), Image.Resampling.BILINEAR) for file in train_files]
    mean, std = np.stack(small).mean(axis=(0, 1, 2)), np.stack(small).std(axis=(0, 1, 2))
    logits = model(((pixels - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]).float())
    labels = torch.tensor([0] * 3 + [1] * 3)
    expected = torch.nn.functional.cross_entropy(logits, labels).item()
    assert OtherImages("16").compute(model).metrics["test_loss@16"] == pytest.approx(expected, rel=1e-4)


def test_metrics_of_evals_are_accuracies_in_percent_with_names_for_people() -> None:
    names = ("test_accuracy@64", "fewshot5_accuracy", "test_loss@64")
    at_64, few_shot, loss = map(Plan.model_validate(synthetic.position()).metric_named, names)
    assert [one.value_text(0.5) for one in (at_64, few_shot, loss)] == ["50.00", "50.00", "0.5000"]
    assert [one.higher_is_better for one in (at_64, few_shot, loss)] == [True, True, False]
    assert cell_text.metric_label(few_shot) == "5-shot accuracy"
    assert frame.metric_label(at_64) == "test accuracy at 64 pixels (%)"


@pytest.mark.parametrize("entry", EVAL)
def test_metrics_of_an_eval_are_named_so_that_readers_find_it(entry: str) -> None:
    """Tables know an eval by its name alone: NAME[@VALUE] measures NAME...[@VALUE]."""

    assert not any(map(eval_of, ("test_accuracy", "fewshot3_accuracy")))
    for spelled in EVAL[entry].values:
        value = re.sub("[A-Z]+", EVAL[entry].example, spelled)
        for name in EVAL[entry].metrics:
            metric = EVAL[entry](value).with_value(name)
            others = [EVAL[kind](value).with_value(kind) for kind in EVAL]
            assert find_eval(eval_of(metric)).with_value(entry) == eval_of(metric)
            assert [one for one in others if computes_metric(one, metric)] == [eval_of(metric)]


def test_exports_with_fewer_columns_and_numbers_of_earlier_versions_are_read(tmp_path: Path) -> None:
    plan, new = synthetic.position(seeds=2), ("evals", "inspect", "images_per_second", "lr")
    studies = load_studies(synthetic.write(tmp_path / "runs", plan))
    export.write(studies, tmp_path / "new.parquet")
    whole = pq.read_table(tmp_path / "new.parquet")
    history = pa.list_(pa.struct([one for one in whole.schema.field("history").type.value_type if one.name not in new]))
    rows = [{name: value for name, value in row.items() if name not in new} for row in whole.to_pylist()]
    for row in rows:
        row["history"] = [{name: line[name] for name in line if name not in new} for line in row["history"]]
    header = json.loads(whole.schema.metadata[export.KEY]) | {"trials": export.fingerprint(rows)}
    metadata = {export.KEY: json.dumps(header | {"checksum": store.checksum(header)})}
    fields = [pa.field("history", history) if one.name == "history" else one for one in whole.schema]
    schema = pa.schema([field for field in fields if field.name not in new], metadata)
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "old.parquet")
    (found,) = load_studies(tmp_path / "old.parquet")
    assert study_table.table(found) == study_table.table(studies[0])
    assert found.history.equals(studies[0].history.drop(columns="lr"))
    assert export.read_inspections(tmp_path / "old.parquet") == {}
