"""Profiles: what they may contain, the scripts that they become, and the environment of jobs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hostile import CANARY, TEXTS

from ablations.study import strict_yaml
from commonfloor.messages import LONGEST_LINE
from slurm import arrays, ask, partitions, profile, queue, values
from slurm.arrays import JobArray
from slurm.partitions import Nodes
from slurm.profile import Profile

FULL = r"""
{partition: "gpu,gpu-long", account: lab_1, qos: high, gpus: 2, gpu_type: nvidia_a100-sxm4-40gb, cpus: 4, memory: 16G,
 time: "2-00:30:00", constraint: "[rack1|rack2]&GPU_SKU:A100", parallel: 8, checkpoints: /scratch/me/ablate,
 data_dir: ~/datasets, dependency: "afterok:12:13,afterany:14_2", begin: now+2hours,
 comment: project=vit 7, container: "apptainer exec --nv '/images/my torch.sif'",
 setup: [module load cuda, "export A=$B; echo 'x' | cat"],
 environment: {OMP_NUM_THREADS: 4, GREETING: "it's $HOME & more"},
 extra: {mail-type: "END,FAIL", exclude: "node[1-4],node7", gres: "tmp:100G", requeue: false, exclusive: true},
 srun: {mpi: pmix, cpu-bind: "verbose,cores", container-mounts: "/data:/data:ro,/scratch"}}
"""


def parsed(text: str) -> Profile:
    return Profile.parse(strict_yaml.parse(text, "mine.yaml"), "mine.yaml")


def script(chosen: Profile) -> str:
    """Return the script for one task of the profile."""
    return arrays.script(JobArray(Path("/nowhere"), "vit:0", "module:name", [], chosen, Path("/nowhere/code")))


def directives(text: str) -> set[str]:
    """Return the #SBATCH options that sbatch reads, those before the first command, without dashes."""
    head = text.partition("\n\n")[0]
    assert all(line.startswith("#") for line in head.splitlines())
    return {word.removeprefix("--") for line in re.findall("(?m)^#SBATCH (.*)", head) for word in shlex.split(line)}


def test_every_key_may_be_left_out() -> None:
    """Everything but one GPU and four hours is left to SLURM; keys without a value are left out too."""
    assert Profile.parse({"account": None, "setup": None, "gpus": None}, "mine.yaml") == Profile()
    asked = directives(script(Profile()))
    assert {"gres=gpu:1", "time=4:00:00", "nodes=1", "ntasks=1", "requeue"} <= asked
    assert not [
        word for word in asked if word.startswith(("partition", "account", "qos", "mem", "constraint", "wckey"))
    ]


def test_every_key_arrives_in_the_script() -> None:
    text = script(parsed(FULL))
    expected = """
        job-name=vit:0 partition=gpu,gpu-long account=lab_1 qos=high gres=gpu:nvidia_a100-sxm4-40gb:2,tmp:100G
        cpus-per-task=4 mem=16G time=2-00:30:00 constraint=[rack1|rack2]&GPU_SKU:A100 mail-type=END,FAIL
        exclude=node[1-4],node7 no-requeue exclusive"""
    assert {*expected.split(), "comment=vit:0 project=vit 7"} <= directives(text)
    places = [text.index(line) for line in ("export OMP_NUM_THREADS=4", "module load cuda", "\nsrun ")]
    assert places == sorted(places)
    assert "srun" in text
    assert "--cpus-per-task=4 --mpi=pmix --cpu-bind=verbose,cores --container-mounts=/data:/data:ro,/scratch" in text


GREEDY = {"mem-per-gpu": "20G", "exclusive": True, "mail-type": "END", "reservation": "lab"}


