"""Submissions on disk, with a stand-in for SLURM's queue: cancelling, continuing, and their status."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import synthetic
from waits import PATIENCE, wait_until

from ablations import provenance
from ablations.cli import watching as cleaning
from ablations.cli.inputs.directories import make_place
from ablations.cluster import arrays, node, rounds, submit
from ablations.cluster import campaign as campaigns
from ablations.cluster.campaign import Campaign
from ablations.execution import runner
from ablations.execution.launch import Place
from ablations.jobs import jobs as jobs_of
from ablations.planning import estimate
from ablations.status import slurm_answers
from ablations.status.study_status import StudyStatus, is_settled, study_status
from ablations.status.view import render
from ablations.trainables.trainable import NodeCheck
from results import report, store
from results.store import lease, plan_files, record
from results.store.schemas.plans import Plan
from slurm import arrays as slurm_arrays
from slurm import local, queue, task
from slurm.arrays import JobArray
from slurm.ask import Refused, Unreachable
from slurm.profile import Profile

TOY = Profile(gpus=0, cpus=1, memory="1G", time=5)


@dataclass
class Queue:
    """Stands in for SLURM's queue, with the names of its jobs."""

    names: list[str] = field(default_factory=list)
    answers: bool = True

    def jobs(self, *tags: str, ended: bool = False, timeout: float = 0.0, users: object = ()) -> list[str]:
        if not self.answers:
            raise Unreachable("SLURM does not answer")
        return [name for name in self.names if name.startswith(tags)]

    def cancel(self, *tags: str) -> int:
        found = self.jobs(*tags)
        self.names = [name for name in self.names if name not in found]
        return len(found)


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Queue:
    """Let submissions ask an empty queue."""
    fake = Queue()
    for name in ("jobs", "cancel"):
        monkeypatch.setattr(queue, name, getattr(fake, name))
    return fake


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Make a run directory with two planned studies."""
    folder = tmp_path / "runs"
    for plan in (synthetic.position(), synthetic.pooling()):
        store.write_json(store.study_folder(folder, plan["name"]) / "plan.json", plan)
    return folder


POSITION, POOLING = synthetic.position()["name"], synthetic.pooling()["name"]


def submitted(runs: Path, *plans: str, data_dir: Path | None = None, **more: Any) -> Campaign:
    """Make a campaign as `submit` does, without its arrays."""
    return campaigns.write(campaigns.new(plans or [POSITION], more.pop("profile", TOY), Place(runs, data_dir), **more))


def write_array(campaign: Campaign, number: int, progress: Sequence[int] = ()) -> Path:
    """Make an array in the campaign; return its folder. progress: as a last job would write it."""
    array = campaign.folder / "arrays" / f"{number:04d}"
    (array / "logs").mkdir(parents=True)
    content = {"function": arrays.WORK, "written": time.time(), "progress": progress}
    store.write_json(array / "intent.json", content)
    return array


def seen(runs: Path, known: slurm_answers.SlurmAnswers | None = None) -> StudyStatus:
    return study_status(Plan.model_validate(synthetic.position()), runs, known or slurm_answers.SlurmAnswers())


def test_tokens_of_a_profile_are_kept_for_its_user_alone(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = TOY.model_copy(update={"environment": {"MY_TOKEN": "hush"}, "setup": ("export OTHER=hush",)})
    campaign = submitted(runs, profile=profile)
    assert campaign.profile == profile
    holding = [path for path in campaign.folder.glob("*.json") if "hush" in path.read_text()]
    assert [(path.name, path.stat().st_mode & 0o777) for path in holding] == [("private.json", 0o600)]
    opened = os.open

    def refused(path: str, *rest: Any, **named: Any) -> int:
        if Path(path).name == "private.json":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *rest, **named)

    monkeypatch.setattr(os, "open", refused)
    assert campaigns.load(campaign.folder).profile == TOY


def test_profile_goes_before_the_recipes_resources(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("{memory: 4G, cpus: null}")
    profile = submit.read_profile(str(tmp_path / "p.yaml"), {"memory": "32G", "cpus": 3, "time": "0:30:00"})
    assert (profile.memory, profile.cpus, profile.minutes, profile.gpus) == ("4G", 3, 30, 1)
    with pytest.raises(ValueError, match="cores"):
        submit.read_profile(str(tmp_path / "p.yaml"), {"cores": 3})


def test_cancel_that_slurm_did_not_answer_is_completed_by_the_next(runs: Path, slurm: Queue) -> None:
    campaign, other = submitted(runs), submitted(runs)
    slurm.names = [f"{campaign.tags}0001", f"{campaign.tags}0002", "ablate:other:0001"]
    slurm.answers = False
    with pytest.raises(Unreachable, match="to cancel pending ones, give the command again"):
        submit.cancel(runs, {POSITION})
    assert campaign.cancelled
    assert other.cancelled  # all submissions are marked before SLURM is asked
    slurm.answers = True
    assert "0 submissions cancelled, 2 jobs removed" in submit.cancel(runs, {POSITION})
    assert slurm.names == ["ablate:other:0001"]


@pytest.fixture
def sent_arrays(slurm: Queue, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Record (function, number of tasks) of each array instead of submitting it. Refuse more than seven tasks."""
    found: list[tuple[str, int]] = []

    def send(array: JobArray) -> int:
        if array.count > 7:
            raise Refused("Batch job submission failed: Invalid job array specification")
        found.append((array.function.rpartition(":")[2], array.count))
        return len(found)

    monkeypatch.setattr(slurm_arrays, "submit", send)
    monkeypatch.setattr(queue, "accounting", lambda names: None)
    monkeypatch.setattr(estimate, "seconds", lambda plans, *_: {job.id: 1e4 for job in jobs_of(plans)})
    monkeypatch.setattr(estimate, "cost", lambda *_: SimpleNamespace(hours=1.0))
    monkeypatch.setattr(rounds, "SETTLE_SECONDS", 3600.0 / rounds.MOST_ARRAYS / 2)
    return found


