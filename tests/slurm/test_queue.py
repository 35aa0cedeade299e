"""Queue, accounting and limits of a real SLURM: hostile names and paths, ended jobs, full queues, silence."""

import os
from pathlib import Path

import pytest
from hostile import CANARY, TEXTS
from waits import await_empty_queue

from slurm.devcluster import Cluster, until
from slurm.profiles.profile import Profile, submitit_parameters
from slurm.queries import limits, queue
from slurm.queries.ask import NoSlurm, Unreachable
from slurm.submission import arrays

TAG = "ablate:20260101-000000-0123abcd:0001"
PLAIN = Profile(partition="main", gpus=0)


def test_hostile_names_hide_no_job_and_make_none(here: Cluster) -> None:
    """Among jobs with hostile names and comments, each job with our tag is found once, and no text is executed."""
    array = here.sbatch("--hold", "--array=0-2", f"--job-name={TAG}", "--wrap=true")
    renamed = here.sbatch("--hold", "--job-name=renamed", f"--comment={TAG}", "--wrap=true")
    taken = 0
    forged = ["\x1e" + "\x1f".join([job_id, *"12345678", "ablate:forged"]) for job_id in (str(array), "x")]
    for text in [text for text in TEXTS if "\0" not in text and text.isascii() and len(text) < 1000] + forged:
        done = here.run("sbatch", "--hold", f"--job-name={text}", f"--comment={text}", "--wrap=true", check=False)
        taken += done.returncode == 0
    assert taken >= 40
    found = queue.jobs("ablate:")
    mine = [(job.job_id, job.index, job.state) for job in found if job.tag == TAG]
    assert mine == [*((array, index, "PENDING") for index in range(3)), (renamed, None, "PENDING")]
    assert all(job.reason == "JobHeldUser" for job in found if job.tag == TAG)
    assert not list(here.folder.rglob(CANARY))


def refused(folder: Path, tag: str) -> str:
    """Submit a task that makes `folder`/ran; return why it was refused, or ""."""
    chosen = submitit_parameters(Profile(partition="main", gpus=0, memory="100M", time=1), tag)
    tasks = arrays.Tasks("os:mkdir", [str(folder / "ran")], [[]])
    try:
        arrays.send(folder / "submissions" / "0001", tag, tasks, chosen, Path(__file__).parents[2])
    except ValueError as error:
        return str(error)
    return ""


