"""Attempts on disk: whether they allow a trial another one, on any machine; `retry`, and what `status` says of it."""

import re
import socket
from pathlib import Path

import closed_form
import pytest
import synthetic
from in_process import Ablate
from run_trials import curve_job, planned_curves, served

from ablations.execution import reopen, retry_rules
from ablations.execution.reopen import advice
from ablations.faults import INPUT, Fault, RankLost
from ablations.status import slurm_answers
from ablations.status.study_status import study_status
from ablations.status.view import render
from ablations.trainables.trainable import TrainingContext
from results import store
from results.store import eval_files, lease
from results.store.schemas.plans import Plan

CODE = "0123"


@pytest.fixture
def trial(tmp_path: Path) -> store.Trial:
    made = store.trial(tmp_path, "0123456789ab")
    made.create({"config": {}})
    return made


def end(trial: store.Trial, how: str, step: int | None = 0, code: str = CODE, where: str = "a", saves: int = 0) -> None:
    """Make an attempt that began at `step` (None: never), saved a checkpoint at `saves` unless 0, and ended."""
    attempt = store.claim(trial, lease.Watch())
    origin = {} if step is None else {"resumed_from": {"attempt": "0001", "step": step}}
    attempt.write_env({"code": code, **origin})
    if saves:
        attempt.save_checkpoint(saves, b"state %d" % saves)
    if how in ("bug", "machine"):
        attempt.fail(how, "", code, kind=how, where=[where], again=True)
    attempt.release()
    if how == "killed":
        (attempt.path / lease.RELEASED).rename(attempt.path / lease.NAME)
        store.write_json(attempt.path / lease.NAME, lease.own_lease().content() | {"started": "0"})


def chances(trial: store.Trial, code: str = CODE) -> str:
    """Return why there is no further attempt; "" if there is one."""
    with synthetic.claimed(trial) as current:
        return retry_rules.no_progress_reason(trial, retry_rules.earlier_failures(trial, current.path, code))


def test_three_killed_without_progress_are_enough(trial: store.Trial) -> None:
    """Two are not; the message names the last cause. An attempt without env.json counts too."""
    end(trial, "killed")
    end(trial, "machine")
    assert chances(trial) == ""
    end(trial, "killed")
    (trial.attempts()[-1] / "env.json").unlink()
    assert chances(trial) == f"3 attempts without progress: the last was {retry_rules.KILLED}"


def test_other_code_and_retry_start_anew(trial: store.Trial) -> None:
    for _ in range(3):
        end(trial, "killed", code="4567")
    assert chances(trial, "4567")
    assert chances(trial) == ""
    assert trial.reopen(lease.Watch(), None)
    assert chances(trial, "4567") == ""


PROGRESS = [("killed", step, step + 10) for step in (0, 10, 20, 30, 40)]
STARTLESS = [("killed", 0, 50), ("killed", None, 0), ("killed", None, 0)]


@pytest.mark.parametrize(
    ("ends", "goes_on"),
    [
        (PROGRESS, True),
        ([("stopped", 0, 0)] * 5, True),  # preemption, Ctrl-C and time limits are no faults
        (STARTLESS, True),
        ([*STARTLESS, ("killed", None, 0)], False),
    ],
)
def test_attempts_killed_without_progress_count(
    trial: store.Trial, ends: list[tuple[str, int | None, int]], goes_on: bool
) -> None:
    """An attempt that was killed before it read a checkpoint counts too."""
    for how, step, saves in ends:
        end(trial, how, step, saves=saves)
    assert (chances(trial) == "") is goes_on


def test_checkpoint_that_is_damaged_is_no_progress(trial: store.Trial) -> None:
    end(trial, "killed", saves=40)
    end(trial, "killed", 40, saves=50)
    newest = trial.checkpoints()[0]
    newest.write_bytes(newest.read_bytes()[:-1])
    for _ in range(2):
        end(trial, "killed", 40)
    assert chances(trial) != ""


@pytest.mark.parametrize("saves", [0, 30])
def test_where_an_attempt_began_is_written_once_decided(trial: store.Trial, saves: int) -> None:
    """Step 0 is written too: without a step, the attempt never began."""
    resumed: list[int] = []
    end(trial, "stopped", saves=saves)
    with synthetic.claimed(trial) as attempt:
        assert "resumed_from" not in attempt.env
        attempt.on_resume = resumed.append
        attempt.checkpoint()
        assert store.read_json(attempt.path / "env.json")["resumed_from"]["step"] == saves
    assert resumed == [saves] * (saves > 0)


def test_attempts_are_ordered_by_number(trial: store.Trial) -> None:
    for name in ("9999", "10000"):
        store.write_json(trial.path / "attempts" / name / lease.RELEASED, {})
        store.write_json(trial.path / "attempts" / name / "failure.json", {"kind": "machine", "cause": "a"})
    assert [path.name for path in trial.attempts()] == ["9999", "10000"]
    with synthetic.claimed(trial) as attempt:
        assert attempt.path.name == "10001"
        assert len(retry_rules.earlier_failures(trial, attempt.path, CODE)) == 2


