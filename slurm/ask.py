"""Execution of SLURM's commands, without a shell and with a timeout, and classification of their failures.

sbatch exports the whole environment, and SLURM stores it, including passwords and keys. `--export=NONE` and lists of
names do not help: both start a login shell on the node, which may fail, and srun then starts without PATH. So sbatch
itself is run with a selection of the variables, without those of a surrounding job and such as SQUEUE_FORMAT.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from fnmatch import translate

TIMEOUT = 10.0
FIELD = "\x1f"  # an ASCII separator for the columns that a command prints
KEPT_NAMES = (
    *("HOME", "LOGNAME", "USER", "SHELL", "PATH", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM"),
    *("LD_LIBRARY_PATH", "PYTHON*", "VIRTUAL_ENV", "PYENV_*"),
    *("CONDA_EXE", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_PYTHON_EXE", "CONDA_SHLVL"),
    # variables of `module load`, in both of its implementations
    *("MODULE*", "LMOD_*", "LOADEDMODULES", "_LMFILES_", "BASH_ENV"),
    *("BASH_FUNC_module*", "BASH_FUNC_ml*", "BASH_FUNC__module_raw*"),
    # variables on which numerics and speed depend
    *("OMP_*", "KMP_*", "GOMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "NVPL_*"),
    *("CUDA_HOME", "CUDA_PATH", "CUBLAS_*", "CUDNN_*", "NCCL_*", "NVIDIA_TF32_OVERRIDE", "TORCH*", "PYTORCH_*"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "ABLATE_*", "SLURM_CONF"),
)
SECRET_NAMES = ("*TOKEN*", "*SECRET*", "*PASSW*", "*PWD*", "*CREDENTIAL*", "*AUTH*", "*KEY*")
KEPT, SECRET = (re.compile("|".join(map(translate, patterns))) for patterns in (KEPT_NAMES, SECRET_NAMES))


class NoSlurm(ValueError):
    """Raised if SLURM is not installed or not configured on this machine."""


class Unreachable(ValueError):
    """Raised if SLURM does not answer, so that the effect of a command is unknown."""


class Refused(ValueError):
    """Raised if SLURM answers and rejects a command."""


OWN = re.compile("(?:error|fatal|allocation failure): ")  # how SLURM's own messages begin
ABSENT = re.compile(r"establish a configuration source|process configuration file|slurm\.conf")
NO_ANSWER = re.compile(
    r"(?i)Unable to contact slurm|Socket timed out|connect failure|Connection refused|Connection reset"
    r"|Zero Bytes were transmitted|Communication connection failure|Communication shutdown failure"
    r"|Message receive failure|Transport endpoint is not connected|standby|Unexpected message received"
    r"|authentication|Munge|temporarily unable to accept|temporarily unavailable"
    r"|Problem talking to the database|No route to host|Network is unreachable"
)


def ask(*command: str, text: str = "", timeout: float = TIMEOUT) -> subprocess.CompletedProcess[str]:
    """Run a SLURM command with `text` as input, for at most `timeout` seconds.

    Raises NoSlurm, Unreachable (also after the timeout) or Refused.
    """
    try:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=slurm_variables(os.environ),
            check=False,
        )
    except FileNotFoundError:
        raise NoSlurm(f"there is no SLURM here: no command '{command[0]}' on the PATH") from None
    except subprocess.TimeoutExpired:
        raise Unreachable(f"SLURM does not answer: {command[0]} took longer than {timeout:g} s") from None
    if done.returncode:
        raise failure(command[0], done.stderr)
    return done


def slurm_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose names match a pattern of KEPT and no pattern of SECRET."""
    return {name: value for name, value in environment.items() if KEPT.match(name) and not SECRET.match(name.upper())}


def failure(command: str, complaint: str) -> ValueError:
    """Return the exception for a failed command: NoSlurm, Unreachable or Refused. complaint: the error output."""
    lines = complaint.splitlines()
    messages = [line for line in lines if OWN.search(line)]
    parts = [OWN.split(line)[-1].strip() for line in messages or lines]  # all lines if none is SLURM's
    message = "; ".join(dict.fromkeys(filter(None, parts))) or "no reason given"
    if ABSENT.search(message):
        return NoSlurm(f"SLURM is not configured here: {command} says '{message}'")
    if NO_ANSWER.search(message):
        return Unreachable(f"SLURM does not answer: {command} says '{message}'")
    return Refused(message)


def cluster_name(timeout: float = TIMEOUT) -> str:
    """Return the name of the cluster that this machine belongs to, or "" if SLURM does not say."""
    name = os.environ.get("SLURM_CLUSTER_NAME", "")
    if name:
        return name
    shown = ask("scontrol", "show", "config", timeout=timeout).stdout
    line = re.search(r"^ClusterName\s*=\s*(\S+)", shown, re.MULTILINE)
    return line[1] if line else ""
