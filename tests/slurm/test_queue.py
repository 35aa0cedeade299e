"""Queue, accounting and limits of a real SLURM: hostile names, full queues, wrappers of its commands, silence."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from devcluster import Cluster, wait_until
from hostile import CANARY, TEXTS
from in_process import called
from small_study import CANCEL, SUBMIT, Ablate, Wrap, results, trials, write
from waits import await_empty_queue, await_report, await_results, reopen

from slurm import arrays, ask, partitions, queue
from slurm.arrays import JobArray
from slurm.ask import Refused, Unreachable
from slurm.profile import Profile

TAG = "ablate:20260101-000000-0123abcd:0001"
ROOT = Path(__file__).parents[2]
CHEAP = Profile(partition="main", gpus=0, memory="100M", time=1)


def send(folder: Path, profile: Profile = CHEAP, tag: str = "") -> int:
    """Submit a task that makes `folder`/ran, and fails if that exists; return the job id."""
    tag = tag or f"ablate:{folder.name}:0001"
    return arrays.submit(JobArray(folder / "array", tag, "os:mkdir", [str(folder / "ran")], profile, ROOT))


def test_hostile_names_hide_no_job_and_make_none(here: Cluster) -> None:
    """Among jobs with hostile names and comments, each job with our tag is found once, and no text is executed."""
    array = here.sbatch("--hold", "--array=0-2", f"--job-name={TAG}", "--wrap=true")
    labelled = here.sbatch("--hold", f"--job-name=study:{TAG}", "--wrap=true")
    taken = 0
    forged = ["\x1e" + "\x1f".join([job_id, *"12345678", "ablate:forged"]) for job_id in (str(array), "x")]
    for text in [text for text in TEXTS if "\0" not in text and text.isascii() and len(text) < 1000] + forged:
        done = here.run("sbatch", "--hold", f"--job-name={text}", f"--comment={text}", "--wrap=true", check=False)
        taken += done.returncode == 0
    assert taken >= 40
    found = queue.jobs("ablate:")
    mine = [(job.job_id, job.index, job.state) for job in found if job.tag == TAG]
    assert mine == [*((array, index, "PENDING") for index in range(3)), (labelled, None, "PENDING")]
    assert all(job.reason == "JobHeldUser" for job in found if job.tag == TAG)
    assert not list(here.folder.rglob(CANARY))


def test_tasks_run_in_folders_of_hostile_names(tmp_path: Path, here: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each directory that is not refused, the task runs and leaves its log, and nothing else is made."""
    monkeypatch.chdir(tmp_path)
    names = [text for text in TEXTS if not {*"/\0"} & {*text} and 0 < len(text) < 200 and text not in (".", "..")]
    taken, problems = [], []
    for number, name in enumerate(names):
        try:
            send(tmp_path / name, tag=f"ablate:hostile:{number:04d}")
            taken.append(name)
        except ValueError as error:
            problems.append(str(error))
    assert all(line.isprintable() and "SLURM needs a run directory without" in line for line in problems)
    assert len(taken) >= 40
    assert not [name for name in taken if "%" in name or "\n" in name]
    await_empty_queue(here, 300)
    assert sorted(os.listdir(tmp_path)) == sorted(taken)
    for name in taken:
        assert sorted(os.listdir(tmp_path / name)) == ["array", "ran"], name
        array = tmp_path / name / "array"
        assert {path.name for path in array.iterdir()} == {"script.sh", "logs"}
        assert list(array.glob("logs/*_log.out")), name
    assert not list(here.folder.rglob(CANARY))