def test_helper_jobs_ask_for_little_whatever_the_tasks_ask_for() -> None:
    """`helper:` changes single keys, and `none` leaves these jobs out."""
    asks = Profile(partition="gpu", account="lab", cpus=8, gpus=2, nodes=2, time="1-00:00:00", extra=GREEDY)
    asked = directives(script(asks.helper_profile))
    assert {"partition=gpu", "account=lab", "cpus-per-task=1", "mem=2G", "time=0:15:00", "nodes=1"} <= asked
    assert "reservation=lab" in asked
    assert not [word for word in asked if word.startswith(("gres", "mem-per", "exclusive", "mail"))]
    other = asks.model_copy(update={"helper": {"partition": "cpu", "gpus": 1, "memory": "1G"}})
    assert {"partition=cpu", "gres=gpu:1", "mem=1G", "account=lab"} <= directives(script(other.helper_profile))
    assert Profile(helper="none").helper == "none"
    refused: dict[str, Any] = {
        "helper: unknown key 'partiton'; did you mean 'partition'": {"partiton": "a"},
        "helper: memory=2": {"memory": "2"},
        "helper": "no",
    }
    for said, wrong in refused.items():
        with pytest.raises(ValueError, match=said):
            Profile(helper=wrong)


def test_a_tag_is_found_in_names() -> None:
    """A tag ends a name, after a study's name without special characters."""
    tag = "ablate:20260101-000000-0123abcd:0001"
    named = arrays.job_name("a b,'$(x)@+2", tag)
    assert named == f"a-b----x-@+2:{tag}"
    for text in (tag, named):
        assert queue.find_tag(text, ("ablate:",)) == tag
        assert queue.find_tag(text, ("other:", tag)) == tag
    for text in ("", "sable:1", "pooling", f"see {tag}", "ablated:1"):
        assert queue.find_tag(text, ("ablate:",)) == ""