def missing(runs: Path) -> None:
    """Remove all trials, so that they are to be trained."""
    shutil.rmtree(runs / "trials", ignore_errors=True)


def test_a_queue_that_lies_costs_a_bounded_number_of_arrays(runs: Path, sent_arrays: list[tuple[str, int]]) -> None:
    """squeue shows nothing, for ever: one array within 90 s, and MOST_ARRAYS within an hour."""
    missing(runs)
    campaign = submitted(runs)
    for number in range(rounds.MOST_ARRAYS):
        assert rounds.submit_round(campaign).submitted > 0
        assert sent_arrays[3 * number + 1 :] == [("last", 1), ("watch", 1)]
        assert rounds.submit_round(campaign).submitted == 0
        for array in arrays.task_arrays(campaign):
            age(array, rounds.SETTLE_SECONDS)
    with pytest.raises(Refused, match="20 arrays were submitted within an hour"):
        rounds.submit_round(campaign, inside=True)


def test_new_submission_waits_for_tasks_of_the_same_arms(runs: Path, sent_arrays: list[tuple[str, int]]) -> None:
    """squeue may not show these yet. Other arms do not wait, and what submits nothing writes no folder."""
    missing(runs)
    place, folder = Place(runs, None), runs / "submissions"
    for arms, submitted in (("*", True), ("*", False), ("position=none", True), ("*", False)):
        before = len(list(folder.glob("[0-9]*")))
        done = rounds.submit_round(campaigns.new([POSITION], TOY, place, arms=[arms]))
        assert bool(done.submitted) is submitted
        assert len(list(folder.glob("[0-9]*"))) == before + submitted


