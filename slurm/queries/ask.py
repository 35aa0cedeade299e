"""Running SLURM's commands, without a shell, with a timeout and a neutral environment, and classifying failures."""

import os
import re
import subprocess

from slurm.submission import environment

TIMEOUT = 10.0


class NoSlurm(ValueError):
    """There is no SLURM on this machine."""


class Unreachable(ValueError):
    """SLURM did not answer, so the result is unknown."""


class Refused(ValueError):
    """SLURM answered and refused."""


OWN = re.compile("(?:error|fatal|allocation failure): ")  # in SLURM's own messages
ABSENT = ("establish a configuration source", "process configuration file", "slurm.conf")
NO_ANSWER = (
    *("Unable to contact slurm", "Socket timed out", "connect failure", "Connection refused", "Connection reset"),
    *("Zero Bytes were transmitted", "Communication connection failure", "Communication shutdown failure"),
    *("Message receive failure", "Transport endpoint is not connected", "standby", "Unexpected message received"),
    *("authentication", "Munge", "temporarily unable to accept", "temporarily unavailable"),
    *("Problem talking to the database", "No route to host", "Network is unreachable"),
)


def ask(*command: str, text: str = "", timeout: float = TIMEOUT) -> subprocess.CompletedProcess[str]:
    """Run a command of SLURM with `text` on standard input.

    Raises NoSlurm, Unreachable; Refused with SLURM's message.
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
    """Return the exception for a failed command's standard error."""
    said = sentence(complaint) or "no reason given"
    if any(sign in said for sign in ABSENT):
        return NoSlurm(f"SLURM is not configured here: {command} says '{said}'")
    if any(sign.lower() in said.lower() for sign in NO_ANSWER):
        return Unreachable(f"SLURM does not answer: {command} says '{said}'")
    return Refused(said)


def sentence(complaint: str) -> str:
    """Join SLURM's own lines of standard error, or all lines if none is SLURM's.

    A site's wrapper may print a banner there too, a different one each time.
    """
    lines = complaint.splitlines()
    own = [line for line in lines if OWN.search(line)]
    parts = [OWN.split(line)[-1].strip() for line in own or lines]
    return "; ".join(dict.fromkeys(part for part in parts if part))
