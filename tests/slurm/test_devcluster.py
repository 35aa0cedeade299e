"""The dev cluster: jobs, accounting, dead daemons, mistakes, and complete removal."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from devcluster import Cluster, Settings, config, requirements, wait_until

TESTS = Path(__file__).parents[1]  # where `devcluster` is found


def devcluster(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command of a contributor."""
    command = [sys.executable, "-m", "devcluster", *arguments]
    return subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=90, check=False)


def reaches(cluster: Cluster, job: int | str, state: str) -> None:
    wait_until(lambda: cluster.state(job) == state, f"job {job} {state}", 30)


def traces(folder: Path) -> list[str]:
    """Return the processes with the folder in command line, environment, working directory or open files."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            texts = [(process / name).read_bytes() for name in ("cmdline", "environ")]
            links = [os.readlink(link).encode() for link in [process / "cwd", *(process / "fd").iterdir()]]
        except OSError:  # gone meanwhile, or a zombie
            continue
        if int(process.name) != os.getpid() and any(os.fsencode(folder) in text for text in texts + links):
            found.append(f"{process.name} {texts[0]!r}")
    return found


def test_down_leaves_nothing_behind(folder: Path) -> None:
    """No process and no directory stay, even with dead or frozen daemons and a job's child in another session."""
    assert devcluster("up", "--dir", str(folder), "--nodes", "1").returncode == 0
    cluster = Cluster.load(folder)
    started = folder / "work" / "started"
    job = cluster.sbatch("--output=/dev/null", f"--wrap=setsid sleep 300 & touch {started}; sleep 300")
    wait_until(started.exists, "the job")
    reaches(cluster, job, "RUNNING")
    assert devcluster("status", "--dir", str(folder)).returncode == 0
    assert traces(folder)
    cluster.kill("slurmctld")
    cluster.freeze("slurmd")
    assert devcluster("status", "--dir", str(folder)).returncode == 1
    assert devcluster("down", "--dir", str(folder)).returncode == 0
    assert not traces(folder)
    assert not folder.exists()
    assert devcluster("down", "--dir", str(folder)).returncode == 0


def test_down_that_was_killed_can_be_repeated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings, which identify a cluster, are still there after all else was removed."""
    config.write(folder, Settings(accounting=False))
    (folder / config.FILE).touch()
    remove = shutil.rmtree
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda path: path == folder or remove(path))
        Cluster(folder).down()
    assert [path.name for path in folder.iterdir()] == [config.FILE]
    Cluster(folder).down()
    assert not folder.exists()


def test_cluster_ends_with_its_owner(folder: Path) -> None:
    code = f"""
import time
from pathlib import Path
from devcluster import Cluster, Settings
with Cluster(Path({str(folder)!r}), Settings(nodes=1, accounting=False)):
    print("up", flush=True)
    time.sleep(300)
"""
    owner = subprocess.Popen([sys.executable, "-c", code], cwd=TESTS, stdout=subprocess.PIPE, text=True)
    with owner.stdout:
        assert owner.stdout.readline() == "up\n"
    cluster = Cluster.load(folder)
    reaches(cluster, cluster.sbatch("--output=/dev/null", "--wrap=true"), "COMPLETED")
    owner.kill()
    owner.wait()
    wait_until(lambda: not traces(folder) and not folder.exists(), "the end of the cluster", timeout=10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["up", "--dir", "{cluster}"], "taken"),
        (["up", "--dir", "{folder}"], "not empty"),
        (["up", "--dir", "{new}", "--port", "{port}"], "is taken"),
        (["up", "--dir", "{new}", "--without-accounting", "--set", "SelectType=select/none"], "slurmctld is dead: "),
        (["up", "--dir", "{new}", "--without-accounting", "--max-submit", "3"], "accounting"),
        (["up", "--dir", "/tmp/" + "x" * 60], "60 characters"),
        (["up", "--dir", "/tmp/a b"], "letters"),
        (["down", "--dir", "{folder}"], "no cluster"),
        (["down", "--dir", "{folder}/file"], "no cluster"),
        (["status", "--dir", "{new}"], "no cluster"),
        (["kill", "slurmrestd", "--dir", "{cluster}"], "no daemon"),
    ],
)
def test_mistakes_are_one_line(session_cluster: Cluster, folder: Path, arguments: list[str], message: str) -> None:
    (folder / "file").touch()
    running = session_cluster
    names = {"cluster": running.folder, "folder": folder, "new": folder / "new", "port": running.settings.port}
    done = devcluster(*(argument.format(**names) for argument in arguments))
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(folder.iterdir()) == [folder / "file"]
    assert not traces(folder)


def test_what_a_machine_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program, path: program)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert requirements.unmet_requirement().startswith("not root")
    monkeypatch.undo()
    monkeypatch.setattr(requirements, "PATH", "/nowhere")
    assert requirements.unmet_requirement().startswith("not installed: mariadb-server munge slurm-wlm slurmdbd")
    assert requirements.unmet_requirement(accounting=False).startswith("not installed: munge slurm-wlm ")
