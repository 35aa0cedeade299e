"""The environment variables that a job inherits from the process that submits it.

sbatch exports the whole environment, and SLURM stores it, including tokens and passwords. The option `--export=NONE`
and lists of names do not help: both start a login shell on the node, which may fail, and srun then starts without PATH.
So sbatch itself is run with a selection of the variables. The selection also leaves out the variables of a surrounding
job. It leaves out those that change the output of SLURM's commands, such as SBATCH_* and SQUEUE_FORMAT.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase

KEPT = (
    *("HOME", "LOGNAME", "USER", "SHELL", "PATH", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM"),
    *("LD_LIBRARY_PATH", "PYTHON*", "VIRTUAL_ENV", "PYENV_*"),
    *("CONDA_EXE", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_PYTHON_EXE", "CONDA_SHLVL"),
    # `module load`, in both of its implementations
    *("MODULE*", "LMOD_*", "LOADEDMODULES", "_LMFILES_", "BASH_ENV"),
    *("BASH_FUNC_module*", "BASH_FUNC_ml*", "BASH_FUNC__module_raw*"),
    # what numerics and speed depend on
    *("OMP_*", "KMP_*", "GOMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "NVPL_*"),
    *("CUDA_HOME", "CUDA_PATH", "CUBLAS_*", "CUDNN_*", "NCCL_*", "NVIDIA_TF32_OVERRIDE", "TORCH*", "PYTORCH_*"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "ABLATE_*", "SLURM_CONF"),
)
SECRET = ("*TOKEN*", "*SECRET*", "*PASSW*", "*PWD*", "*CREDENTIAL*", "*AUTH*", "*KEY*")


def kept(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose names match a pattern of KEPT and no pattern of SECRET."""
    return {name: value for name, value in environment.items() if among(name, KEPT) and not among(name.upper(), SECRET)}


def among(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
