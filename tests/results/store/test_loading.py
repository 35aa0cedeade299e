"""What there is of a study, read from a run directory."""

import html
from pathlib import Path
from unittest import mock

import pytest
import synthetic
from in_process import Ablate

from results import store
from results.load import load_studies
from results.store.lease import Watch
from results.store.plan_files import REMEDY


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    long = synthetic.pooling(seeds=1, name="pooling@long", recipe="long")
    for plan in (synthetic.position(), synthetic.pooling(seeds=1), long):
        synthetic.write(folder, plan)
    return folder


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ([], ["pooling@digits", "pooling@long", "position-embedding@digits"]),
        (["position-embedding", "pooling"], ["position-embedding@digits", "pooling@digits", "pooling@long"]),
        (["pooling@long"], ["pooling@long"]),
    ],
)
def test_studies_come_in_the_order_asked_for(runs: Path, asked: list[str], found: list[str]) -> None:
    """A short name means every recipe, a full name one recipe, and no name every study in alphabetical order."""
    assert [study.name for study in load_studies(runs, asked)] == found


def test_an_unknown_study_or_directory_is_named(runs: Path, tmp_path: Path) -> None:
    near = r"no study 'poling'; did you mean 'pooling'\? \(there: pooling@digits, pooling@long, position-embedding"
    for source, asked, message in (
        (runs, ["poling"], near),
        (tmp_path, [], "no study has been run here"),
        (tmp_path / "nothing", [], "no such run directory or exported file"),
    ):
        with pytest.raises(ValueError, match=message):
            load_studies(source, asked)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory of two studies: one has a damaged plan, the other lacks a trial."""
    folder = tmp_path_factory.mktemp("damaged")
    plan = synthetic.position(seeds=2)
    synthetic.write(folder, plan, {synthetic.trial_id(plan, "position=2d", 0): synthetic.hole("missing")})
    synthetic.write(folder, synthetic.pooling(seeds=1))
    (folder / "studies" / "pooling@digits" / "plan.json").write_text("[]")
    return folder


@pytest.mark.parametrize(
    ("words", "ended"),
    [
        *(("status", 1), ("table", 1), ("plot", 1), ("report", 1), ("table position-embedding", 0)),
        *(("status --watch", 1), ("table --columns nope", 2), ("status pooling", 2), ("export", 1)),
        *(("clean --keep-weights none --yes", 1), ("compare RUNS RUNS", 1), ("compare RUNS published", 1)),
        ("inspect pooling", 2),
    ],
)
def test_a_damaged_plan_hides_no_other_study(
    damaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ablate: Ablate, words: str, ended: int
) -> None:
    """It is named with its remedy. Until then `clean` removes no weights, because the plan may need them."""
    monkeypatch.setattr("time.sleep", mock.Mock(side_effect=KeyboardInterrupt))  # Ctrl-C in --watch
    path = damaged / "studies" / "pooling@digits" / "plan.json"
    before = sorted(damaged.glob("trials/**/*"))
    monkeypatch.chdir(tmp_path)
    given = words.replace("RUNS", str(damaged)).split()
    given += [] if "compare" in words else ["--runs", str(damaged)]
    status, output, errors = ablate(*given)
    assert (status, bool(output), sorted(damaged.glob("trials/**/*"))) == (ended, ended < 2, before)
    named = f"{path} is not a JSON object: {REMEDY}"
    assert f"ablate: {named}\n" in errors if ended else not errors
    assert ("none: all weights stay, which a damaged plan may need" in errors) == ("clean" in words)
    assert [named in output, "nope" in errors] == ["--watch" in words, "nope" in words]
    if words == "report":
        assert html.unescape((damaged / "report.html").read_text()).count(f"Left out: {named}") == 1


def test_a_link_to_no_file_is_a_damaged_plan(tmp_path: Path) -> None:
    name = "pooling@digits+abcdef"
    path = synthetic.write(tmp_path, synthetic.pooling(seeds=1, name=name)) / "studies" / name / "plan.json"
    path.unlink()
    path.symlink_to("missing")
    (error,) = store.read_plans(tmp_path).damaged
    with pytest.raises(store.Broken, match=r"a link to a missing file: remove it alone; .* same settings and --seeds"):
        raise error


def test_every_planned_trial_is_a_row(tmp_path: Path) -> None:
    """Rows stand in the plan's order, with the numbers of the attempt or the reason of their absence."""
    plan = synthetic.position()
    ids = [synthetic.trial_id(plan, "position=2d", seed) for seed in range(3)]
    holes = [synthetic.hole("failed", "ValueError: no"), synthetic.hole("diverged"), synthetic.hole("missing")]
    study = load_studies(synthetic.write(tmp_path, plan, dict(zip(ids, holes, strict=True))))[0]
    planned = [(arm["name"], trial["seed"]) for arm in plan["arms"] for trial in arm["trials"]]
    assert list(zip(study.trials["arm"], study.trials["seed"], strict=True)) == planned
    found = study.trials.set_index("id")
    assert list(found.loc[ids, "status"]) == ["failed", "diverged", "missing"]
    assert list(found.loc[ids, "reason"]) == ["ValueError: no", "", "not started"]
    assert found.loc[ids, "test_accuracy"].isna().all()
    assert (found["device"] == "cpu").sum() == 19
    assert len(study.history) == 17 * synthetic.EVALUATIONS
    assert study.correct.keys() == set(found.index) - set(ids)


