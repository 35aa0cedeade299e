"""What would fail only when a result is written is refused before anything trains."""

import errno
import os
from pathlib import Path

import pytest
from in_process import Ablate, refusal

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