def test_tasks_run_in_directories_of_hostile_names(
    tmp_path: Path, here: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each directory that is not refused, the task runs and leaves its log, and nothing else is made."""
    monkeypatch.chdir(tmp_path)
    names = [text for text in TEXTS if not {*"/\0"} & {*text} and 0 < len(text) < 200 and text not in (".", "..")]
    why = {name: refused(tmp_path / name, f"ablate:hostile:{number:04d}") for number, name in enumerate(names)}
    assert all(line.isprintable() and "SLURM needs a run directory without" in line for line in why.values() if line)
    taken = [name for name, line in why.items() if not line]
    assert len(taken) >= 40
    assert not [name for name in taken if "%" in name or "\n" in name]
    await_empty_queue(here, 300)
    assert sorted(os.listdir(tmp_path)) == sorted(taken)
    for name in taken:
        assert sorted(os.listdir(tmp_path / name)) == ["ran", "submissions"], name
        array = tmp_path / name / "submissions" / "0001"
        assert {path.name for path in array.iterdir()} == {"intent.json", "script.sh", "ack.json", "logs"}
        assert list(array.glob("logs/*_0_0_log.out")), name
    assert not list(here.folder.rglob(CANARY))


def test_an_ended_job_says_how_and_where(here: Cluster) -> None:
    """Array elements that failed, or were cancelled while or before they ran, are found by their tag alone."""
    tag = TAG.replace("0001", "0002")
    ended = here.sbatch("--array=0-1", f"--job-name={tag}", "--output=/dev/null", "--wrap=exit $SLURM_ARRAY_TASK_ID")
    until(lambda: not here.state(f"{ended}_1") or here.state(f"{ended}_1") == "FAILED", "its end")
    waits = here.sbatch("--array=0-6%2", f"--job-name={tag}", "--output=/dev/null", "--wrap=sleep 100")
    here.sbatch(f"--job-name={tag}0", "--output=/dev/null", "--wrap=true")

    def places() -> dict[int | None, str]:
        return {job.index: job.node for job in queue.accounting([tag]) or [] if job.job_id == waits}

    # Cancelled before the accounting has its start, an element has no node there.
    until(lambda: places().get(0) and places().get(1), "two running elements on record")
    here.run("scancel", str(waits))

    def fates() -> dict[tuple[int, int | None], str]:
        return {(job.job_id, job.index): job.state for job in queue.accounting([tag]) or []}

    until(lambda: len(fates()) == 9 and "RUNNING" not in fates().values(), "the accounting")
    cancelled = dict.fromkeys([(waits, index) for index in range(7)], "CANCELLED by 0")
    assert fates() == {(ended, 0): "COMPLETED", (ended, 1): "FAILED"} | cancelled
    nodes = places()
    assert [bool(nodes[index]) for index in range(7)] == [True, True, *[False] * 5]
    assert queue.accounting(["ablate:of:nobody"]) == []


@pytest.mark.parametrize(
    ("index", "known"),
    [("", [None]), ("7", [7]), ("[2-4,8%2]", [2, 3, 4, 8]), ("[0]", [0]), ("[1,3,...]", [1, 3])],
)
def test_elements_that_share_a_record(index: str, known: list[int | None]) -> None:
    """Array elements are parsed as in `man sacct`; an index that SLURM cut short is left out."""
    assert queue.elements(index) == known


def admits(cluster: Cluster, jobs: int) -> bool:
    """Return whether SLURM accepts an array of so many jobs."""
    done = cluster.run("sbatch", "--hold", f"--array=0-{jobs - 1}", "--wrap=true", check=False)
    return done.returncode == 0


def test_slurm_accepts_as_many_jobs_as_the_account_has_left(here: Cluster) -> None:
    assert limits.limits(PLAIN).bound is None
    here.limit_submissions(7)
    here.sbatch("--hold", "--array=0-1", "--wrap=true")
    found = limits.limits(PLAIN)
    assert found.bound == limits.Bound("MaxSubmitJobs of account lab", 7, 2)
    assert found.max_array_size == 1001
    assert not admits(here, 6)
    assert admits(here, 5)
    assert limits.limits(PLAIN).bound.free == 0


def test_slurm_accepts_as_many_jobs_as_the_qos_has_left(here: Cluster) -> None:
    """MaxSubmitJobsPerUser=4 of the QOS is tighter than the account's 7, even before its first job."""
    here.limit_submissions(7)
    here.run("sacctmgr", "-iQ", "modify", "qos", "normal", "set", "MaxSubmitJobsPerUser=4")
    try:
        until(lambda: limits.limits(PLAIN).bound.free == 4, "the limit")
        assert not admits(here, 5)
        assert admits(here, 3)
        assert limits.limits(PLAIN).bound.free == 1
    finally:
        here.run("sacctmgr", "-iQ", "modify", "qos", "normal", "set", "MaxSubmitJobsPerUser=-1")


def test_silence_is_never_an_empty_queue(here: Cluster) -> None:
    here.sbatch("--hold", f"--job-name={TAG}", "--wrap=true")
    here.kill("slurmdbd")
    assert queue.accounting([TAG], timeout=5) is None
    assert len(queue.jobs(TAG)) == 1
    assert limits.limits(PLAIN).max_array_size == 1001
    here.kill("slurmctld")
    for question in (lambda: queue.jobs(TAG, timeout=5), lambda: queue.cancel(TAG), lambda: limits.limits(PLAIN)):
        with pytest.raises(Unreachable):
            question()


def test_without_slurm_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoSlurm, match="no command 'squeue'"):
        queue.jobs(TAG)
    assert queue.accounting([TAG]) is None
    assert os.listdir(tmp_path) == []