def test_a_plan_without_trials_has_columns_without_rows(tmp_path: Path) -> None:
    (study,) = load_studies(synthetic.write(tmp_path, synthetic.position(seeds=0)))
    assert len(study.trials) == 0
    assert {"arm", "status", "test_accuracy"} <= set(study.trials.columns)


def test_a_trial_reads_as_it_was_written(runs: Path) -> None:
    (found,) = load_studies(runs, ["position-embedding"])
    synthetic.assert_same(found, synthetic.with_weights(synthetic.results(synthetic.position())))


def test_a_result_of_a_newer_version_is_an_error(tmp_path: Path) -> None:
    newer = synthetic.write(tmp_path, synthetic.position())
    (next((newer / "trials").iterdir()) / "result.json").write_text('{"schema": 99}')
    with pytest.raises(store.NewerSchema, match="schema 99 is newer"):
        load_studies(newer)


ENV = {"code": "aaaa", "device": "cpu", "torch": "2.14.1", "threads": 1, "plugins": {}}


def resumed_env(attempt: str, **env: object) -> dict[str, object]:
    return ENV | {"resumed_from": {"attempt": attempt, "step": 400}} | env


@pytest.mark.parametrize(
    ("envs", "expected"),
    [
        (  # a value that changed between attempts is "A then B"
            [
                ENV,
                resumed_env("0001", code="bbbb+eeee", plugins={"p.py": "eeee"}),
                ENV | {"code": "cccc", "device": "H200"},  # came to nothing: the last attempt did not resume from it
                resumed_env("0002", code="dddd", threads=2),
            ],
            {"code": "aaaa then bbbb+eeee then dddd", "threads": "1 then 2", "plugins": '{"p.py": "eeee"}'},
        ),
        ([ENV, ENV | {"code": "bbbb"}], {"code": "bbbb"}),  # it started again
        # attempts that name each other, themselves or a missing attempt do not hide the others
        ([resumed_env("0002"), resumed_env("0001", code="bbbb")], {"code": "aaaa then bbbb", "device": "cpu"}),
        ([resumed_env("0002"), resumed_env("0002", code="bbbb")], {"code": "bbbb", "device": "cpu"}),
        ([resumed_env("0002"), resumed_env("0009", code="bbbb")], {"code": "bbbb", "device": "cpu"}),
        (
            [ENV | {"plugins": {"p.py": "eeee", "q.py": "0000"}}, resumed_env("0001", plugins={"p.py": "ffff"})],
            {"plugins": '{"p.py": "eeee then ffff", "q.py": "0000"}'},
        ),
        (  # no table of plugins
            [ENV | {"plugins": "p.py"}, resumed_env("0001", plugins={"p.py": "ffff"})],
            {"plugins": '{"p.py": "ffff"}'},
        ),
    ],
)
def test_a_resumed_trial_has_the_provenance_of_all_its_attempts(
    tmp_path: Path, envs: list[dict[str, object]], expected: dict[str, str]
) -> None:
    """Each attempt has one of `envs`; the last finished."""
    plan = synthetic.position(seeds=1)
    key = synthetic.trial_id(plan, "position=2d", 0)
    trial = store.trial(tmp_path, key)
    for _ in envs[1:]:
        store.claim(trial, Watch()).release()
    synthetic.write(tmp_path, plan)
    synthetic.write_trial(trial, synthetic.simulate(plan)[key])
    for attempt_path, env in zip(trial.attempts(), envs, strict=True):
        store.write_json(attempt_path / "env.json", env)
    result = store.read_json(trial.path / "result.json")
    result["files"].pop("env.json", None)  # as of a version that recorded none
    store.write_json(trial.path / "result.json", result | {"checksum": store.checksum(result)})
    found = load_studies(tmp_path)[0].trials.set_index("id").loc[key].to_dict()
    assert found["status"] == "finished"
    assert {name: found[name] for name in expected} == expected
