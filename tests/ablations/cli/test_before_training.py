"""What would fail only when a result is written is refused before anything trains."""

import errno
import os
import shlex
from pathlib import Path

import closed_form
import pytest
from designs import STUDY_HERE, write
from in_process import Ablate, json_output, refusal

from ablations.planning.prepare import prepare
from ablations.study.design import Design
from ablations.study.reading import read_recipe
from ablations.study.study import Study

STUDY = "{question: Which?, baseline: {position: 1d}, factors: {position: [none, 1d]}}"


@pytest.mark.parametrize("name", ["a" * 204, "a" * 248, "ä" * 110, "long-" * 40])
@pytest.mark.parametrize("command", ["plan", "run"])
def test_names_that_files_cannot_have_are_refused(command: str, name: str, ablate: Ablate, tmp_path: Path) -> None:
    (tmp_path / f"{name}.yaml").write_text(STUDY)
    errors = refusal(ablate, command, f"{name}.yaml", "steps=2", "--runs", "runs")
    length = len(f"{name}@digits,steps=2".encode())
    assert f"name has {length} bytes; at most 200, as files are named after it: give --name NAME" in errors
    assert not (tmp_path / "runs").exists()


def test_a_long_name_of_a_recipe_is_refused_too(ablate: Ablate, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(STUDY)
    (tmp_path / f"{'r' * 210}.yaml").write_text("{description: Small., config: {data: digits}}")
    assert "has 212 bytes; at most 200" in refusal(ablate, "plan", "s.yaml", "--recipe", f"{'r' * 210}.yaml")


def test_the_longest_name_is_planned(tmp_path: Path) -> None:
    study = Study(name="a" * 193, question="Which?", baseline={"position": "1d"}, factors={"position": ["none", "1d"]})
    plan = prepare(Design(study, read_recipe("digits"), {}), tmp_path, seeds=1)
    (tmp_path / f".{plan.name}-train_seconds.png.{'0' * 32}").touch()  # as the figure with the longest name is written
    assert len(plan.name) == 200


def test_plans_of_one_study_are_named_one_a_command_and_shown_together(ablate: Ablate, tmp_path: Path) -> None:
    """Commands that are printed can be given as they are."""
    write(tmp_path, "s", closed_form.STUDY)
    write(tmp_path, "r", closed_form.RECIPE)
    there = ("--runs", "a b")
    runs = shlex.quote(str(tmp_path / "a b"))
    assert f"no study is planned there: ablate run STUDY --runs {runs} --plan-only" in refusal(ablate, "work", "a b")
    output = ablate("show", *STUDY_HERE, *there)[1]
    assert "`ablate run s.yaml --recipe r.yaml --runs 'a b'` trains it" in output
    for name in ("one", "two"):
        status, output, _ = ablate("run", *STUDY_HERE, *there, "--name", name, "--plan-only")
        assert (status, output) == (0, f"planned: ablate work {runs}\n")
    message = "one and two: are of one study, s: give each a command of its own"
    assert message in refusal(ablate, "plan", "one", "two", *there)
    assert list(json_output(ablate, "show", *STUDY_HERE, *there)["answers"]) == ["one", "two"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
@pytest.mark.parametrize("command", ["run s.yaml", "run s.yaml --plan-only", "train position=1d"])
def test_file_systems_without_hard_links_are_refused(
    command: str, code: int, ablate: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAT answers with the first error, network file systems with the second."""

    def link(source: Path, target: Path) -> None:
        raise OSError(code, os.strerror(code), str(source))

    monkeypatch.setattr(os, "link", link)
    (tmp_path / "s.yaml").write_text(STUDY)
    errors = refusal(ablate, *command.split(), "steps=2", "--runs", "runs")
    assert f"runs: its file system has no hard links ({os.strerror(code)}), by which results are published" in errors
    assert not list((tmp_path / "runs").iterdir())
