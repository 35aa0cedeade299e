"""A seal says what a study declares before its results, and tables say what differs from it."""

import hashlib
import json
from pathlib import Path

import pytest
from closed_form import RECIPE, STUDY
from designs import STUDY_HERE, write
from in_process import Ablate, json_output, refusal
from run_trials import serve_all

from ablations.execution import runner
from results.load import load_studies
from results.store import seals
from results.tables import study_table

BEFORE = "sealed before the first result: SHA-256 "


@pytest.fixture(autouse=True)
def trained_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "drive", serve_all)


@pytest.fixture
def sealed(tmp_path: Path, ablate: Ablate) -> Path:
    """The seal of a study of six trials, which have not begun."""
    write(tmp_path, "s", STUDY)
    write(tmp_path, "r", RECIPE)
    return tmp_path / json_output(ablate, "seal", *STUDY_HERE)["seal"]


def texts(runs: Path = Path("runs")) -> tuple[str, str]:
    """Return the notes and the warnings of the only study's table."""
    (study,) = load_studies(runs)
    table = study_table.table(study)
    return "\n".join(table.notes), "\n".join(table.warnings)


def test_a_seal_is_canonical_and_has_the_hashes_of_what_it_seals(sealed: Path, tmp_path: Path) -> None:
    content = json.loads(sealed.read_text())
    assert json.dumps(content, sort_keys=True, indent=1) + "\n" == sealed.read_text()
    assert hashlib.sha256(sealed.read_bytes()).hexdigest().startswith(sealed.stem)
    for kind, name in (("study", "s"), ("recipe", "r")):
        assert content[f"{kind}_sha256"] == hashlib.sha256((tmp_path / f"{name}.yaml").read_bytes()).hexdigest()
    plan = json.loads(next(tmp_path.glob("runs/studies/*/plan.json")).read_text())
    ids = {arm["name"]: [trial["id"] for trial in arm["trials"]] for arm in plan["arms"]}
    assert {name: arm["trials"] for name, arm in content["declaration"]["arms"].items()} == ids
    declared = {key: content["declaration"][key] for key in ("metric", "margin", "baseline", "seeds", "family")}
    assert declared == {"metric": "loss", "margin": 0.01, "baseline": "rate=0.5", "seeds": [0, 1, 2], "family": 1}
    assert str(tmp_path) not in sealed.read_text()


def test_results_after_the_seal_are_as_sealed_and_exports_and_imports_keep_it(
    sealed: Path, tmp_path: Path, ablate: Ablate
) -> None:
    assert json_output(ablate, "seal", *STUDY_HERE)["seal"] == str(sealed.relative_to(tmp_path))
    assert ablate("run", *STUDY_HERE)[0] == 0
    notes, warnings = texts()
    assert (BEFORE + sealed.stem in notes, "own clocks and prove nothing" in notes, warnings) == (True, True, "")
    assert ablate("export", "--out", "all.parquet")[0] == 0
    assert BEFORE + sealed.stem in ablate("table", "--runs", "all.parquet", "--format", "latex")[1]
    assert ablate("run", *STUDY_HERE, "--runs", "here", "--from", "all.parquet")[0] == 0
    assert ablate("run", *STUDY_HERE, "--runs", "merged", "--plan-only")[0] == 0
    assert ablate("import", "all.parquet", "--runs", "merged")[0] == 0
    for runs in ("here", "merged"):
        assert BEFORE + sealed.stem in texts(tmp_path / runs)[0]
        assert (tmp_path / runs / "seals" / sealed.name).read_bytes() == sealed.read_bytes()
    assert ablate("report", "--out", "page.html")[0] == 0
    assert hashlib.sha256(sealed.read_bytes()).hexdigest() in (tmp_path / "page.html").read_text()


CHANGES = {
    "seeds 3, 4 added": ("0.01}", "0.01}", ("--seeds", "5")),
    "margin 0.0200, sealed 0.0100": ("margin: 0.01", "margin: 0.02", ()),
    "claims added: rate=0.25 < rate=0.5": ("0.01}", "0.01, claims: ['rate=0.25 < rate=0.5']}", ()),
    "arms added: rate=0.125; ": ("0.25]", "0.25, 0.125]", ()),
    "arms left out: rate=0.25; ": ("0.25]", "0.125]", ("--prune",)),
}