def test_an_ended_job_says_how_and_where(here: Cluster) -> None:
    """Array elements that failed, or were cancelled while or before they ran, are found by their tag alone."""
    tag = TAG.replace("0001", "0002")
    ended = here.sbatch("--array=0-1", f"--job-name={tag}", "--output=/dev/null", "--wrap=exit $SLURM_ARRAY_TASK_ID")
    wait_until(lambda: not here.state(f"{ended}_1") or here.state(f"{ended}_1") == "FAILED", "its end")
    waits = here.sbatch("--array=0-6%2", f"--job-name={tag}", "--output=/dev/null", "--wrap=sleep 100")
    here.sbatch(f"--job-name={tag}0", "--output=/dev/null", "--wrap=true")

    def fates() -> dict[tuple[int, int | None], tuple[str, bool]]:
        """Return the state of each element, and whether it had a node."""
        return {(job.job_id, job.index): (job.state, bool(job.node)) for job in queue.accounting([tag]) or []}

    # Cancelled before the accounting has its start, an element has no node there.
    wait_until(lambda: {fates().get((waits, index)) for index in (0, 1)} == {("RUNNING", True)}, "two running elements")
    here.run("scancel", str(waits))
    wait_until(lambda: len(fates()) == 9 and ("RUNNING", True) not in fates().values(), "the accounting")
    cancelled = {(waits, index): ("CANCELLED by 0", index < 2) for index in range(7)}
    assert fates() == {(ended, 0): ("COMPLETED", True), (ended, 1): ("FAILED", True)} | cancelled
    assert queue.accounting(["ablate:of:nobody"]) == []


@pytest.mark.parametrize(
    ("index", "known"),
    [
        ("", [None]),
        ("7", [7]),
        ("[2-4,8%2]", [2, 3, 4, 8]),
        ("[0]", [0]),
        ("[1,3,...]", [1, 3]),
        ("[0-12:6%4]", [0, 6, 12]),
        ("[1-3,5-...]", [1, 2, 3]),
    ],
)
def test_elements_that_share_a_record(index: str, known: list[int | None]) -> None:
    assert queue.task_indices(index) == known


def test_silence_is_never_an_empty_queue(here: Cluster) -> None:
    here.sbatch("--hold", f"--job-name={TAG}", "--wrap=true")
    here.kill("slurmdbd")
    assert queue.accounting([TAG], timeout=5) is None
    assert len(queue.jobs(TAG)) == 1
    here.kill("slurmctld")
    for question in (lambda: queue.jobs(TAG, timeout=5), lambda: queue.cancel(TAG), ask.cluster_name):
        with pytest.raises(Unreachable):
            question()


BANNER = 'echo "** Maintenance on 12/24: job 99 and all others end; quota=12 **"'


