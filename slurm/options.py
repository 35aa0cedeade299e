"""The options of sbatch and srun that a profile may set, with patterns for their values.

A profile may not set the options that decide what runs, the job name or the output. Examples are `array`, `export`,
`output`, `signal` and `wrap`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from slurm import grammar
from slurm.grammar import COUNT, FEATURES, NODES, SIZE, WORD, list_pattern

Value = str | int | bool

AS_SIZE = "a number and one of K M G T, as in 20G"
AS_NODES = "a list of nodes, as in node[1-4],node7"
BINDING = r"[a-z_]+([:,]\w+)*"
OTHER_GRES = r"(?!gpu\b)[a-z_]\w*(:[A-Za-z_][\w.-]*)?(:\d+[KMGT]?)?"
FOLDER = r"/[\w./+@=-]*"


@dataclass(frozen=True)
class Options:
    """The options that one key of a profile may set."""

    key: str  # extra or srun
    valued: Mapping[str, tuple[str, str]]  # option with a value: (pattern, meaning)
    switches: Mapping[str, str | None]  # option without a value: the opposite option, if any

    def check_all(self, values: object) -> dict[str, Value]:
        """Return the checked options. Raises ValueError if `values` is not a dictionary or an option is not allowed."""
        if not isinstance(values, dict):
            raise ValueError(f"{self.key}={grammar.quoted_value(values)}: options and their values")
        return {name: self.check(name, value) for name, value in values.items()}

    def check(self, name: str, value: Value) -> Value:
        """Return an option's value: text, or a bool for a switch. Raises ValueError if name or value is not allowed."""
        key = f"{self.key}.{grammar.quoted_value(name)}"
        if name in self.switches:
            if value is True or (value is False and self.switches[name]):
                return value
            raise ValueError(
                f"{key}={grammar.quoted_value(value)}: {'true or false' if self.switches[name] else 'true'}"
            )
        if name not in self.valued:
            raise ValueError(f"unknown option '{key}': one of {', '.join(sorted([*self.valued, *self.switches]))}")
        pattern, meaning = self.valued[name]
        if value is None or isinstance(value, bool):
            raise ValueError(f"{key}={grammar.quoted_value(value)}: {meaning}")
        return grammar.require(key, str(value), pattern, meaning)

    def flag(self, name: str, value: Value) -> tuple[str, str | bool]:
        """Return (name, value) for submitit. A switch has the value True. If it is off, its opposite is named."""
        if value is False:
            return str(self.switches[name]), True
        return name, value if value is True else str(value)

    def command_words(self, values: Mapping[str, Value]) -> list[str]:
        """Return the options as words of a command line, such as `--nice=10`."""
        flags = (self.flag(*item) for item in values.items())
        return [f"--{name}" if value is True else f"--{name}={value}" for name, value in flags]


HINT = (r"compute_bound|memory_bound|multithread|nomultithread", "compute_bound, memory_bound or [no]multithread")

SBATCH = Options(
    "extra",
    {
        "exclude": (NODES, AS_NODES),
        "gres": (list_pattern(OTHER_GRES), "as in tmp:100G (GPUs: the key 'gpus')"),
        "hint": HINT,
        "licenses": (list_pattern(rf"{WORD}(:\d+)?"), "as in matlab:1"),
        "mail-type": (list_pattern(r"[A-Z][A-Z_0-9]*"), "as in END,FAIL"),
        "mail-user": (r"[A-Za-z0-9_][\w.+-]*@[A-Za-z0-9][\w.-]*", "a mail address"),
        "mem-per-cpu": (SIZE, AS_SIZE),
        "mem-per-gpu": (SIZE, AS_SIZE),
        "nice": (COUNT, "a number, 0 or more"),
        "nodelist": (NODES, AS_NODES),
        "prefer": (FEATURES, "features, as in a100|h100"),
        "reservation": (list_pattern(WORD), "the name of a reservation"),
        "switches": (r"\d+(@[\d:-]+)?", "as in 1@10:00"),
        "threads-per-core": (COUNT, "a number"),
        "tmp": (SIZE, AS_SIZE),
        "wckey": (WORD, "a workload characterization key"),
    },
    {"exclusive": None, "oversubscribe": None, "requeue": "no-requeue"},
)

SRUN = Options(
    "srun",
    {
        "container-image": (r"[A-Za-z0-9_/][\w./:@+#-]*", "an image for pyxis, as in /images/torch.sqsh"),
        "container-mounts": (list_pattern(rf"{FOLDER}(:{FOLDER}(:\w+)?)?"), "folders for pyxis, as in /data:/data:ro"),
        "container-name": (WORD, "the name of a container for pyxis"),
        "container-workdir": (FOLDER, "an absolute folder for pyxis"),
        "cpu-bind": (BINDING, "as in cores"),
        "distribution": (r"[a-z]+([:,=]\w+)*", "as in block:cyclic"),
        "gpu-bind": (BINDING, "as in closest"),
        "hint": HINT,
        "mem-bind": (BINDING, "as in local"),
        "mpi": (r"[a-z]\w*", "a type of MPI, as in pmix"),
    },
    {"container-mount-home": "no-container-mount-home", "container-writable": None},
)
