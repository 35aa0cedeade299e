"""Files of a run directory with every field missing or wrong: one line, never a traceback."""

import json
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import synthetic
from hostile import DEEP, ended, mutations
from in_process import Ablate

from ablations.planning.prepare import prepare
from ablations.planning.saved_plans import save_plan
from ablations.study.design import Design
from ablations.study.reading import read_recipe, read_study
from commonfloor.files import read_bytes
from results import export, store
from results.load import load_studies
from results.store import lease
from results.store.schemas.base import unknown_field, validated
from results.store.schemas.metrics import AXES, BEFORE_0_25
from results.store.schemas.plans import Asked, Plan
from results.store.schemas.trials import EvalSummary

READING = (
    ("table", "position-embedding"),
    ("status", "position-embedding"),
    ("logs", "position-embedding"),
    ("clean",),
    ("compare", "{runs}", "{runs}"),
)
EVERY = bool(os.environ.get("ABLATE_EVERY_MUTATION"))  # else a sample, under some of the commands
# Where each file lies below the run directory, by its schema.
PLACES: dict[str, str] = {
    "plan.json": "studies/*/plan.json",
    "result.json": "trials/*/result.json",
    "config.json": "trials/*/config.json",
    "env.json": "trials/*/attempts/0001/env.json",
    "metrics.jsonl": "trials/*/attempts/0001/metrics.jsonl",
    "lease.json": "trials/*/attempts/0001/lease.json",
    "failure.json": "trials/*/attempts/0001/failure.json",
    "an eval": "trials/*/evals/fewshot.json",
}


