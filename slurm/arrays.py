"""Job arrays of equal tasks, each submitted exactly once.

The array's tag is in its job name and comment. So the queue shows whether SLURM has the job, even if sbatch fails or
prints no job id. The script is complete before sbatch is called, and survives the process that calls it.
docs/how-to/for-admins.md says why submitit's SlurmExecutor does not do.
"""

import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurm import partitions, queue, values
from slurm.ask import NoSlurm, Refused, Unreachable, ask
from slurm.profile import Profile

STARTS = 10  # maximum starts of a persistent task
SBATCH_SECONDS = 60.0
APPEAR_SECONDS = 15.0  # how long after an unanswered sbatch its job may still appear in the queue
LONGEST_LABEL = 60  # characters
REFUSAL = "Batch job submission failed: "  # slurmctld's answer, as sbatch prints it


@dataclass(frozen=True)
class JobArray:
    """A job array of `count` equal tasks, each of which calls `function(*arguments)` on a node."""

    folder: Path  # of the script and the logs
    tag: str  # identifies the array in SLURM's queue
    function: str  # 'module:name'
    arguments: Sequence[str]
    profile: Profile
    code: Path  # the folder from which nodes import code
    label: str = ""  # the beginning of the job name
    count: int = 1
    persistent: bool = False  # whether a task starts again in its job when a signal ends it; it runs without srun
    avoided: Sequence[str] = ()  # nodes to exclude, in addition to the profile's
    when: Mapping[str, str] = field(default_factory=dict)  # options of sbatch for the start

    @property
    def script(self) -> Path:
        return self.folder / "script.sh"


def submit(array: JobArray) -> int:
    """Write an array's script into its folder, submit it and return the job id.

    Raises Refused if SLURM rejects the array, Unreachable if it is unknown whether SLURM has it, ValueError if a name
    or the folder is not allowed, and OSError if writing fails.
    """
    write_script(array)
    try:
        answer = ask("sbatch", str(array.script), timeout=SBATCH_SECONDS).stdout
    except Refused as error:
        if REFUSAL in str(error):
            raise
        return find_in_queue(array.tag, f"sbatch failed: {error}")  # a site's wrapper around sbatch may have failed
    except (Unreachable, NoSlurm) as error:
        return find_in_queue(array.tag, str(error))
    # a banner of the cluster may also contain numbers and the word job
    job_id = re.search(r"^Submitted batch job (\d+)", answer, re.MULTILINE)
    if job_id:
        return int(job_id[1])
    return find_in_queue(array.tag, "sbatch printed no job id")


def run(array: JobArray, seconds: float) -> None:
    """Submit an array and return when its tasks have ended, however. Raises Unreachable after `seconds`."""
    write_script(array)
    try:
        ask("sbatch", "--wait", str(array.script), timeout=seconds)
    except Refused as error:  # also if a task failed
        if REFUSAL in str(error):
            raise
    except Unreachable:
        states = [f"{job.state} {job.reason}".strip() for job in queue.jobs(array.tag)]
        if not states:
            raise
        raise Unreachable(f"the job has not ended within {seconds:g} s ({'; '.join(states)})") from None


def write_script(array: JobArray) -> None:
    text = script(array)
    (array.folder / "logs").mkdir(parents=True, exist_ok=True)
    array.script.touch(mode=0o600)  # private, as the profile's environment may hold secrets
    array.script.write_text(text)


def find_in_queue(tag: str, problem: str) -> int:
    """Wait for a job with this tag in the queue and return its id. Raises Unreachable with `problem` if none comes."""
    deadline = time.monotonic() + APPEAR_SECONDS
    state = "whether the job was submitted is unknown"
    while time.monotonic() < deadline:
        time.sleep(1)
        try:
            queued = [job for job in queue.jobs(tag, ended=True) if job.tag == tag]
        except (Unreachable, NoSlurm, Refused):  # a failure of squeue says nothing about the job
            continue
        if queued:
            return queued[0].job_id
        state = "the queue does not have the job"
    raise Unreachable(f"{problem}; {state}: submit again when SLURM answers")