def test_the_container_gets_the_words_of_python(tmp_path: Path) -> None:
    """srun starts the container's command, which starts Python; no shell expands its words."""
    words = ["apptainer", "exec", "--bind", "$HOME:/x", "/images/my torch.sif", "$(touch canary)"]
    chosen = Profile(container=shlex.join(words))
    (line,) = [line for line in script(chosen).splitlines() if line.startswith("srun")]
    command = ["bash", "-c", line.replace("srun", "printf '%s\\0'", 1)]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split("\0")
    assert printed[printed.index("apptainer") :][: len(words) + 1] == [*words, sys.executable]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("time", "seconds"), [("0:01:00", 60), ("1-02:03:04", 93784), (90, 5400), ("100:00:00", 360000)]
)
def test_time_limits(time: str | int, seconds: int) -> None:
    """A limit is hours:minutes:seconds, with days, or minutes. SLURM gets whole minutes, rounded up."""
    assert Profile(time=time).seconds == seconds
    rounded = partitions.duration_text(60 * -(-seconds // 60))
    asked = directives(script(Profile(time=time)))
    assert f"time={rounded}" in asked
    assert partitions.seconds(partitions.duration_text(seconds)) == seconds


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"partiton": "gpu"}, "unknown key 'partiton'; did you mean 'partition'?"),
        ({"zzz": 1}, "unknown key 'zzz': known are partition, account"),
        ({"gpus": "two"}, "gpus=two: a whole number from 0 to 1,000"),
        ({"memory": "16"}, "memory=16: a number and one of K M G T, as in 16G"),
        ({"time": "4:00"}, "time=4:00: hours:minutes:seconds as in 4:00:00"),
        ({"time": 0}, "time=0: at least a minute"),
        ({"gpu_type": "a100", "gpus": 0}, "gpu_type=a100 with gpus=0"),
        ({"setup": "module load cuda"}, "setup='module load cuda': a list of shell lines"),
        ({"setup": ["a\nb"]}, r"setup='a\\nb': one shell line an entry"),
        ({"setup": ["#SBATCH --wrap=x"]}, "setup='#SBATCH --wrap=x': no comments"),
        ({"environment": ["A"]}, "environment=.*: names and values"),
        ({"environment": {"A-B": "1"}}, "unknown name 'environment.A-B': letters, digits and _"),
        ({"environment": {"A": ["1"]}}, "environment.A=.*: a string or a number"),
        ({"environment": {"SLURM_NTASKS": "1"}}, "environment.SLURM_NTASKS: names that start with"),
        ({"extra": {"wrap": "x"}}, "unknown option 'extra.wrap': one of exclude, exclusive"),
        ({"extra": {"requeue": "yes"}}, "extra.requeue=yes: true or false"),
        ({"srun": {"mpi": True}}, "srun.mpi=True: text or a number"),
        ({"extra": {"gres": "gpu:2"}}, "extra.gres=gpu:2: GPUs are the key 'gpus'"),
        ({"extra": {"nodelist": "a;b"}}, "extra.nodelist='a;b': letters, digits and"),
        ({"extra": {"wckey": None}}, "extra.wckey=None: "),
        ({"memory": "1G", "extra": {"mem-per-cpu": "1G"}}, "extra.mem-per-cpu=1G: only one of memory"),
        ({"data_dir": "datasets"}, "data_dir=datasets: an absolute folder"),
        ({"container": "apptainer 'exec"}, r"container=\".*: a command and its options"),
        ({"container": "--nv"}, "container=--nv: a command and its options"),
        ({"dependency": "afterok:1?afterok:2"}, "dependency='afterok:1.afterok:2': ends of other jobs"),
        ({"begin": "soon"}, "begin=soon: a time, as in 20:00"),
        ({"srun": ["mpi"]}, r"srun=.*: options and their values"),
    ],
)
def test_wrong_profiles_name_the_key(content: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^mine.yaml: {message}") as caught:
        Profile.parse(content, "mine.yaml")
    assert "\n" not in str(caught.value)


def placed(field: str, text: str) -> dict[str, Any]:
    """Return a profile's content with `text` in one field."""
    place, _, name = field.partition(".")
    special = {
        "setup": {"setup": ["true", text]},
        "name": {"environment": {text: "1"}},
        "option": {"extra": {text: "1"}},
        "key": {text: "1"},
    }
    return special.get(field) or ({place: {name: text}} if name else {place: text})


FIELDS = [*profile.TEXT, "time", "setup", "environment.A", "name", "option", "key", "container"]
FIELDS += [f"extra.{name}" for name in values.SBATCH] + [f"srun.{name}" for name in values.SRUN]
FREE = {"setup", "environment.A", "container"}  # shell by design, and quoted text: all that prints is allowed


@pytest.mark.parametrize("field", FIELDS)
def test_hostile_text_is_refused_in_one_harmless_line(field: str) -> None:
    """No field of SLURM's words accepts it; the error has no newline and no terminal control."""
    accepted, problems = [], []
    for text in TEXTS:
        try:
            Profile.parse(placed(field, text), "mine.yaml")
            accepted.append(text)
        except ValueError as error:
            problems.append(str(error))
    assert all(problem.isprintable() and len(problem) <= LONGEST_LINE for problem in problems)
    assert field in ("name", "option", "key") or all(f"{field}=" in problem for problem in problems)
    option = field.partition(".")[2]
    harmless = {"[", "!"} if field == "constraint" or (option and option not in values.SWITCHES) else set()
    harmless |= {f"eval touch {CANARY}", f"main --output={CANARY}"} if field == "comment" else set()  # quoted
    if field not in FREE:
        assert set(accepted) <= harmless
    assert all(text.isprintable() for text in accepted)


def test_hostile_text_that_is_allowed_is_only_text(tmp_path: Path) -> None:
    texts = [text for text in TEXTS if text.isprintable()]
    assert len(texts) > 40
    chosen = Profile(environment={f"V{number}": text for number, text in enumerate(texts)})
    exports = [line for line in script(chosen).splitlines() if line.startswith("export V")]
    text = "\n".join(["set -u", *exports, "env -0"])
    done = subprocess.run(["bash", "-c", text], cwd=tmp_path, capture_output=True, text=True, check=True)
    seen = dict(pair.partition("=")[::2] for pair in done.stdout.split("\0"))
    assert [seen[f"V{number}"] for number in range(len(texts))] == texts
    assert list(tmp_path.iterdir()) == []


def test_a_profile_is_a_file_or_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is looked up where `init` writes it: below XDG_CONFIG_HOME, or else below ~/.config."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for home, below in (("", "home/.config"), (str(tmp_path / "xdg"), "xdg")):
        monkeypatch.setenv("XDG_CONFIG_HOME", home)
        with pytest.raises(ValueError, match=rf"^profile mine: not in .*{below}/ablate/profiles: none yet"):
            profile.find_profile("mine")
        path = profile.path_to_write("mine")
        assert path == tmp_path / below / "ablate/profiles/mine.yaml"
        path.parent.mkdir(parents=True)
        path.write_text("gpus: 1")
        assert profile.find_profile("mine") == profile.find_profile(str(path)) == path
        with pytest.raises(ValueError, match=rf"^profile other: not in .*{below}.*: mine$"):
            profile.find_profile("other")
    with pytest.raises(ValueError, match="there is no such file"):
        profile.find_profile("./yours.yaml")


def test_hostile_text_is_neither_a_profile_nor_a_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for text in [*TEXTS, "../mine", "/mine", "mine.yaml", "-mine"]:
        for path in (profile.find_profile, profile.path_to_write):
            with pytest.raises(ValueError, match=r"^profile[ =]") as caught:
                path(text)
            assert str(caught.value).isprintable()
    for text in TEXTS:
        with pytest.raises(ValueError, match=r"^tag="):
            arrays.script(JobArray(tmp_path, text, "module:name", [], Profile(), tmp_path))


NEEDED = [
    *("HOME", "PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "CONDA_PREFIX", "BASH_FUNC_module%%"),
    *("OMP_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG", "ABLATE_DATA", "SLURM_CONF"),
]
UNWANTED = [
    *("AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "HF_TOKEN", "SSH_AUTH_SOCK", "MY_PASSWORD", "TORCH_TOKEN"),
    *("ABLATE_KEY", "ABLATE_AUTH", "PYTHON_PWD", "TORCH_pwd"),
    *("SBATCH_PARTITION", "SBATCH_EXPORT", "SLURM_NTASKS", "SLURM_MEM_PER_CPU", "SQUEUE_FORMAT", "SLURM_TIME_FORMAT"),
    *("SACCT_FORMAT", "CUDA_VISIBLE_DEVICES", "https_proxy", "ANYTHING_ELSE"),
]


def test_jobs_inherit_what_they_need_and_no_secrets() -> None:
    assert list(ask.slurm_variables(dict.fromkeys([*NEEDED, *UNWANTED], "1"))) == NEEDED


GRES = "gpu:a100:4(S:0-1),tmp:900G"
A100 = partitions.parse_nodes("gpu", "gpu", "up", "2-00:00:00", "12", "64", "515000", GRES, "ib,a100")
PLAIN = partitions.parse_nodes("cpu", "cpu*", "up", "infinite", "100", "128", "256000", "(null)", "(null)")
DOWN = partitions.parse_nodes("gpu-new", "gpu-new", "drain", "1:00:00", "99", "64", "515000", "gpu:h100:8", "(null)")


def test_a_first_profile_is_a_profile() -> None:
    """It asks for GPUs, if there are any, of a partition that takes jobs."""
    text = profile.draft([PLAIN, A100, DOWN])
    share = Profile(partition="gpu", gpus=1, cpus=4, memory="16G", time="4:00:00")
    assert parsed(text) == share
    for hint in ("types: a100", "features of nodes: ib, a100", "no time limit"):
        assert hint in text
    assert "gpu-new" not in text
    none = partitions.parse_nodes("cpu", "cpu*", "up", "infinite", "1", "4", "8000", "gpu:0,tmp:900G", "(null)")
    for nodes in (PLAIN, none):
        assert "gpus: 0" in profile.draft([nodes])
    with pytest.raises(ValueError, match="no partition that takes jobs"):
        profile.draft([DOWN])


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:2080ti:8(S:0-1)", {"2080ti": 8}),
        ("gpu:3090:4,gpu:3g.20gb:2,tmp:9G", {"3090": 4, "3g.20gb": 2}),
        ("gpu:4(S:0-1),mps:400", {"": 4}),
        ("gpu:3090:0", {}),
    ],
)
def test_types_of_gpus_may_begin_with_a_digit(gres: str, gpus: dict[str, int]) -> None:
    nodes = partitions.parse_nodes("gpu", "gpu", "up", "infinite", "1", "4", "8000", gres, "(null)")
    assert nodes.gpus == gpus


def test_hostile_words_of_a_cluster_stay_comments() -> None:
    """Names of partitions, accounts and features add no line to the profile."""
    for text in TEXTS:
        odd = Nodes(text, True, True, None, 1, 1, 2048, {text: 1}, (text,))
        words = parsed(profile.draft([odd]))
        assert words.model_fields_set <= {"partition", "gpus", "cpus", "memory", "time"}
