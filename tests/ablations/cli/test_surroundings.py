"""Commands work, or say why not in one line, whatever surrounds them: closed streams, odd encodings, other modules."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import synthetic
from in_process import Ablate, refusal

COMMAND = f"{sys.executable} -m ablations.cli"
ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}  # surrogateescape on ASCII


def shell(folder: Path, line: str, **own: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a line of bash, in which $ABLATE is the command. A closed pipe does not hide the command's status."""
    environment = os.environ | {"ABLATE": COMMAND} | own
    command = ["bash", "-o", "pipefail", "-c", line]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("surroundings")
    synthetic.write(folder / "runs", synthetic.position(seeds=2))
    return folder


@pytest.mark.parametrize("line", ["list >&-", "list 2>&-", "list >&- 2>&- <&-", "table | true"])
def test_a_closed_stream_is_no_error(folder: Path, line: str) -> None:
    done = shell(folder, f"$ABLATE {line}")
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_command_does_its_work_with_its_output_closed(folder: Path) -> None:
    assert shell(folder, "$ABLATE export --out all.csv >&-").returncode == 0
    assert (folder / "all.csv").read_text().startswith("study")


def test_a_full_disk_is_one_line(folder: Path) -> None:
    done = shell(folder, "$ABLATE list > /dev/full")
    assert (done.returncode, done.stderr) == (2, b"ablate: No space left on device\n")


def test_a_table_is_printed_where_the_locale_is_ascii(folder: Path) -> None:
    done = shell(folder, "$ABLATE table position-embedding", **ASCII)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b" ? " in done.stdout


@pytest.mark.parametrize(
    ("line", "own"),
    [
        (r"$ABLATE table $'caf\xe9=3'", {"LC_ALL": "C"}),
        (r"$ABLATE table $'caf\xe9.yaml'", ASCII),
        (r"$ABLATE table $'\xff'", {"LC_ALL": "C.UTF-8"}),
    ],
)
def test_a_word_that_is_not_utf_8_is_refused_in_one_line(folder: Path, line: str, own: dict[str, str]) -> None:
    done = shell(folder, line, **own)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert b": is not UTF-8: rename it" in done.stderr


@pytest.mark.parametrize("command", ["train", "run"])
def test_what_trains_refuses_it_too(ablate: Ablate, command: str) -> None:
    assert ": is not UTF-8: rename it" in refusal(ablate, command, os.fsdecode(b"caf\xe9=3"))


def test_a_report_is_written_in_a_folder_whose_name_is_not_utf_8(folder: Path) -> None:
    done = shell(folder, r"mkdir $'caf\xe9' && cp -r runs $'caf\xe9' && cd $'caf\xe9' && $ABLATE report && ls runs")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"report.html" in done.stdout


@pytest.mark.parametrize(("name", "text"), [("results", "1/0"), ("slurm", ""), ("vitcore", "")])
def test_a_module_of_the_user_that_hides_a_package_of_ours_is_named(tmp_path: Path, name: str, text: str) -> None:
    """The user's module is not even run."""
    (tmp_path / f"{name}.py").write_text(text)
    done = shell(tmp_path, "$ABLATE list", PYTHONPATH=str(tmp_path))
    said = f"ablate: {tmp_path}/{name}.py: hides the package '{name}' of vit-ablations: rename it, or leave {tmp_path}"
    assert (done.returncode, done.stdout.decode()) == (2, "")
    assert done.stderr.decode() == f"{said} out of PYTHONPATH\n"


def test_a_package_of_the_user_that_hides_one_of_ours_is_named(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "__init__.py").touch()
    done = shell(tmp_path, "$ABLATE --version")  # `python -m` looks in the working directory first
    assert done.returncode == 2
    assert b"results/__init__.py: hides the package 'results'" in done.stderr
