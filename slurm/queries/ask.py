"""Execution of SLURM's commands, and classification of their failures.

The commands run without a shell, with a timeout and without environment variables that would change their output.
"""

import os
import re
import subprocess

from slurm.submission import environment

TIMEOUT = 10.0


class NoSlurm(ValueError):
    """The error raised when SLURM is not installed or not configured on this machine."""


class Unreachable(ValueError):
    """The error raised when SLURM does not answer, so that the effect of a command is unknown."""


class Refused(ValueError):
    """The error raised when SLURM answers and rejects a command."""


OWN = re.compile("(?:error|fatal|allocation failure): ")  # how SLURM's own messages begin
ABSENT = ("establish a configuration source", "process configuration file", "slurm.conf")
NO_ANSWER = (
    *("Unable to contact slurm", "Socket timed out", "connect failure", "Connection refused", "Connection reset"),
    *("Zero Bytes were transmitted", "Communication connection failure", "Communication shutdown failure"),
    *("Message receive failure", "Transport endpoint is not connected", "standby", "Unexpected message received"),
    *("authentication", "Munge", "temporarily unable to accept", "temporarily unavailable"),
    *("Problem talking to the database", "No route to host", "Network is unreachable"),
)


def ask(*command: str, text: str = "", timeout: float = TIMEOUT) -> subprocess.CompletedProcess[str]:
    """Run a SLURM command and return the finished process with its output.

    text: standard input. timeout: in seconds. Raises NoSlurm if this machine has no SLURM. Raises Unreachable if SLURM
    does not answer, or the command takes too long. Raises Refused, with SLURM's message, if the command fails
    otherwise.
    """
    try:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=environment.kept(os.environ),
            check=False,
        )
    except FileNotFoundError:
        raise NoSlurm(f"there is no SLURM here: no command '{command[0]}' on the PATH") from None
    except subprocess.TimeoutExpired:
        raise Unreachable(f"SLURM does not answer: {command[0]} took longer than {timeout:g} s") from None
    if done.returncode:
        raise failure(command[0], done.stderr)
    return done


def failure(command: str, complaint: str) -> ValueError:
    """Return the exception for a failed command: NoSlurm, Unreachable or Refused.

    command: name of the command. complaint: its standard error.
    """
    said = sentence(complaint) or "no reason given"
    if any(sign in said for sign in ABSENT):
        return NoSlurm(f"SLURM is not configured here: {command} says '{said}'")
    if any(sign.lower() in said.lower() for sign in NO_ANSWER):
        return Unreachable(f"SLURM does not answer: {command} says '{said}'")
    return Refused(said)


def sentence(complaint: str) -> str:
    """Return SLURM's error messages, extracted from a command's standard error and joined in one line.

    Only SLURM's messages are kept, or all lines if none is SLURM's. A site's wrapper around the command may print a
    banner, which may differ each time.
    """
    lines = complaint.splitlines()
    own = [line for line in lines if OWN.search(line)]
    parts = [OWN.split(line)[-1].strip() for line in own or lines]
    return "; ".join(dict.fromkeys(part for part in parts if part))