@pytest.mark.parametrize(
    ("before", "now", "again"), [([], "a", True), (["a"], "a", False), (["a"], "b", True), (["a", "b"], "c", False)]
)
def test_a_traceback_twice_or_three_errors_end_it(trial: store.Trial, before: list[str], now: str, again: bool) -> None:
    for where in before:
        end(trial, "bug", where=where)
    past = retry_rules.earlier_failures(trial, trial.path / "attempts/9999", CODE)
    assert retry_rules.may_retry_exception(past, [now]) is again


def test_trial_between_two_attempts_is_interrupted_not_failed(trial: store.Trial) -> None:
    end(trial, "bug")
    state = trial.state()
    assert (state.status, state.reason) == ("interrupted", "interrupted: bug")
    with synthetic.claimed(trial) as attempt:
        attempt.fail("bug", "", CODE, kind="bug", where=["a"], again=False)
    assert trial.state().status == "failed"


def test_trial_whose_process_killed_itself_may_be_retried_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that hangs is killed once its failure is recorded; another machine cannot see that it is gone."""
    runs, _ = planned_curves(tmp_path)
    job = curve_job(act="import closed_form; closed_form.hang(run, context)")
    found: list[list[bool]] = []

    def hang(run: store.Attempt, context: TrainingContext) -> None:
        context.on_hang(RankLost("rank 1 is lost", Fault(INPUT, fatal=True)))
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(socket, "gethostname", lambda: "elsewhere")
            found.append(reopen.retry([run.trial], failed=True, oom=False, diverged=False))

    monkeypatch.setattr(closed_form, "hang", hang, raising=False)
    assert served(runs, job).kind == "held"
    assert found == [[True]]


def test_the_machines_faults_are_given_time_to_pass() -> None:
    """Each pause is five times the previous one, up to a limit; bugs and kills add none."""
    others = [retry_rules.EndedAttempt(False, "bug", 0), retry_rules.EndedAttempt(True, retry_rules.KILLED, 0)]
    faults = [retry_rules.EndedAttempt(True, "ECC", 0)] * 5
    pauses = [retry_rules.retry_delay(others + faults[:count]) for count in range(6)]
    assert pauses == [retry_rules.PAUSE_SECONDS * times for times in (0, 1, 5, 25, 30, 30)]


ARMS = {"bug": ("position=none", 1), "memory": ("position=2d", 2)}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Write a study in which one trial failed of a bug, one of memory, and one diverged."""
    plan = synthetic.position()
    holes = {synthetic.trial_id(plan, "position=none", 3): synthetic.hole("diverged")}
    holes |= {synthetic.trial_id(plan, *cell): synthetic.hole("missing") for cell in ARMS.values()}
    folder = synthetic.write(tmp_path / "runs", plan, holes)
    for kind, cell in ARMS.items():
        trial = store.trial(folder, synthetic.trial_id(plan, *cell))
        trial.create({"config": {}})
        with synthetic.claimed(trial) as attempt:
            attempt.fail(f"of {kind}", "Traceback ...", "code", kind=kind, where=["a"], again=False)
    return folder


OPEN = "interrupted"
LEFT = {"bug": "failed", "memory": "failed", "diverged": "diverged"}


@pytest.mark.parametrize(
    ("options", "said", "reopened"),
    [
        ([], "2 trials may be run again", ["bug", "memory"]),
        (["--oom"], "1 trial may be run again", ["memory"]),
        (["--failed", "--diverged"], "3 trials may be run again", ["bug", "memory", "diverged"]),
    ],
)
def test_selected_trials_reopen(runs: Path, ablate: Ablate, options: list[str], said: str, reopened: list[str]) -> None:
    assert said in ablate("retry", "position-embedding", *options)[1]
    cells, plan = {**ARMS, "diverged": ("position=none", 3)}, synthetic.position()
    trials = {name: store.trial(runs, synthetic.trial_id(plan, *cell)) for name, cell in cells.items()}
    assert {name: trial.state().status for name, trial in trials.items()} == LEFT | dict.fromkeys(reopened, OPEN)
    if "diverged" in reopened:
        kept = trials["diverged"].attempts()[-1] / "retried-result.json"
        assert store.read_json(kept)["status"] == "diverged"