def test_refused_submission_leaves_no_folder(
    runs: Path, sent_arrays: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(array: JobArray) -> int:
        raise Refused("Batch job submission failed: Invalid account")

    missing(runs)
    monkeypatch.setattr(slurm_arrays, "submit", refuse)
    with pytest.raises(Refused, match="Invalid account"):
        rounds.submit_round(campaigns.new([POSITION], TOY, Place(runs, None)))
    assert not list((runs / "submissions").iterdir())


def age(array: arrays.SubmittedArray, seconds: float) -> None:
    """Let an array be older than it is."""
    path = array.folder / "intent.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"written": content["written"] - seconds}))


def test_number_of_tasks_that_slurm_refuses_is_halved(runs: Path, sent_arrays: list[tuple[str, int]]) -> None:
    missing(runs)
    campaign = submitted(runs)
    assert rounds.send_tasks(campaign, 25, [], {}, []) == (1, 6)
    assert sent_arrays == [("work", 6)]


@pytest.mark.parametrize(
    ("minutes", "parallel", "tasks"), [(1, None, 9), (60, None, 3), (1, 4, 4), (1e6, None, 1), (1, 20, 9)]
)
def test_number_of_tasks_follows_from_time_and_parallel(minutes: float, parallel: int | None, tasks: int) -> None:
    profile = TOY.model_copy(update={"task_minutes": minutes, "parallel": parallel})
    seconds = {f"{number:012x}": 1200.0 for number in range(9)}
    assert rounds.wanted_tasks(list(seconds), seconds, profile) == tasks


def test_submission_with_a_key_of_earlier_versions_is_read(runs: Path) -> None:
    campaign = submitted(runs)
    content = store.read_json(campaign.folder / "campaign.json")
    content["profile"]["stage"] = "$TMPDIR"
    store.write_json(campaign.folder / "campaign.json", content)
    assert campaigns.load(campaign.folder).profile == campaign.profile


def test_copied_run_directory_has_no_jobs(runs: Path, tmp_path: Path) -> None:
    """The jobs belong to the original, which its copy neither counts nor cancels."""
    campaign = submitted(runs)
    write_array(campaign, 1)
    shutil.copytree(runs, tmp_path / "copy")
    assert [one.folder for one in campaigns.campaigns(runs)] == [campaign.folder]
    assert campaigns.campaigns(tmp_path / "copy") == []
    assert "0 submissions cancelled, 0 jobs removed" in submit.cancel(tmp_path / "copy", {POSITION})


def test_submission_is_known_on_a_node_with_other_links(runs: Path, tmp_path: Path) -> None:
    """What is a folder on a login node may be a link on the nodes, and the other way round."""
    campaign = submitted(runs)
    (tmp_path / "scratch").symlink_to(runs)
    content = store.read_json(campaign.folder / "campaign.json")
    content["folder"] = str(tmp_path / "scratch/submissions" / campaign.folder.name)
    store.write_json(campaign.folder / "campaign.json", content)
    assert [one.folder for one in campaigns.campaigns(runs)] == [campaign.folder]


def test_submission_whose_code_was_purged_is_cancelled(runs: Path, slurm: Queue) -> None:
    campaign = submitted(runs)
    shutil.rmtree(campaign.code)
    assert "1 submission cancelled" in submit.cancel(runs, {POSITION})


def test_colleague_cancels_only_his_own(runs: Path, slurm: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = submitted(runs)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert "0 submissions cancelled" in submit.cancel(runs, {POSITION})
    assert not campaign.cancelled


@pytest.mark.parametrize("loss", ["purged", "changed"])
def test_task_runs_no_other_code_than_was_submitted(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], loss: str
) -> None:
    campaign = submitted(runs)
    array = write_array(campaign, 1)
    if loss == "changed":
        monkeypatch.setattr(provenance, "source_digest", lambda: "0" * 12)
        with pytest.raises(ValueError, match="was changed or removed since the submission"):
            node.work(str(array))
        return
    shutil.rmtree(campaign.code)
    monkeypatch.setattr(sys, "argv", ["task", str(campaign.code), arrays.WORK, str(array)])
    with pytest.raises(SystemExit, match="the code of this submission is gone"):
        task.main()


def test_last_job_waits_for_trials_that_seem_to_be_held(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks submitted meanwhile would end at once, as for a minute after a kill on another machine."""
    shutil.rmtree(runs / "trials", ignore_errors=True)
    campaign = submitted(runs, arms=["position=none"])
    held = [synthetic.claimed(store.trial(runs, job.id)) for job in campaign.jobs()]
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        held.pop().release()

    monkeypatch.setattr(node, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=sleep))
    node.await_holders(campaign, 1.0)
    assert len(waits) == 1
    for attempt in held:
        attempt.release()


def test_last_job_waits_out_a_full_disk(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does so if its own log is on that disk, and tries until its own time is over."""
    array = write_array(submitted(runs), 1)
    now, waits = [0.0], list[float]()

    def full(*_: object, **__: object) -> rounds.Round:
        raise OSError(errno.ENOSPC, "No space left on device")

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(rounds, "submit_round", full)
    monkeypatch.setattr(arrays, "queued_tasks", lambda runs: [])
    monkeypatch.setattr(node, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 900))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(write=len, flush=full))
    with pytest.raises(OSError, match="No space left"):
        node.finish_patiently(array)
    assert waits[:5] == [5, 10, 20, 40, 60]
    assert sum(waits) == pytest.approx(900 - node.LONGEST_RETRY, abs=70)


