"""A dev cluster's queue, and functions that wait for results, a report or an empty queue."""

from pathlib import Path

from small_study import results, trials

from slurm.devcluster import Cluster, wait_until


def published(runs: Path) -> list[int]:
    """Return the number of attempts with a result of each trial: 1, unless work was done twice."""
    return [sum((attempt / "result.json").exists() for attempt in trial.attempts()) for trial in trials(runs)]


def logs(runs: Path) -> str:
    """Return the ends of the newest logs, for the message of a test that fails."""
    found = sorted(runs.glob("submissions/*/arrays/*/logs/*"), key=lambda path: path.stat().st_mtime)
    return " | ".join(path.read_text()[-300:] for path in found[-4:])


def queued(cluster: Cluster, form: str = "%i %T", *options: str) -> list[str]:
    """Return a line of the queue for each job, or for each array of waiting jobs."""
    return cluster.run("squeue", "--noheader", f"--format={form}", *options).stdout.splitlines()


def close(cluster: Cluster) -> None:
    """Let no further job start. The fixture `cluster` undoes it at the end of a test."""
    cluster.run("scontrol", "update", "PartitionName=main", "State=DOWN")


def reopen(cluster: Cluster) -> None:
    cluster.run("scontrol", "update", "PartitionName=main", "State=UP")


def await_empty_queue(cluster: Cluster, seconds: float = 60) -> None:
    wait_until(lambda: not queued(cluster), "an empty queue", seconds)


def await_results(runs: Path, number: int, seconds: float = 240) -> None:
    """Wait until `number` trials are over."""
    try:
        wait_until(lambda: len(results(runs)) == number, f"{number} results", seconds)
    except TimeoutError as error:
        raise TimeoutError(f"{error} (logs: {logs(runs)})") from None


def await_report(runs: Path, seconds: float = 200) -> None:
    wait_until(lambda: (runs / "report.html").exists(), f"the report of {runs}", seconds)


def await_training(runs: Path) -> None:
    begun = "trials/*/attempts/0001/metrics.jsonl"
    wait_until(lambda: any(runs.glob(begun)), f"a training (logs: {logs(runs)})", 120)