def test_trials_that_cannot_be_retried_are_left_alone(runs: Path, ablate: Ablate) -> None:
    finished = synthetic.trial_id(synthetic.position(), "position=1d", 0)
    assert ablate("retry", finished) == (0, "0 of 1 trial failed: there is nothing to retry\n", "")
    assert "0 of 1 trial ran out of memory or diverged" in ablate("retry", finished, "--oom", "--diverged")[1]
    result = store.trial(runs, finished).path / "result.json"
    result.write_bytes(result.read_bytes()[:50])
    assert "`ablate run` trains trials with a damaged result again" in ablate("retry", finished)[1]
    trial = store.trial(runs, synthetic.trial_id(synthetic.position(), *ARMS["bug"]))
    with synthetic.claimed(trial) as attempt:
        attempt.fail("of bug", "", "code", kind="bug")
        assert "0 trials may be run again; 1 held" in ablate("retry", trial.id)[1]


def test_trial_with_a_new_result_is_left_alone(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process retries and finishes the trial between selection and reopening."""
    trial, watch = store.trial(runs, synthetic.trial_id(synthetic.position(), "position=none", 3)), lease.Watch

    def meanwhile() -> lease.Watch:
        monkeypatch.undo()
        assert trial.reopen(watch(), trial.result())
        attempt = store.claim(trial, watch())
        with attempt:
            attempt.save_weights(b"")
            attempt.publish({"status": "finished", "metrics": {}})
        return watch()

    monkeypatch.setattr(lease, "Watch", meanwhile)
    assert reopen.retry([trial], failed=False, oom=False, diverged=True) == [False]
    assert trial.state().status == "finished"


def test_a_trial_whose_result_is_too_new_is_not_held_afterwards(runs: Path) -> None:
    trial = store.trial(runs, synthetic.trial_id(synthetic.position(), "position=none", 0))
    result = store.read_json(trial.path / "result.json")
    store.write_json(trial.path / "result.json", result | {"schema": 1000})
    for _ in range(2):  # the second would find it held
        with pytest.raises(store.NewerSchema):
            trial.reopen(lease.Watch(), None)


def test_status_groups_causes_and_names_what_helps(runs: Path) -> None:
    text = render([study_status(Plan.model_validate(synthetic.position()), runs, slurm_answers.SlurmAnswers({}))]).plain
    plan = "position-embedding@digits"
    for kind, arm in (("bug", "position=none seed 1"), ("memory", "position=2d seed 2")):
        lines = [f"failed    1 trial: of {kind}", "Traceback ...", arm, advice(kind, plan)]
        assert "\n            ".join(lines) in text
    assert f"ablate retry {plan} --oom" in text


@pytest.mark.parametrize(
    ("metric", "shown"), [("val_accuracy", "   accuracy 50.0%"), ("val_loss", r"   val_loss 0\.5")]
)
def test_status_calls_only_accuracies_so(metric: str, shown: str, tmp_path: Path) -> None:
    plan = Plan.model_validate(synthetic.position()).model_copy(update={"selection_metric": metric})
    key = synthetic.trial_id(synthetic.position(), "position=none", 1)
    folder = synthetic.write(tmp_path / "runs", synthetic.position(), {key: synthetic.hole("missing")})
    trial = store.trial(folder, key)
    trial.create({"config": {}})
    with synthetic.claimed(trial) as attempt:
        attempt.log({"step": 10, "val_accuracy": 0.5, "val_loss": 0.5})
        text = render([study_status(plan, folder, slurm_answers.SlurmAnswers({}))]).plain
    (line,) = [line for line in text.splitlines() if "seed 1" in line]
    assert re.fullmatch(rf"  running   position=none seed 1   step 10(/[\d,]+)?{shown}", line)


def test_status_names_a_damaged_result_and_what_makes_it_again(runs: Path) -> None:
    result = runs / "trials" / synthetic.trial_id(synthetic.position(), "position=1d", 0) / "result.json"
    result.write_bytes(result.read_bytes()[:100])
    view = study_status(Plan.model_validate(synthetic.position()), runs, slurm_answers.SlurmAnswers({}))
    assert (view.counts["broken"], view.counts["missing"]) == (1, 0)
    advised = "position=1d seed 0\n +`ablate run` or `ablate submit` trains it again"
    assert re.search(f"broken    1 trial: result.json is not JSON.*\n +{advised}", render([view]).plain)


def test_trial_and_its_eval_that_failed_are_both_forgiven(runs: Path, ablate: Ablate) -> None:
    trial = store.trial(runs, synthetic.trial_id(synthetic.position(), *ARMS["bug"]))
    eval_files.write_failure(trial, "fewshot", "cause", "", "code")
    plan = Plan.model_validate(synthetic.position())
    before = study_status(plan, runs, slurm_answers.SlurmAnswers({})).counts
    assert "2 trials may be run again\n" in ablate("retry", "position-embedding")[1]
    assert eval_files.first_failure(trial) is None
    assert trial.state().status == OPEN
    counts = study_status(plan, runs, slurm_answers.SlurmAnswers({})).counts
    assert counts["interrupted"] == before["interrupted"]
    assert counts["missing"] > before["missing"]
