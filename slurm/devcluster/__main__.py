"""The command `python -m slurm.devcluster`, which controls a cluster from a shell."""

import argparse
import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

from slurm.devcluster.cluster import Cluster
from slurm.devcluster.settings import Settings, resolved
from slurm.devcluster.teardown import tear_down

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
DEFAULT = CACHE / "ablate-devcluster"
ACTIONS = {
    "start": "start a daemon again, and wait until it answers",
    "kill": "SIGKILL",
    "freeze": "SIGSTOP: it is there and does not answer",
    "thaw": "SIGCONT",
    "restart": "kill, then start",
}


def parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--dir", type=Path, default=DEFAULT, help="the cluster's directory  [default: %(default)s]")
    main = argparse.ArgumentParser("python -m slurm.devcluster", description="A real SLURM on one machine.")
    commands = main.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, help: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=help, description=help, parents=[common])

    _add_settings(add("up", "start a cluster"))
    add("down", "end it, whatever is left of it")
    add("status", "its daemons and jobs; exit status 0 if all daemons answer")
    add("env", 'for eval "$(...)": the environment of whoever uses it')
    for name, text in ACTIONS.items():
        add(name, text).add_argument("daemon", help="slurmctld, slurmdbd, mariadbd, munged, slurmd or a node's name")
    return main


def _add_settings(up: argparse.ArgumentParser) -> None:
    default = Settings()
    for name, text in {
        "nodes": "all of them this machine",
        "cpus": "of a node; they need not exist",
        "memory": "of a node, in MB",
        "gpus": "of a node: no device behind them",
        "max-submit": "the user's MaxSubmitJobs",
        "max-array": "MaxArraySize",
        "requeue-delay": "seconds before a requeued job may start again",
        "port": "the first of nodes + 2 in a row",
    }.items():
        value = getattr(default, name.replace("-", "_"))
        shown = f"  [default: {value}]" if value else ""
        up.add_argument(f"--{name}", type=int, metavar="N", default=value, help=text + shown)
    up.add_argument("--gpu-type", metavar="NAME", default=default.gpu_type, help="[default: %(default)s]")
    up.add_argument(
        "--without-accounting", dest="accounting", action="store_false", help="no slurmdbd: sacct answers nothing"
    )
    up.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="a line of slurm.conf")


def settings(given: argparse.Namespace) -> Settings:
    named = {field.name for field in fields(Settings)} & vars(given).keys()
    return Settings(**{name: getattr(given, name) for name in named}, extra=dict(_pair(line) for line in given.set))


def _pair(line: str) -> tuple[str, str]:
    key, separator, value = line.partition("=")
    if not (separator and key.isalnum() and value.isprintable()):
        raise ValueError(f"--set {line!r}: KEY=VALUE, as in slurm.conf")
    return key, value


def up(given: argparse.Namespace) -> int:
    began = time.monotonic()
    cluster = Cluster(given.dir, settings(given))
    cluster.up()
    chosen = "" if given.dir == DEFAULT else f" --dir {shlex.quote(str(given.dir))}"
    print(f"up in {time.monotonic() - began:.1f} s in {cluster.folder}; sbatch, squeue, sacct speak to it after")
    print(f'eval "$(python -m slurm.devcluster env{chosen})"')
    return 0


def status(cluster: Cluster) -> int:
    """Print the status of all daemons and, if all answer, the queue.

    Returns the exit status: 0 if all daemons answer, 1 otherwise. The daemons are queried in parallel, because each
    query takes its full timeout if slurmctld is dead.
    """
    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(cluster.answers, cluster.daemons))
    for daemon, answer in zip(cluster.daemons, answers, strict=True):
        pid = cluster.pid(daemon)
        print(f"{daemon.name:12}{pid or '-':>8}  {'dead' if pid is None else 'answers' if answer else 'silent'}")
    if not all(answers):
        return 1
    print(cluster.run("squeue", "--array-unique").stdout, end="")
    return 0


def run(given: argparse.Namespace) -> int:
    if given.command == "up":
        return up(given)
    if given.command == "down":
        tear_down(resolved(given.dir))
        return 0
    cluster = Cluster.at(given.dir)
    if given.command == "status":
        return status(cluster)
    if given.command == "env":
        print(f"export SLURM_CONF={shlex.quote(cluster.environment['SLURM_CONF'])}")
        return 0
    getattr(cluster, given.command)(given.daemon)
    return 0


def main() -> int:
    try:
        return run(parser().parse_args())
    except (ValueError, OSError, RuntimeError, subprocess.SubprocessError) as error:
        print(f"devcluster: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
