"""The command `python -m devcluster`, which controls a cluster from a shell."""

import argparse
import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pydantic import ValidationError

from devcluster.cluster import Cluster
from devcluster.config import Settings

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
DEFAULT = CACHE / "ablate-devcluster"
COMMANDS = {
    "up": "start a cluster",
    "down": "end it, and remove its directory, even after a crash",
    "status": "its daemons and jobs; exit status 0 if all daemons answer",
    "env": 'for eval "$(...)": the environment in which SLURM commands reach it',
    "start": "start a daemon again, and wait until it answers",
    "kill": "SIGKILL",
    "freeze": "SIGSTOP: it is there and does not answer",
    "thaw": "SIGCONT",
    "restart": "kill, then start",
}


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser("python -m devcluster", description="A real SLURM on one machine.")
    commands = main.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument(
            "--dir", type=Path, default=DEFAULT, help="directory of the cluster [default: %(default)s]"
        )
        if name == "up":
            add_settings(command)
        elif name not in ("down", "status", "env"):
            command.add_argument("daemon", help="slurmctld, slurmdbd, mariadbd, munged, slurmd or a node's name")
    return main


def add_settings(up: argparse.ArgumentParser) -> None:
    """Add an option for each field of Settings. The class explains the fields."""
    for name, field in Settings.model_fields.items():
        if name not in ("accounting", "extra"):
            up.add_argument(f"--{name.replace('_', '-')}", default=field.default, help="[default: %(default)s]")
    up.add_argument("--without-accounting", action="store_true", help="no slurmdbd: sacct answers nothing")
    up.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="a line of slurm.conf")


def settings(given: argparse.Namespace) -> Settings:
    for line in given.set:
        key, separator, value = line.partition("=")
        if not (separator and key.isalnum() and value.isprintable()):
            raise ValueError(f"--set {line!r}: KEY=VALUE, as in slurm.conf")
    extra = dict(line.split("=", 1) for line in given.set)
    try:
        return Settings(**vars(given) | {"accounting": not given.without_accounting, "extra": extra})
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(": ".join([*map(str, first["loc"]), first["msg"]])) from None


def status(cluster: Cluster) -> int:
    """Print the status of all daemons and, if all answer, the queue. Return 0 if all daemons answer, else 1."""
    with ThreadPoolExecutor() as pool:  # each query takes its full timeout if slurmctld is dead
        answers = list(pool.map(cluster.is_answering, cluster.daemons))
    for daemon, answer in zip(cluster.daemons, answers, strict=True):
        pid = cluster.pid(daemon)
        print(f"{daemon.name:12}{pid or '-':>8}  {'dead' if pid is None else 'answers' if answer else 'silent'}")
    if not all(answers):
        return 1
    print(cluster.run("squeue", "--array-unique").stdout, end="")
    return 0


def run(given: argparse.Namespace) -> int:
    match given.command:
        case "up":
            began = time.monotonic()
            cluster = Cluster(given.dir, settings(given))
            cluster.up()
            chosen = "" if given.dir == DEFAULT else f" --dir {shlex.quote(str(given.dir))}"
            seconds = time.monotonic() - began
            print(f"up in {seconds:.1f} s in {cluster.folder}; sbatch, squeue, sacct speak to it after")
            print(f'eval "$(python -m devcluster env{chosen})"')
        case "down":
            Cluster(given.dir).down()
        case "status":
            return status(Cluster.load(given.dir))
        case "env":
            print(f"export SLURM_CONF={shlex.quote(Cluster.load(given.dir).environment['SLURM_CONF'])}")
        case action:
            getattr(Cluster.load(given.dir), action)(given.daemon)
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