@pytest.mark.parametrize("difference", CHANGES)
def test_exactly_what_differs_is_listed(sealed: Path, tmp_path: Path, ablate: Ablate, difference: str) -> None:
    old, new, options = CHANGES[difference]
    write(tmp_path, "s", STUDY.replace(old, new))
    status, _, errors = ablate("run", *STUDY_HERE, *options, "--plan-only")
    assert status == 0, errors
    _, warnings = texts()
    assert f"not as sealed (SHA-256 {sealed.stem}" in warnings
    assert difference in f"{warnings}; "
    assert ("margin" in warnings) is ("margin" in difference)


def test_a_seal_of_the_time_after_the_first_result_does_not_precede_it(
    sealed: Path, tmp_path: Path, ablate: Ablate
) -> None:
    """Such a seal can be given as a file: `ablate seal` refuses to make it. A second seal is counted."""
    assert ablate("run", *STUDY_HERE)[0] == 0
    later = seals.read_file(sealed).model_copy(update={"time": "2990-01-01T00:00:00Z"})
    (tmp_path / "later.json").write_bytes(seals.seal_bytes(later))
    output = ablate("table", "--seal", "later.json")[1]
    assert "the first result began before it, on " in output
    assert f"1 earlier seal of the same study (SHA-256 {sealed.stem}" in output
    assert BEFORE not in output
    other = later.declaration.model_copy(update={"arms": {}})
    (tmp_path / "other.json").write_bytes(seals.seal_bytes(later.model_copy(update={"declaration": other})))
    message = "--seal other.json: is the seal of s@r, and these results have none of its trials"
    assert message in refusal(ablate, "table", "--seal", "other.json")


def test_other_code_is_named(sealed: Path) -> None:
    assert sealed.exists()
    (study,) = load_studies(Path("runs"))
    study.columns["status"] = ["finished"] * 6
    study.columns["code"] = [study.plan.seals[0].code.source] * 5 + ["0123456789ab+plugin"]
    warnings = "\n".join(study_table.table(study).warnings)
    assert f"1 trial trained by code 0123456789ab, sealed {study.plan.seals[0].code.source}" in warnings


def test_no_seal_is_made_once_a_trial_has_been_seen(tmp_path: Path, ablate: Ablate) -> None:
    """A result, an evaluation of a running trial, and a removed result that the ledger knows are named."""
    write(tmp_path, "s", STUDY)
    write(tmp_path, "r", RECIPE)
    assert ablate("run", *STUDY_HERE, "--arm", "rate=0.25", "--seeds", "1")[0] == 0
    (trial,) = tmp_path.glob("runs/trials/*")
    message = refusal(ablate, "seal", *STUDY_HERE)
    named = f"cannot be sealed, as there are results already: rate=0.25 seed 0 ({trial.name}): "
    assert named in message
    (trial / "result.json").unlink()
    assert named in refusal(ablate, "seal", *STUDY_HERE)
    for path in trial.glob("attempts/*/metrics.jsonl"):
        path.unlink()
    assert ablate("seal", *STUDY_HERE)[0] == 0
    assert ablate("run", *STUDY_HERE, "--seeds", "3")[0] == 0
    assert ablate("run", *STUDY_HERE, "--seeds", "4", "--plan-only")[0] == 0
    for path in (tmp_path / "runs/trials").rglob("*.json*"):
        path.unlink()
    assert "cannot be sealed" in refusal(ablate, "seal", *STUDY_HERE)


@pytest.mark.parametrize("edit", [lambda text: text.replace("0.01", "0.02"), lambda text: text[:40], str.strip])
def test_an_edited_seal_is_refused_in_one_line(sealed: Path, ablate: Ablate, edit: object) -> None:
    assert callable(edit)
    sealed.write_text(edit(sealed.read_text()))
    assert sealed.name in refusal(ablate, "table")
