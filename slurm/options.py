"""The sbatch options that a profile may add under `extra`: an allow-list, each with what its value may be.

Options that say what is run, what it is called or where its output goes (`array`, `export`, `output`, `signal`,
`wrap`, ...) are not among them: they belong to the submission.
"""

from slurm import grammar
from slurm.grammar import COUNT, FEATURES, NODES, SIZE, WORD, words

Value = str | int | bool

AS_SIZE = "a number and one of K M G T, as in 20G"
AS_NODES = "a list of nodes, as in node[1-4],node7"

# option: (what its value may be, the same in words)
VALUED = {
    "exclude": (NODES, AS_NODES),
    "gres": (words(r"(?!gpu\b)[a-z_]\w*(:[A-Za-z_][\w.-]*)?(:\d+[KMGT]?)?"), "as in tmp:100G (GPUs: the key 'gpus')"),
    "hint": (r"compute_bound|memory_bound|multithread|nomultithread", "compute_bound, memory_bound or [no]multithread"),
    "licenses": (words(rf"{WORD}(:\d+)?"), "as in matlab:1"),
    "mail-type": (words(r"[A-Z][A-Z_0-9]*"), "as in END,FAIL"),
    "mail-user": (r"[A-Za-z0-9_][\w.+-]*@[A-Za-z0-9][\w.-]*", "a mail address"),
    "mem-per-cpu": (SIZE, AS_SIZE),
    "mem-per-gpu": (SIZE, AS_SIZE),
    "nice": (COUNT, "a number, 0 or more"),
    "nodelist": (NODES, AS_NODES),
    "prefer": (FEATURES, "features, as in a100|h100"),
    "reservation": (words(WORD), "the name of a reservation"),
    "switches": (r"\d+(@[\d:-]+)?", "as in 1@10:00"),
    "threads-per-core": (COUNT, "a number"),
    "tmp": (SIZE, AS_SIZE),
    "wckey": (WORD, "a workload characterisation key"),
}
SWITCHES = {"exclusive": None, "oversubscribe": None, "requeue": "no-requeue"}  # option: what sbatch calls its opposite
ALLOWED = sorted([*VALUED, *SWITCHES])


def check(name: str, value: Value) -> Value:
    """The value as sbatch takes it. Raises ValueError: a line that names the option, the value and what is allowed."""
    key = f"extra.{grammar.shown(name)}"
    if name in SWITCHES:
        if value is True or (value is False and SWITCHES[name]):
            return value
        raise ValueError(f"{key}={grammar.shown(value)}: {'true or false' if SWITCHES[name] else 'true'}")
    if name not in VALUED:
        raise ValueError(f"unknown option '{key}': one of {', '.join(ALLOWED)}")
    pattern, meaning = VALUED[name]
    if isinstance(value, bool):
        raise ValueError(f"{key}={grammar.shown(value)}: {meaning}")
    return grammar.require(key, str(value), pattern, meaning)


def flag(name: str, value: Value) -> tuple[str, str | bool]:
    """The option as submitit's `additional_parameters` spell it."""
    if value is False:
        return str(SWITCHES[name]), True
    return name, value if value is True else str(value)