def two_arms(seeds: int) -> dict[str, Any]:
    return synthetic.make_plan("position-embedding", {"position": ["none", "1d"]}, {"position": "1d"}, seeds=seeds)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two trials of each of two arms; the first has an eval, a failure and a lease too."""
    folder = tmp_path_factory.mktemp("runs")
    plan = two_arms(seeds=2)
    synthetic.write(folder, plan)
    trial = store.Trial(sorted(folder.glob("trials/*"))[0])
    plain = {"schema": 1, "id": trial.id, "name": "fewshot", "weights_sha256": None, "metrics": {}, "notes": []}
    failure = {"cause": "c", "traceback": "t", "code": "0", "kind": "bug", "where": []}
    store.write_json(trial.path / "evals/fewshot.json", plain | {"checksum": store.checksum(plain)})
    store.write_json(trial.path / "attempts/0001/failure.json", failure)
    store.write_json(trial.path / "attempts/0001/lease.json", {**lease.own_lease().content(), "nonce": "0" * 32})
    return folder


def write_export(path: Path, rows: list[dict[str, Any]], header: object) -> None:
    """Write rows under any header as an export, with the checksum that the header has."""
    metadata = {export.KEY: json.dumps(reseal(header))}
    pq.write_table(pa.Table.from_pylist(rows, COLUMNS.with_metadata(metadata)), path)


def header_of(plans: list[Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"schema": store.SCHEMA, "plans": plans, "trials": export.fingerprint(rows), "checksum": ""}


def reseal(content: object) -> object:
    """Return the content with a checksum made anew, as a forger would write it."""
    if not isinstance(content, dict) or not isinstance(content.get("checksum"), str):
        return content
    try:
        return content | {"checksum": store.checksum(content)}
    except (ValueError, RecursionError):
        return content


@pytest.mark.parametrize("name", PLACES)
def test_a_file_that_breaks_its_schema_ends_in_one_line(runs: Path, ablate: Ablate, name: str) -> None:
    path = sorted(runs.glob(PLACES[name]))[0]
    whole = path.read_bytes()
    content = json.loads(whole.splitlines()[0] if name.endswith("jsonl") else whole)
    every = slice(None) if EVERY else slice(list(PLACES).index(name) % 7, None, 7)
    try:
        for place, (what, mutated) in enumerate(list(mutations(content))[every]):
            path.write_text(json.dumps(reseal(mutated)) + "\n")
            for words in READING if EVERY else (READING[0], READING[1 + place % 4]):
                given = [word.format(runs=runs) for word in words]
                given += [] if words[0] == "compare" else ["--runs", str(runs)]
                assert not ended(ablate, *given), (what, words)
    finally:
        path.write_bytes(whole)


TEXTS = (None, "", "\x1b[2J../../x", "[]", "5", '{"x": null}', '{"a":' * 5000 + "1" + "}" * 5000, '{"a": 1e999}')
CURVES = ("train_loss", "val_loss", "val_accuracy", "lr")
COLUMNS = export.schema(BEFORE_0_25, CURVES)
NUMBERS = (None, math.nan, math.inf, -1.0, 5.5, 1e300)
LISTS = (None, [], [1, 2, 3], [255])


def test_a_row_of_an_export_that_breaks_its_schema_ends_in_one_line(tmp_path: Path, ablate: Ablate) -> None:
    study, path = synthetic.results(two_arms(seeds=2)), tmp_path / "a.parquet"
    rows, plans = list(export.trial_rows(study)), [store.plan_content(study.plan)]
    reading = (("table", "--runs", str(path)), ("compare", str(path), str(path)))
    every = [(column, value) for column in COLUMNS for value in wrong_values(column.type)]
    for place, (column, value) in enumerate(every if EVERY else every[::7]):
        mutated = [{**row, "inspect": "", **({column.name: value} if row is rows[0] else {})} for row in rows]
        write_export(path, mutated, header_of(plans, mutated))
        for words in reading if EVERY else reading[place % 2 :][:1]:
            assert not ended(ablate, *words), (f"{column.name}={value!a:.40}", words)


def test_a_header_of_an_export_that_breaks_its_schema_ends_in_one_line(tmp_path: Path, ablate: Ablate) -> None:
    study, path = synthetic.results(two_arms(seeds=2)), tmp_path / "a.parquet"
    rows, plan = [row | {"inspect": ""} for row in export.trial_rows(study)], store.plan_content(study.plan)
    header = header_of([plan], rows)
    every = [*mutations(header), *((f"plan {what}", header | {"plans": [one]}) for what, one in mutations(plan))]
    for what, mutated in every if EVERY else every[::7]:
        write_export(path, rows, mutated)
        assert not ended(ablate, "table", "--runs", str(path)), what


def wrong_values(kind: pa.DataType) -> Sequence[object]:
    """Return values that a column of this type can hold but the export seldom or never writes."""
    if pa.types.is_list(kind):
        return ([{name: None for name in (*AXES, *CURVES)}], None) if pa.types.is_struct(kind.value_type) else LISTS
    return TEXTS if kind == pa.string() else NUMBERS


def test_an_export_that_floods_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long text that every row repeats takes little of the file, so its size is checked before it is expanded."""
    rows = [{"id": f"{number:012x}", "config": "x" * 100_000} for number in range(1000)]
    write_export(tmp_path / "a.parquet", rows, {"schema": 1, "plans": [], "trials": "0" * 64, "checksum": ""})
    assert (tmp_path / "a.parquet").stat().st_size < 1 << 20
    for name, most in (("MOST_BYTES", 1 << 24), ("MOST_ROWS", 999), ("MOST_VALUES", 1000)):
        with monkeypatch.context() as patch:
            patch.setattr(export, name, most)
            refused = rf"damaged \([\d,]+ (characters of text|rows|values): at most {most:,}\)"
            with pytest.raises(store.Broken, match=refused):
                load_studies(tmp_path / "a.parquet")


@pytest.mark.parametrize("value", [5.0, -0.01, 1e9])
def test_an_accuracy_beyond_0_and_1_is_broken(tmp_path: Path, value: float) -> None:
    """The declared range holds for results and evals, whatever the checksum; a loss may be any number."""
    plan = synthetic.position(seeds=1)
    key, record = next(iter(synthetic.simulate(plan).items()))
    for name, accepted in (("test_accuracy", False), ("fewshot5_accuracy", False), ("test_loss", True)):
        of_eval = replace(record, evals={"test@16": EvalSummary(metrics={f"{name}@16": value})})
        for changed, metric in ((synthetic.changed(record, **{name: value}), name), (of_eval, f"{name}@16")):
            study = synthetic.results(plan, {key: changed})
            export.write([study], tmp_path / "a.parquet")
            for read in (study, *load_studies(tmp_path / "a.parquet")):
                found = dict(zip(read.columns["id"], read.columns["reason"], strict=True))[key]
                assert found == ("" if accepted else f"{metric}={value:g}: from 0 to 1")


