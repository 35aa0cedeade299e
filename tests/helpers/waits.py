"""A dev cluster's queue, and what tests wait for: results, a report, an empty queue."""

from pathlib import Path

from small_study import logs, results

from slurm.devcluster import Cluster, until


def queued(cluster: Cluster, form: str = "%i %T", *options: str) -> list[str]:
    """The queue, a line a job or an array of waiting ones."""
    return cluster.run("squeue", "--noheader", f"--format={form}", *options).stdout.splitlines()


def await_empty_queue(cluster: Cluster, seconds: float = 60) -> None:
    until(lambda: not queued(cluster), "an empty queue", seconds)


def close(cluster: Cluster) -> None:
    """Let no further job start. The fixture `cluster` undoes it at the end of a test."""
    cluster.run("scontrol", "update", "PartitionName=main", "State=DOWN")


def reopen(cluster: Cluster) -> None:
    cluster.run("scontrol", "update", "PartitionName=main", "State=UP")


def await_results(runs: Path, number: int, seconds: float = 240) -> None:
    """Wait until so many trials are over; else the error has the ends of the newest logs."""
    try:
        until(lambda: len(results(runs)) == number, f"{number} results", seconds)
    except TimeoutError as error:
        raise TimeoutError(f"{error} (logs: {logs(runs)})") from None


def await_report(runs: Path, seconds: float = 200) -> None:
    until(lambda: (runs / "report.html").exists(), f"the report of {runs}", seconds)
