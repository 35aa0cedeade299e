"""Disturbances of a submitted study: SIGKILLs of its processes, preemption of both kinds, restarts of slurmctld."""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

from devcluster import Cluster, wait_until
from devcluster.processes import Process, live_processes

from ablations.cluster.arrays import LAST, WATCH

MOST_KILLS = 2  # of a trial: the third attempt that ends without progress makes it fail
SAVED_SECONDS = 15.0  # sbatch takes up to ten; slurmctld writes down what it acknowledged within about five


class Storm:
    """Disturbances in random order. `strike` applies the next one that is possible now."""

    def __init__(self, cluster: Cluster, runs: Path, deck: dict[str, int]) -> None:
        self.cluster, self.runs, self.choose = cluster, runs, random.Random(0)
        self.deck, self.done = Counter(deck), Counter[str]()
        self.preempted = 0.0  # when an urgent job ended

    @property
    def fraction_dealt(self) -> float:
        return self.done.total() / (self.done + self.deck).total()

    def strike(self) -> None:
        found = processes(self.runs)
        kinds = {process.name for process in found}
        usual = [kind for kind in self.deck.elements() if kind not in ("last", "slurmctld")]
        if most_killed(self.runs) >= MOST_KILLS:
            usual = [kind for kind in usual if kind not in ("worker", "task")]
        possible = usual if {"worker", "task"} <= kinds else []
        if "last" in kinds:
            possible = ["last"] if self.deck["last"] else possible  # it lives for a second or two: no other meanwhile
        elif settled(self.runs) and time.time() - self.preempted > SAVED_SECONDS:
            possible += ["slurmctld"] * self.deck["slurmctld"]
        if not possible:
            return
        with contextlib.suppress(ProcessLookupError):  # gone meanwhile
            match kind := self.choose.choice(possible):
                case "slurmctld":
                    self.cluster.restart("slurmctld")
                case "REQUEUE" | "CANCEL":
                    self.preempt(kind)
                case _:
                    self.kill(kind, found)
            self.deck[kind] -= 1
            self.done[kind] += 1

    def kill(self, kind: str, found: list[Process]) -> None:
        """Kill a process of this kind; of a last job sometimes the shell around it, which ends the job.

        The shell of the only remaining job is spared, because no other job would write the report.
        """
        victim = self.choose.choice([process for process in found if process.name == kind])
        shell = kind == "last" and self.choose.random() < 0.3 and len(self.queue()) > 1
        os.kill(victim.parent if shell else victim.pid, signal.SIGKILL)

    def queue(self) -> list[str]:
        """Return state and name of the jobs that wait, run or complete, but for the urgent one."""
        form = "--format=%T %i %j"
        return self.cluster.run("squeue", "--noheader", "--array", "--partition=main", form).stdout.splitlines()

    def preempt(self, kind: str) -> None:
        """Let a more urgent job take both nodes for a moment."""
        self.cluster.run("scontrol", "update", "PartitionName=main", f"PreemptMode={kind}")
        account = ["--account=urgent"] if self.cluster.settings.accounting else []
        whole = ["--partition=urgent", "--exclusive", "--nodes=2", "--output=/dev/null", "--wrap=sleep 1"]
        urgent = self.cluster.sbatch(*account, *whole)
        wait_until(lambda: self.cluster.state(urgent) in ("COMPLETED", ""), "the urgent job", 300)
        self.preempted = time.time()  # a slurmctld killed before it saved this would believe that the job runs


def most_killed(runs: Path) -> int:
    """Return the largest number of attempts of an unfinished trial that run or were killed."""
    unfinished = [trial for trial in runs.glob("trials/*") if not (trial / "result.json").exists()]
    return max((len(list(trial.glob("attempts/*/lease.json"))) for trial in unfinished), default=0)


def resume(cluster: Cluster) -> None:
    """Resume nodes that SLURM drained itself, as it may after a SIGKILL of slurmctld."""
    for node in cluster.run("sinfo", "--noheader", "--states=drain", "--format=%n").stdout.split():
        cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)  # it came back meanwhile


def allow_urgent(cluster: Cluster) -> None:
    """Add an account without a limit on jobs, which preempting jobs use."""
    cluster.run("sacctmgr", "-iQ", "add", "account", "urgent")
    cluster.run("sacctmgr", "-iQ", "add", "user", "name=root", "account=urgent")


def processes(runs: Path) -> list[Process]:
    """Return the processes that work for the submissions of this run directory."""
    found = []
    for process in live_processes():
        with contextlib.suppress(OSError, IndexError):  # gone meanwhile
            words = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            if kind := kind_of(words, runs):
                found.append(Process(process.pid, process.parent, kind))
    return found


def kind_of(words: list[str], runs: Path) -> str:
    """Return which of the submission's processes has this command line: worker, task, last, or "" for none."""
    if "ablations.execution.worker" in words and any(str(runs) in word for word in words):
        return "worker"
    code, function = words[words.index("slurm.task") + 1 :][:2] if "slurm.task" in words else ("", "")
    if not code.startswith(str(runs)):
        return ""
    return "last" if function in (LAST, WATCH) else "task"  # srun, which has the same words, is a task too


def settled(runs: Path) -> bool:
    """Whether every array was submitted long enough ago for slurmctld to have saved it."""
    written = [path.stat().st_mtime for path in runs.glob("submissions/*/arrays/*/intent.json")]
    return time.time() - max(written) > SAVED_SECONDS
