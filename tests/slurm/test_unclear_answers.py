"""SLURM behind a site's wrappers: banners, exit statuses and silences that do not show what slurmctld did."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from in_process import called
from small_study import CANCEL, PROFILE, SUBMIT, Ablate, Wrap, results, trials, write
from waits import await_report, close, reopen

from slurm.devcluster import Cluster, until
from slurm.profiles.profile import Profile, submitit_parameters
from slurm.queries import limits, partitions, queue
from slurm.queries.ask import Refused, Unreachable
from slurm.submission import arrays, executor, intent

ROOT = Path(__file__).parents[2]
CHEAP = Profile(partition="main", gpus=0, memory="100M", time=1)
BANNER = 'echo "** Maintenance on 12/24: job 99 and all others end; quota=12 **"'


def send(folder: Path, profile: Profile = CHEAP) -> int:
    """Submit a task that makes `folder`/ran, and fails if that exists; return the job id."""
    tag = f"ablate:{folder.name}:0001"
    tasks = arrays.Tasks("os:mkdir", [str(folder / "ran")], [[]])
    return arrays.send(folder / "array", tag, tasks, submitit_parameters(profile, tag), ROOT)


@pytest.mark.parametrize(
    "sbatch",
    [
        f"{BANNER}; REAL; {BANNER}",
        f"{BANNER} >&2; REAL; echo 'sbatch: error: wrapper: cannot write the accounting log' >&2; exit 1",
        "REAL; exit 1",
        "REAL > /dev/null",
        "REAL | sed 's/Submitted batch job/Thank you for/'",
        "REAL > /dev/null; exec sleep 100",
        "REAL; echo 'fatal: slurm.conf has changed' >&2; exit 1",
    ],
)
def test_accepted_array_is_known_whatever_sbatch_then_says(
    tmp_path: Path, cluster: Cluster, wrap: Wrap, monkeypatch: pytest.MonkeyPatch, sbatch: str
) -> None:
    """Its id comes from the queue, its intent stays, and its task runs once."""
    monkeypatch.setattr(executor, "SBATCH_SECONDS", 3.0)
    wrap("sbatch", sbatch)
    job_id = send(tmp_path)
    assert [job.job_id for job in queue.jobs(f"ablate:{tmp_path.name}:", ended=True)] == [job_id]
    assert intent.read(tmp_path / "array").function == "os:mkdir"
    until(lambda: cluster.state(job_id) == "COMPLETED", "the end of the task", 60)
    assert (tmp_path / "ran").is_dir()


def test_refusal_of_slurmctld_is_told_from_a_wrappers(
    tmp_path: Path, cluster: Cluster, wrap: Wrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmctld's refusal withdraws the intent; a wrapper's keeps it, and the error says that no job is queued."""
    monkeypatch.setattr(intent, "SETTLE_SECONDS", 2.0)
    wrap("sbatch", f"{BANNER} >&2; REAL")
    with pytest.raises(Refused, match=r"^Batch job submission failed: Invalid account"):
        send(tmp_path / "slurmctld", CHEAP.model_copy(update={"account": "nobody"}))
    assert (tmp_path / "slurmctld/array/refused.json").exists()
    wrap("sbatch", "echo 'your project has expired' >&2; exit 1")
    with pytest.raises(Unreachable, match="your project has expired; the queue does not have the job: submit again"):
        send(tmp_path / "wrapper")
    assert intent.read(tmp_path / "wrapper/array").function == "os:mkdir"


@pytest.mark.parametrize("squeue", [BANNER, "exit 0", "REAL; exit 1", "echo 'try later' >&2; exit 1"])
def test_squeue_that_lists_nothing_is_no_empty_queue(cluster: Cluster, wrap: Wrap, squeue: str) -> None:
    wrap("squeue", squeue)
    with pytest.raises(Unreachable, match="SLURM does not answer: squeue"):
        queue.jobs("ablate:")


def test_banners_change_nothing_that_is_known_of_jobs_and_cluster(cluster: Cluster, wrap: Wrap) -> None:
    def known() -> tuple[object, ...]:
        records = limits.records()
        own = limits.accounts(records), limits.all_qualities(records), limits.qualities(CHEAP, "lab")
        found = [(job.job_id, job.index, job.tag) for job in queue.jobs("ablate:")]
        return found, partitions.nodes(), partitions.states(["main"]), own, limits.limits(CHEAP)

    tag = "ablate:banner:0001"
    held = cluster.sbatch("--hold", "--array=0-1", f"--job-name={tag}", f"--comment={tag}", "--wrap=true")
    cluster.limit_submissions(7)
    plain = known()
    assert plain[0] == [(held, 0, tag), (held, 1, tag)]
    for name in ("squeue", "scontrol", "sacctmgr", "sinfo"):
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
def closed(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the folder of a small study, the working directory; the cluster accepts jobs and starts none."""
    write(tmp_path, steps=50, seeds=1, profile=PROFILE)
    monkeypatch.chdir(tmp_path)
    close(cluster)
    yield tmp_path
    called(monkeypatch, *CANCEL)


# Only the last job's script has a dependency; this sends it to an account that does not exist.
REFUSED_LAST = 'if grep -qs afterany "$1"; then set -- --account=nobody "$@"; fi; REAL'
LOST_LAST = 'if grep -qs afterany "$1"; then exec sleep 100; fi; REAL'


@pytest.mark.parametrize(("sbatch", "why"), [(REFUSED_LAST, "Invalid account"), (LOST_LAST, "took longer than 3 s")])
def test_missing_last_job_is_told_beside_the_queued_trials(
    closed: Path, cluster: Cluster, wrap: Wrap, monkeypatch: pytest.MonkeyPatch, sbatch: str, why: str
) -> None:
    """The status is 0, because tasks submit a last job when they begin: the study ends with its report."""
    monkeypatch.setattr(executor, "SBATCH_SECONDS", 3.0)
    monkeypatch.setattr(intent, "SETTLE_SECONDS", 2.0)
    wrap("sbatch", sbatch)
    status, output, errors = called(monkeypatch, *SUBMIT)
    assert (status, errors) == (0, "")
    assert "2 submitted in 1 arrays" in output
    assert "the trials are queued, but no last job is" in output
    assert why in output
    wrap("sbatch", "REAL")
    reopen(cluster)
    await_report(closed / "runs")


def test_trials_that_were_taken_are_told_beside_an_error(
    closed: Path, cluster: Cluster, wrap: Wrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two arrays is refused: status 2, and the message counts the queued trials."""
    monkeypatch.setattr(limits, "limits", lambda profile: limits.Limits(1, None))
    wrap("sbatch", 'case "$1" in */0002/*) set -- --account=nobody "$@";; esac; REAL')
    write(closed, steps=50, seeds=1, profile=PROFILE.replace("0.2", "0.001"))
    status, output, errors = called(monkeypatch, *SUBMIT)
    assert (status, output) == (2, "")
    assert "Invalid account" in errors
    assert "1 trials are queued, `ablate submit` adds the rest" in errors


def test_study_behind_wrappers_ends(tmp_path: Path, ablate: Ablate, wrap: Wrap) -> None:
    """Every sbatch fails after slurmctld accepted the job, even on nodes: each trial is trained once."""
    write(tmp_path, steps=50, seeds=1, profile=PROFILE)
    wrap("sbatch", f"{BANNER}; REAL; exit 1")
    wrap("squeue", f"{BANNER}; REAL")
    ablate(*SUBMIT)
    runs = tmp_path / "runs"
    await_report(runs)
    assert len(results(runs)) == 2
    assert [len(trial.attempts()) for trial in trials(runs)] == [1, 1]