def test_deeply_nested_content_is_refused() -> None:
    with pytest.raises(store.Broken, match="levels deep"):
        validated(Plan, DEEP)


def test_reading_commands_name_edited_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ablate: Ablate) -> None:
    plan = two_arms(seeds=5)
    ids = [trial["id"] for trial in plan["arms"][0]["trials"]]
    records = synthetic.simulate(plan)
    synthetic.write(tmp_path / "runs", plan, {ids[4]: synthetic.changed(records[ids[4]], status="diverged")})
    edits = {"config.json": '"lr": 0.002', "metrics.jsonl": '"epoch": 3.3', "env.json": "laptop"}
    for trial_id, (name, old) in zip([ids[0], ids[1], ids[4]], edits.items(), strict=True):
        folder = store.trial(tmp_path / "runs", trial_id).path
        path = folder / name if name == "config.json" else folder / "attempts/0001" / name
        content = path.read_text()
        assert old in content
        path.write_text(content.replace(old, old[:-1] + "9"))
    (store.trial(tmp_path / "runs", ids[2]).path / "config.json").unlink()
    reasons = dict(zip(*(load_studies(tmp_path / "runs")[0].columns[name] for name in ("id", "reason")), strict=True))
    assert reasons[ids[0]] == "config.json: edited or damaged since its result was published"
    assert {reasons[key] for key in reasons.keys() - ids} == {""}
    monkeypatch.chdir(tmp_path)
    for words, written in (("table", ""), ("compare runs runs", ""), ("export --out a.csv", "a.csv"), ("report", "")):
        status, told, _ = ablate(*words.split())
        told += "".join(path.read_text() for path in [*tmp_path.glob(written or "runs/*.html")])
        assert status == 0
        for name in edits:
            assert f"{name}: edited or damaged since its result was published" in told
        assert "config.json: gone, though its result was published with it" in told


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    """Write a plan into a run directory without trials; return its path."""
    plan = Plan.model_validate(synthetic.position())
    path = store.study_folder(tmp_path, plan.name) / "plan.json"
    store.write_plan(path, plan)
    return path


@pytest.mark.parametrize("edit", ['"margin": 0.025', '"seeds": [\n  0'])
def test_an_edited_plan_is_refused(tmp_path: Path, plan_file: Path, edit: str) -> None:
    assert edit in plan_file.read_text()
    plan_file.write_text(plan_file.read_text().replace(edit, edit[:-1] + "9"))
    with pytest.raises(store.Broken, match=r"plan\.json: its checksum differs .* remove it"):
        load_studies(tmp_path)


@pytest.mark.parametrize("place", ["", "arms.1.", "arms.1.trials.2.", "split."])
def test_a_stray_key_in_a_plan_is_named(tmp_path: Path, plan_file: Path, place: str) -> None:
    inside: Any = (content := json.loads(plan_file.read_text()))
    for part in filter(None, place.split(".")):
        inside = inside[int(part) if part.isdecimal() else part]
    inside["sedes"] = 5
    plan_file.write_text(json.dumps(content))
    with pytest.raises(store.Broken, match=rf"plan\.json: unknown key '{place}sedes'"):
        load_studies(tmp_path)


@pytest.mark.parametrize("study", ["position-embedding", "pretraining"])
def test_a_plan_as_run_writes_it_has_no_stray_key(tmp_path: Path, study: str) -> None:
    """A stray key in the message is therefore an edit."""
    plan = prepare(Design(read_study(study), read_recipe("digits"), {}), tmp_path, None, prune=True)
    asked = Asked(study=study, recipe="digits")
    save_plan(tmp_path, plan.model_copy(update={"asked": asked}))
    written = store.read_plan(next(iter(tmp_path.glob("studies/*/plan.json"))))
    assert unknown_field(written) == ""


def test_a_pipe_is_no_file_of_a_trial(tmp_path: Path) -> None:
    """No reader waits for the writer of a pipe."""
    os.mkfifo(tmp_path / "metrics.jsonl")
    for read in (store.read_json, read_bytes):
        with pytest.raises(store.Broken, match=r"metrics\.jsonl is not a regular file"):
            read(tmp_path / "metrics.jsonl")
    assert store.read_metrics(tmp_path) == []