@pytest.mark.parametrize(
    "shell",
    [
        f"{BANNER}; REAL; {BANNER}",
        f"{BANNER} >&2; REAL; echo 'sbatch: error: wrapper: cannot write the accounting log' >&2; exit 1",
        "REAL > /dev/null",
        "REAL > /dev/null; exec sleep 100",
        "REAL; echo 'fatal: slurm.conf has changed' >&2; exit 1",
    ],
)
def test_accepted_array_is_known_whatever_sbatch_then_says(
    tmp_path: Path, cluster: Cluster, wrap: Wrap, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    """Its id comes from the queue, and its task runs once."""
    monkeypatch.setattr(arrays, "SBATCH_SECONDS", 3.0)
    wrap("sbatch", shell)
    job_id = send(tmp_path)
    assert [job.job_id for job in queue.jobs(f"ablate:{tmp_path.name}:", ended=True)] == [job_id]
    wait_until(lambda: cluster.state(job_id) == "COMPLETED", "the end of the task", 60)
    assert (tmp_path / "ran").is_dir()


def test_refusal_of_slurmctld_is_told_from_a_wrappers(
    tmp_path: Path, cluster: Cluster, wrap: Wrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a wrapper's refusal, the error says that no job is queued."""
    monkeypatch.setattr(arrays, "APPEAR_SECONDS", 2.0)
    wrap("sbatch", f"{BANNER} >&2; REAL")
    with pytest.raises(Refused, match=r"^Batch job submission failed: Invalid account"):
        send(tmp_path / "slurmctld", CHEAP.model_copy(update={"account": "nobody"}))
    wrap("sbatch", "echo 'your project has expired' >&2; exit 1")
    with pytest.raises(Unreachable, match="your project has expired; the queue does not have the job: submit again"):
        send(tmp_path / "wrapper")


@pytest.mark.parametrize("squeue", [BANNER, "exit 0", "REAL; exit 1", "echo 'try later' >&2; exit 1"])
def test_squeue_that_lists_nothing_is_no_empty_queue(cluster: Cluster, wrap: Wrap, squeue: str) -> None:
    wrap("squeue", squeue)
    with pytest.raises(Unreachable, match="SLURM does not answer: squeue"):
        queue.jobs("ablate:")


def test_banners_change_nothing_that_is_known_of_jobs_and_cluster(cluster: Cluster, wrap: Wrap) -> None:
    def known() -> tuple[object, ...]:
        found = [(job.job_id, job.index, job.tag) for job in queue.jobs("ablate:")]
        return found, partitions.nodes(), partitions.states(["main"]), ask.cluster_name()

    tag = "ablate:banner:0001"
    held = cluster.sbatch("--hold", "--array=0-1", f"--job-name={tag}", f"--comment={tag}", "--wrap=true")
    cluster.limit_submissions(7)
    plain = known()
    assert plain[0] == [(held, 0, tag), (held, 1, tag)]
    for name in ("squeue", "scontrol", "sinfo"):
        wrap(name, f"{BANNER}; {BANNER} >&2; REAL; {BANNER}")
    assert known() == plain


def test_failing_command_ends_no_job(cluster: Cluster, wrap: Wrap) -> None:
    tag = "ablate:cancelling:0001"
    cluster.sbatch("--hold", f"--job-name={tag}", "--wrap=true")
    wrap("scancel", "echo 'out of order' >&2; exit 1")
    with pytest.raises(Refused, match="out of order"):
        queue.cancel(tag)
    wrap("scancel", "REAL; sleep 1; REAL")
    assert queue.cancel(tag) == 1


@pytest.fixture
def study(tmp_path: Path, closed: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the working directory, which has a small study."""
    write(tmp_path, steps=50, seeds=1)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    called(monkeypatch, *CANCEL)


# Only the last job's script has a dependency; this sends it to an account that does not exist.
REFUSED_LAST = 'if grep -qs afterany "$1"; then set -- --account=nobody "$@"; fi; REAL'
LOST_LAST = 'if grep -qs afterany "$1"; then exec sleep 100; fi; REAL'


@pytest.mark.parametrize(("shell", "why"), [(REFUSED_LAST, "Invalid account"), (LOST_LAST, "took longer than 3 s")])
def test_missing_last_job_is_told_beside_the_queued_tasks(
    study: Path, closed: Cluster, wrap: Wrap, monkeypatch: pytest.MonkeyPatch, shell: str, why: str
) -> None:
    """The status is 0. After the tasks, the same command writes tables and report."""
    monkeypatch.setattr(arrays, "SBATCH_SECONDS", 3.0)
    monkeypatch.setattr(arrays, "APPEAR_SECONDS", 2.0)
    wrap("sbatch", shell)
    status, output, errors = called(monkeypatch, *SUBMIT)
    assert (status, errors) == (0, "")
    assert "2 submitted" in output or "1 submitted" in output
    assert "no last job is queued" in output
    assert why in output
    reopen(closed)
    await_results(study / "runs", 2)
    await_empty_queue(closed)
    assert "report written" in called(monkeypatch, *SUBMIT)[1]


def test_study_behind_wrappers_ends(tmp_path: Path, ablate: Ablate, wrap: Wrap) -> None:
    """Every sbatch fails after slurmctld accepted the job, even on nodes: each trial is trained once."""
    write(tmp_path, steps=50, seeds=1)
    wrap("sbatch", f"{BANNER}; REAL; exit 1")
    wrap("squeue", f"{BANNER}; REAL")
    ablate(*SUBMIT)
    runs = tmp_path / "runs"
    await_report(runs)
    assert len(results(runs)) == 2
    assert [len(trial.attempts()) for trial in trials(runs)] == [1, 1]
