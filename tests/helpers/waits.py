"""A dev cluster's queue, and what tests wait for: results, a report, an empty queue."""

from pathlib import Path

from small_study import logs, results

from slurm.devcluster import Cluster, until


def queued(cluster: Cluster, form: str = "%i %T", *options: str) -> list[str]:
    """Return a line of the queue for each job, or for each array of waiting jobs."""
    return cluster.run("squeue", "--noheader", f"--format={form}", *options).stdout.splitlines()


def close(cluster: Cluster) -> None:
    """Let no further job start. The fixture `cluster` undoes it at the end of a test."""
    cluster.run("scontrol", "update", "PartitionName=main", "State=DOWN")


def reopen(cluster: Cluster) -> None:
    cluster.run("scontrol", "update", "PartitionName=main", "State=UP")


def await_empty_queue(cluster: Cluster, seconds: float = 60) -> None:
    until(lambda: not queued(cluster), "an empty queue", seconds)


def await_results(runs: Path, number: int, seconds: float = 240) -> None:
    """Wait until so many trials are over."""
    try:
        until(lambda: len(results(runs)) == number, f"{number} results", seconds)
    except TimeoutError as error:
        raise TimeoutError(f"{error} (logs: {logs(runs)})") from None


def await_report(runs: Path, seconds: float = 200) -> None:
    until(lambda: (runs / "report.html").exists(), f"the report of {runs}", seconds)


def await_training(runs: Path, seconds: float = 120) -> None:
    until(lambda: any(runs.glob("trials/*/attempts/0001/metrics.jsonl")), f"a training (logs: {logs(runs)})", seconds)