def script(array: JobArray) -> str:
    """Return the script that `submit` passes to sbatch. Raises ValueError if a name or the folder is not allowed."""
    require_folder(array.folder)
    directives = []
    for word in values.option_words(sbatch_options(array)):
        name, sign, value = word.partition("=")
        directives.append(f"#SBATCH {name}{sign}{value and shlex.quote(value)}")
    return "\n".join(["#!/bin/bash", *directives, "", *setup_lines(array), "", command(array), ""])


def setup_lines(array: JobArray) -> list[str]:
    """Return the shell lines that precede a task: the profile's environment and setup, and the path of the code."""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in array.profile.environment.items()]
    path = f"export PYTHONPATH={shlex.quote(str(array.code))}${{PYTHONPATH:+:$PYTHONPATH}} PYTHONSAFEPATH=1"
    return [*exports, *array.profile.setup, path]


def sbatch_options(array: JobArray) -> dict[str, object]:
    """Return the options of sbatch for an array. Raises ValueError if the tag or a node's name is not allowed."""
    profile = array.profile
    values.require("tag", array.tag, r"[A-Za-z0-9][A-Za-z0-9:._-]*", "letters, digits and : . _ -")
    for node in array.avoided:
        values.require("exclude", node, values.NODE, "the name of a node")
    options: dict[str, object] = {
        "job-name": job_name(array.label, array.tag),
        "comment": f"{array.tag} {profile.comment or ''}".rstrip(),
        "array": None,
        **profile.model_dump(include={"partition", "account", "qos", "constraint"}),
        "nodes": profile.nodes,
        "ntasks": 1,
        "cpus-per-task": profile.cpus,
        "mem": profile.memory,
        "time": partitions.duration_text(60 * profile.minutes),
        "requeue": True,
        **profile.extra,
        "gres": profile.gres,
        "exclude": ",".join(map(str, filter(None, [profile.extra.get("exclude"), *array.avoided]))) or None,
        **array.when,
        "chdir": array.code.parent,
        "output": array.folder / "logs" / "%j_log.out",
        "open-mode": "append",
    }
    if array.count > 1:
        options["array"] = f"0-{array.count - 1}"
        options["output"] = array.folder / "logs" / "%A_%a_log.out"
    if profile.nodes > 1:
        options["ntasks"] = profile.nodes
        options["ntasks-per-node"] = 1
    return {name: value for name, value in options.items() if value is not None}


def command(array: JobArray) -> str:
    """Return the shell command that runs one task of an array."""
    profile = array.profile
    # -P: nodes import the copied code and not files of their working directory
    words = [*profile.prefix, sys.executable, "-u", "-P", "-m", "slurm.task", str(array.code), array.function]
    python = shlex.join([*words, *array.arguments])
    if array.persistent:  # a status above 128 means that a signal ended the task
        again = f"for start in {{1..{STARTS}}}; do {python}; status=$?; [ $status -gt 128 ] || break; done"
        return f"{again}\nexit $status"
    # since SLURM 22.05, srun does not inherit cpus-per-task
    srun = ["srun", "--unbuffered", f"--cpus-per-task={profile.cpus}"]
    if profile.nodes > 1:
        srun += ["--nodes=1", "--ntasks=1"]  # this task starts all other ranks
    return f"{shlex.join([*srun, *values.option_words(profile.srun)])} {python}"


def job_name(label: str, tag: str) -> str:
    """Return `label:tag`, with the label cut and reduced to ASCII letters, digits and @+._-, or `tag` without one."""
    harmless = re.sub(r"[^A-Za-z0-9@+._-]", "-", label)[:LONGEST_LABEL]
    return f"{harmless}:{tag}".removeprefix(":")


def require_folder(folder: Path) -> None:
    """Raise ValueError if the path has characters that SLURM's file name patterns or PYTHONPATH would misread."""
    for character in str(folder):
        if character in "%\\:" or not character.isprintable():
            shown = values.quoted_value(folder)
            raise ValueError(f"{shown}: SLURM needs a run directory without {character!a} in its path")