def test_submission_of_another_cluster_is_unknown_here(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clusters may share a file system, and each knows its own jobs alone."""
    shutil.rmtree(runs / "trials", ignore_errors=True)
    write_array(submitted(runs, cluster="alpha"), 1)
    monkeypatch.setattr(queue, "jobs", lambda *_, **__: [])
    monkeypatch.setattr(queue, "accounting", lambda *_, **__: [])
    for name, answer in (("alpha", ""), ("beta", "submitted on cluster alpha: what is queued there is unknown here")):
        monkeypatch.setenv("SLURM_CLUSTER_NAME", name)
        view = seen(runs, slurm_answers.ask_slurm(runs))
        assert view.slurm == answer
        assert (view.counts["unknown"] > 0) is bool(answer)


def test_node_on_which_no_task_began_is_avoided(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks failed before they wrote anything, as where the run directory is not mounted."""
    campaign = submitted(runs)
    array = write_array(campaign, 1)
    (array / "nodes").mkdir()
    (array / "nodes/node2").touch()
    ends = [("FAILED", "node1"), ("FAILED", "node2"), ("CANCELLED", "node3"), ("FAILED", ""), ("FAILED", "a b")]
    past = [queue.PastJob(7, number, *end) for number, end in enumerate(ends)]
    monkeypatch.setattr(queue, "accounting", lambda names: past)
    assert arrays.silent_nodes(arrays.task_arrays(campaign)) == ["node1"]
    monkeypatch.setattr(queue, "accounting", lambda names: None)
    assert arrays.silent_nodes(arrays.task_arrays(campaign)) == []


def test_studies_submitted_together_are_cancelled_together_or_not_at_all(runs: Path, slurm: Queue) -> None:
    campaign = submitted(runs, POSITION, POOLING)
    with pytest.raises(ValueError, match=f"{POOLING}: would be cancelled too"):
        submit.cancel(runs, {POSITION})
    assert not campaign.cancelled
    assert "1 submission cancelled" in submit.cancel(runs, {POSITION, POOLING})
    assert campaign.cancelled
    synthetic.write(runs, synthetic.pooling())
    submitted(runs, POSITION, POOLING)
    assert "1 submission cancelled" in submit.cancel(runs, {POSITION})


def test_cancelling_says_that_a_process_of_this_machine_ends(runs: Path, slurm: Queue) -> None:
    submitted(runs, cluster=campaigns.LOCAL)
    assert submit.cancel(runs, {POSITION}) == (
        "1 submission cancelled, the process on this machine ends by itself; finished trials stay"
    )


def test_second_submission_to_this_machine_starts_no_second_pool(
    runs: Path, slurm: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the process that is at work, and starts another one after that process has ended."""
    missing(runs)
    monkeypatch.setattr(local, "start", lambda array: started.append(array) or os.getpid())
    started: list[JobArray] = []
    plans, place = [Plan.model_validate(synthetic.position())], Place(runs, None)
    for count, answer in ((1, "to train on this machine, by process"), (1, f"process {os.getpid()} of an earlier")):
        assert answer in submit.start_here(plans, place, TOY, ["*"])
        assert len(started) == count
    monkeypatch.setattr(lease, "start_time", lambda pid: "1")
    ended = lease.own_lease().content()
    store.write_json(started[0].folder / lease.NAME, ended)
    submit.start_here(plans, place, TOY, ["*"])
    assert len(started) == 2


def test_process_of_this_machine_has_no_pipe_of_the_command(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads what the command prints would wait until all trials are done."""
    missing(runs)
    monkeypatch.setattr(local, "start", lambda array: subprocess.run(["echo", "begun"]) and os.getpid())
    submit.start_here([Plan.model_validate(synthetic.position())], Place(runs, None), TOY, ["*"])
    (log,) = runs.glob("submissions/*/arrays/*/process.log")
    assert log.read_text() == "begun\n"


TASK = """
import os, signal, time
def main(path):
    signal.signal(signal.SIGTERM, lambda *_: os.rename(path, path + ".ended"))
    with open(path + ".new", "w") as file:
        file.write(os.environ["CUDA_VISIBLE_DEVICES"])
    os.rename(path + ".new", path)
    while not os.path.exists(path + ".ended"):
        time.sleep(0.1)
"""


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # submitit never waits for its process
def test_task_on_this_machine_has_the_commands_gpus_and_gets_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where `sh` is bash, which replaces itself by the last command."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sh").symlink_to(shutil.which("bash") or "/bin/bash")
    (tmp_path / "code").mkdir()
    (tmp_path / "code/trained.py").write_text(TASK)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    file = tmp_path / "gpus"
    profile = Profile(gpus=2, time=5)
    array = JobArray(tmp_path / "array", "tag", "trained:main", [str(file)], profile, tmp_path / "code")
    process = local.start(array)
    wait_until(file.exists, "the task", PATIENCE)
    assert file.read_text() == "2,3"
    os.kill(process, signal.SIGTERM)
    wait_until((tmp_path / "gpus.ended").exists, "the end of the task", PATIENCE)


def test_stopped_task_on_this_machine_asks_slurm_nothing(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its process ended by SIGTERM, and no job of SLURM was cancelled."""
    array = write_array(submitted(runs, cluster=campaigns.LOCAL), 1)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(runner, "pull", lambda *_, **__: runner.RunSummary(stopped=True, left=2))
    assert node.work(str(array)) == 0
    assert "0 done here, 0 failed, 0 interrupted, 2 left" in capsys.readouterr().out


@pytest.mark.parametrize("given", ["../runs", "link/../runs"])
def test_tasks_find_their_code_below_a_folder_that_is_named_with_dots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """Python drops them from PYTHONPATH, without a look at links."""
    for folder in ("here", "there/deep"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    Path("link").symlink_to(tmp_path / "there/deep")
    place = make_place(Path(given), None, None)
    campaign = place.runs / "submissions/0"
    campaign.mkdir(parents=True)
    assert place.runs.samefile(given)
    (campaign / "code").symlink_to(provenance.HOME)
    array = JobArray(
        campaign, "tag", "commonfloor.files:sync_folder", [str(campaign)], TOY, campaign / "code", persistent=True
    )
    script = [*slurm_arrays.setup_lines(array), slurm_arrays.command(array)]
    done = subprocess.run(["bash", "-c", "\n".join(script)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_pool_that_is_called_off_stops(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "CALLED_OFF_SECONDS", 0.0)
    first = submitted(runs).jobs()[0]
    job = replace(first, config=first.config | {"device": "cpu"})
    tally = runner.pull([job], Place(runs, None), "task", 1, called_off=lambda: True)
    assert tally.stopped
    assert not tally.done
    assert store.trial(runs, job.id).state().status == "missing"


def test_array_without_an_intent_is_passed_over(runs: Path) -> None:
    """SLURM refused it just now, or a launcher was killed before it wrote the intent."""
    campaign = submitted(runs)
    kept, refused = (write_array(campaign, number) for number in (1, 2))
    (refused / "intent.json").rename(refused / "refused.json")
    assert [array.folder for array in arrays.task_arrays(campaign)] == [kept]


def test_submission_that_gives_up_says_so_until_it_is_submitted_again(runs: Path) -> None:
    """After five rounds without progress `status` shows the last line of the newest task that printed any."""
    campaign = submitted(runs)
    for number in range(1, 7):  # the user submits the first, and last jobs the others
        array = write_array(campaign, number, arrays.progress(campaign) if number > 1 else ())
        assert seen(runs).given_up == ""
        assert arrays.is_stalled(campaign) is (number == 6)
    (array / "logs/7_0_0_log.out").write_text("begin\nslurmstepd: error: no such module\n\n")
    arrays.give_up(campaign)
    view = seen(runs)
    assert is_settled([view])
    end = "the newest task's log ends with: slurmstepd: error: no such module"
    assert f"given up after 5 rounds without progress; {end}" in render([view]).plain
    write_array(campaign, 7)
    assert not arrays.is_stalled(campaign)


def test_logs_are_those_of_the_newest_task_that_printed_any(runs: Path) -> None:
    campaign = submitted(runs)
    written = [write_array(campaign, number) for number in (1, 2, 3)]
    (written[1] / "logs/5_0_0_log.out").write_text("what went wrong\n")
    (tail,) = cleaning.tails(runs, [campaign.jobs()[0].id], 5, False)
    assert str(tail).endswith(f"its task:  {written[1]} (newer tasks that printed nothing: 1)\nwhat went wrong")
    assert (tail.path, tail.of, tail.lines) == (str(written[1]), "task", ["what went wrong"])


def test_failed_logs_show_tasks_that_died_before_a_trial_began(runs: Path) -> None:
    """A task that has begun leaves a mark, and its log is shown only without --failed."""
    shutil.rmtree(runs / "trials", ignore_errors=True)
    campaign = submitted(runs)
    array = write_array(campaign, 1)
    ids = [job.id for job in campaign.jobs()]
    assert list(cleaning.tails(runs, ids, 5, only_failed=True)) == []
    (array / "logs/5_0_0_log.out").write_text("python: not found\n")
    (tail,) = cleaning.tails(runs, ids, 5, only_failed=True)
    assert (tail.of, tail.lines) == ("task", ["python: not found"])
    (array / "nodes").mkdir()
    assert list(cleaning.tails(runs, ids, 5, only_failed=True)) == []
    assert len(list(cleaning.tails(runs, ids, 5, only_failed=False))) == 1


@pytest.mark.parametrize("answers", [True, False])
def test_status_says_that_nothing_is_queued(runs: Path, monkeypatch: pytest.MonkeyPatch, answers: bool) -> None:
    """It names a failed task with its exit code in words, and says what to do without accounting too."""
    shutil.rmtree(runs / "trials", ignore_errors=True)
    write_array(submitted(runs), 1)
    past = [queue.PastJob(12, 3, "FAILED", "node7", "0:53")]
    monkeypatch.setattr(queue, "jobs", lambda *_, **__: [])
    monkeypatch.setattr(queue, "accounting", lambda *_, **__: past if answers else None)
    shown = render([seen(runs, slurm_answers.ask_slurm(runs))]).plain
    assert ("FAILED on node7 (exit code 0:53: the node could not start it" in shown) is answers
    assert ("job 12_3" in shown) is answers
    assert ("no task is queued or runs" in shown) is not answers
    assert "to continue: give the same `ablate submit` again" in shown


def test_status_names_a_few_of_many_failed_tasks(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(runs / "trials", ignore_errors=True)
    write_array(submitted(runs), 1)
    past = [queue.PastJob(12, number, "FAILED", f"node{number}", "1:0") for number in range(500)]
    monkeypatch.setattr(queue, "jobs", lambda *_, **__: [])
    monkeypatch.setattr(queue, "accounting", lambda *_, **__: past)
    shown = render([seen(runs, slurm_answers.ask_slurm(runs))]).plain
    assert "FAILED on node2 (exit code 1:0), job 12_2; and 497 more\n" in shown
    assert max(map(len, shown.splitlines())) < 200


def test_task_with_a_failed_trial_fails_for_slurm(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit status makes the task FAILED in squeue and sacct."""
    array = write_array(submitted(runs), 1)
    for tally, expected in ((runner.RunSummary(failed={"a": "b"}), 1), (runner.RunSummary(done=["a"]), 0)):
        monkeypatch.setattr(runner, "pull", lambda *_, tally=tally, **__: tally)
        assert node.work(str(array)) == expected


def test_watching_ends_when_the_tables_are_there_or_nobody_writes_them(runs: Path) -> None:
    """After the trials a last job, if there is one, writes tables and report."""
    synthetic.write(runs, synthetic.position())
    with_last = slurm_answers.SlurmAnswers(plans={POSITION}, awaited_plans={POSITION})
    for known, answer in ((with_last, "awaited"), (replace(with_last, awaited_plans=()), "pending")):
        view = seen(runs, known)
        assert (view.tables, is_settled([view])) == (answer, answer == "pending")
        assert f"tables    {answer}" in render([view]).plain
    report.publish_all(runs, [POSITION])
    view = seen(runs, with_last)
    assert (view.tables, is_settled([view])) == ("written", True)


def test_study_with_settings_is_found_without_them_where_it_is_the_only_one() -> None:
    assert plan_files.select_names(["s@r+aa"], ["s@r"], Path("runs")) == ["s@r+aa"]
    assert plan_files.select_names(["a@b@r+aa"], ["a@b"], Path("runs")) == ["a@b@r+aa"]
    for plans, name in ((["s@r+aa", "s@r+bb"], "s@r"), (["s@r+aa"], "s@q")):
        with pytest.raises(ValueError, match=f"no study '{name}'"):
            plan_files.select_names(plans, [name], Path("runs"))


def test_what_tables_name_of_a_resumed_trial_is_no_waste(tmp_path: Path) -> None:
    """Its checkpoints are, and the weights of an attempt that was killed before it published."""
    trial = store.trial(tmp_path, "0" * 12)
    trial.create({"config": {}})
    for device in ("A100", "H100"):
        with synthetic.claimed(trial) as attempt:
            attempt.write_env({"device": device})
            attempt.checkpoint()
            attempt.save_checkpoint(3, b"state")
    attempt.publish({"status": "finished", "metrics": {}})
    first = trial.attempts()[0]
    left = [first / name for name in ("weights.safetensors", ".weights.safetensors.0123", "checkpoints/left")]
    for path in left:
        store.write_bytes(path, b"left")
    waste = cleaning.find_waste(tmp_path, [], "all")
    assert {one.path for one in waste} == {*left[:2], first / "checkpoints"}
    cleaning.remove(waste, tmp_path)
    assert record.read(tmp_path, trial.id, ["provenance"]).values["device"] == "A100 then H100"


@pytest.mark.parametrize("spared", ["another host", "an old result", ""])
def test_attempts_are_waste_only_where_nobody_can_need_them(tmp_path: Path, spared: str) -> None:
    trial = store.trial(tmp_path, "0" * 12)
    trial.create({"config": {}})
    for last in (False, True):
        with synthetic.claimed(trial) as attempt:
            if last:
                attempt.publish({"status": "finished", "metrics": {}})
    old = trial.attempts()[0]
    if spared == "another host":
        (old / lease.RELEASED).unlink()
        store.write_json(old / lease.NAME, lease.own_lease().content() | {"host": "elsewhere"})
        os.utime(old / lease.NAME, (0, 0))
    elif spared:
        store.write_json(old / store.RETRIED, {})
    assert [one.path for one in cleaning.find_waste(tmp_path, [], "all")] == ([] if spared else [old])


def test_a_submission_that_was_killed_while_it_was_written_is_waste_a_day_later(tmp_path: Path) -> None:
    partial = tmp_path / "submissions" / ".20261129-120000-0123abcd"
    store.write_bytes(partial / "code" / "vitcore" / "config.py", b"half")
    assert cleaning.find_waste(tmp_path, [], "all") == []
    os.utime(partial, (0, 0))
    waste = cleaning.find_waste(tmp_path, [], "all")
    assert [(one.path, one.bytes) for one in waste] == [(partial, 4)]
    cleaning.remove(waste, tmp_path)
    assert not partial.exists()


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[JobArray]:
    """Record the arrays of checks instead of submitting them."""
    found: list[JobArray] = []
    monkeypatch.setattr(submit, "preflight", lambda profile, runs: None)
    monkeypatch.setattr(slurm_arrays, "run", lambda array, seconds: found.append(array))
    return found


def test_check_waits_for_an_answer_that_is_not_seen_yet(
    runs: Path, slurm: Queue, checked: list[JobArray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job may have ended before its log is visible. A node that cannot compile is only a warning."""
    warning = "warning torch.compile: no C compiler; long trials are trained uncompiled"

    def later(seconds: float) -> None:
        (checked[0].folder / "logs").mkdir(parents=True)
        (checked[0].folder / "logs/1_log.out").write_text(f"ok      gpu\n{warning}\n{submit.LAST_LINE}\n")

    monkeypatch.setattr(submit, "time", SimpleNamespace(monotonic=time.monotonic, sleep=later))
    assert submit.check(TOY, Place(runs, None)) == (["ok      gpu", warning], True)
    assert not list((runs / "submissions").iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_check_that_is_cut_short_leaves_nothing(
    runs: Path, slurm: Queue, checked: list[JobArray], monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def interrupt(seconds: float) -> None:
        slurm.names = [checked[0].tag, "ablate:other:0001"]
        raise error

    monkeypatch.setattr(submit, "time", SimpleNamespace(monotonic=time.monotonic, sleep=interrupt))
    with pytest.raises(error):
        submit.check(TOY, Place(runs, None))
    assert slurm.names == ["ablate:other:0001"]
    assert not list((runs / "submissions").iterdir())


def test_check_of_a_node_prints_a_line_a_check(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_compiler(needs_gpu: bool) -> None:
        raise ValueError("no \x1b compiler")

    checks = {
        "imports": NodeCheck(lambda needs_gpu: None),
        "compile": NodeCheck(no_compiler, "slower"),
        "gpu": NodeCheck(no_compiler),
    }
    monkeypatch.setattr(node, "checks", lambda campaign: checks)
    assert node.check_node(str(write_array(submitted(runs), 1))) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok      imports",
        r"warning compile: ValueError: no \x1b compiler; slower",
        r"FAILED  gpu: ValueError: no \x1b compiler",
        node.LAST_LINE,
    ]
