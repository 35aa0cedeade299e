"""A bundle has all that a deposit needs and nothing private, and nothing in one of others is trusted."""

import hashlib
import json
import os
import shutil
import socket
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import commands
import pyarrow.parquet as pq
import pytest
from closed_form import RECIPE, STUDY
from designs import write
from in_process import Ablate, called, json_output, refusal
from run_trials import Quiet, serve_all

from ablations.execution import runner
from ablations.execution.launch import Place
from ablations.planning import bundle_files, bundles
from ablations.planning.local_paths import LocalPaths
from results import export
from results.load import load_studies
from results.store.schemas.plans import Asked
from results.tables import study_table

WORDS = ("s.yaml", "--recipe", "r.yaml")
CODE = WORDS[1:]


@pytest.fixture(autouse=True)
def trained_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "drive", serve_all)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a user, with a sealed and trained study, and its bundle as `b.zip` and in `b`."""
    folder = tmp_path_factory.mktemp("homes") / "alice smith"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "drive", serve_all)
        patch.setenv("HOME", str(folder))
        patch.chdir(folder)
        write(folder, "s", STUDY)
        write(folder, "r", f"{RECIPE[:-1]}, caveats: ['Of {folder}/photos, /data/alice/x.']}}")
        for words in (("seal", *WORDS), ("run", *WORDS), ("bundle", "--out", "b.zip"), ("bundle", "--out", "b")):
            status, _, errors = called(patch, *words)
            assert status == 0, errors
    return folder


@pytest.fixture
def home(made: Path, ablate: Ablate, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.chdir(made)
    return made


def files_in(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(path: Path, files: dict[str, bytes], summed: bool = False) -> None:
    """Write a bundle of other files. summed: whether its manifest fits them."""
    if summed:
        rest = {name: payload for name, payload in files.items() if name != "SHA256SUMS"}
        lines = [f"{hashlib.sha256(payload).hexdigest()}  {name}\n" for name, payload in rest.items()]
        files = {**rest, "SHA256SUMS": "".join(lines).encode()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, payload in files.items():
            archive.writestr(name, payload)


def test_a_bundle_is_whole_and_equal_results_give_equal_bytes(home: Path, ablate: Ablate) -> None:
    files = files_in(home / "b.zip")
    seal = next(home.glob("runs/seals/*"))
    folders = {"studies/s.yaml", "recipes/r.yaml", f"seals/{seal.name}"}
    plain = {"README.md", "SHA256SUMS", "results.parquet", "report.html", "environment.txt", "CITATION.cff"}
    assert files.keys() == folders | plain
    assert files[f"seals/{seal.name}"] == seal.read_bytes()
    for line in files["SHA256SUMS"].decode().splitlines():
        digest, _, name = line.partition("  ")
        assert hashlib.sha256(files.pop(name)).hexdigest() == digest
    assert files.keys() == {"SHA256SUMS"}
    assert bundle_files.read_bundle(home / "b").files == files_in(home / "b.zip")  # packed a second time
    before = {path.name for path in home.iterdir()}
    assert "exists already" in refusal(ablate, "bundle", "--out", "b")
    assert {path.name for path in home.iterdir()} == before


def test_nothing_in_a_bundle_names_folders_users_or_hosts(home: Path) -> None:
    files = files_in(home / "b.zip")
    (home / "b.parquet").write_bytes(files.pop("results.parquet"))
    table = pq.read_table(home / "b.parquet")
    files["rows"] = json.dumps(
        [table.drop_columns(["history"]).to_pylist(), table.schema.metadata[b"ablate"].decode()]
    ).encode()
    files["names"] = "\n".join(files).encode()
    for name, payload in files.items():
        for private in (str(home.parent), "alice", socket.gethostname()):
            assert private.encode() not in payload, (name, private)
    assert "Of photos, x." in files["recipes/r.yaml"].decode()
    assert "recipes/r.yaml: folders of the authors' machine were cut" in files["README.md"].decode()
    assert "ablate run studies/s.yaml --recipe recipes/r.yaml --seeds 3" in files["report.html"].decode()


def test_a_verified_bundle_comes_out_equal(home: Path, ablate: Ablate) -> None:
    status, output, errors = ablate("verify", "b.zip", *CODE, "--sample", "2", "--seed", "3")
    assert status == 0, errors
    digest = hashlib.sha256(next(home.glob("runs/seals/*")).read_bytes()).hexdigest()
    assert output.startswith(f"b.zip: 8 files, each with the hash of SHA256SUMS\nseal of s@r: SHA-256 {digest}\n")
    assert "recipes/r.yaml: not the sealed file, byte for byte" in output
    assert "sealed before the first result" in output
    assert output.count("identical: weights and metrics") == 2
    seeds = {json_output(ablate, "verify", "b.zip", *CODE, "--sample", "1")["seed"] for _ in range(3)}
    assert len(seeds) > 1


def test_a_bundle_with_any_file_edited_missing_or_added_is_refused(home: Path, ablate: Ablate) -> None:
    files = files_in(home / "b.zip")
    for name, payload in files.items():
        middle = len(payload) // 2
        edited = payload[:middle] + bytes([payload[middle] ^ 1]) + payload[middle + 1 :]
        rewrite(home / "c.zip", {**files, name: edited})
        assert "SHA256SUMS" in refusal(ablate, "verify", "c.zip")
        rewrite(home / "c.zip", {other: files[other] for other in files if other != name})
        assert ("missing" if name != "SHA256SUMS" else "has no SHA256SUMS") in refusal(ablate, "verify", "c.zip")
    rewrite(home / "c.zip", {**files, "x.py": b""})
    assert "c.zip: x.py: not in SHA256SUMS" in refusal(ablate, "verify", "c.zip")


def test_a_seal_that_is_swapped_with_its_hash_is_not_that_of_the_results(home: Path, ablate: Ablate) -> None:
    files = files_in(home / "b.zip")
    name = next(name for name in files if name.startswith("seals/"))
    rewrite(home / "c.zip", {**files, name: files[name].replace(b'"margin": 0.01', b'"margin": 0.02')}, summed=True)
    assert "the seals in seals/ are not those of results.parquet" in refusal(ablate, "verify", "c.zip")


HOSTILE: dict[str, Callable[[zipfile.ZipFile], None]] = {
    "'../x': is not the name": lambda archive: archive.writestr("../x", b""),
    "'/tmp/x': is not the name": lambda archive: archive.writestr("/tmp/x", b""),
    "is not the name of a file in a bundle": lambda archive: archive.writestr("a\\..\\x", b""),
    "is neither stored nor deflated": lambda archive: archive.writestr("x", b"x", zipfile.ZIP_LZMA),
    "bytes: at most": lambda archive: archive.writestr("x", bytes(9000), zipfile.ZIP_DEFLATED),
    "files: at most": lambda archive: [archive.writestr(str(number), b"") for number in range(21)],  # type: ignore[func-returns-value]
}


@pytest.mark.parametrize("message", HOSTILE)
def test_a_hostile_archive_is_refused_and_nothing_is_extracted(
    tmp_path: Path, ablate: Ablate, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    monkeypatch.setattr(bundle_files, "MOST_BYTES", 8000)
    monkeypatch.setattr(bundle_files, "MOST_FILES", 20)
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        HOSTILE[message](archive)
    assert message in refusal(ablate, "verify", "c.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["c.zip"]
    (tmp_path / "c.zip").write_bytes((tmp_path / "c.zip").read_bytes()[:-9])
    assert "c.zip: not a whole .zip file" in refusal(ablate, "verify", "c.zip")


def test_links_in_a_folder_are_not_followed(home: Path, tmp_path: Path, ablate: Ablate) -> None:
    shutil.copytree(home / "b", tmp_path / "b")
    (tmp_path / "b/README.md").unlink()
    (tmp_path / "b/README.md").symlink_to(home / "s.yaml")
    assert "README.md: is a link" in refusal(ablate, "verify", str(tmp_path / "b"))


@pytest.mark.parametrize("source", ["b", "b.zip"])
def test_a_study_takes_its_baseline_from_a_bundle(home: Path, ablate: Ablate, source: str) -> None:
    """The bundle stays as it is, what it lacks is trained, and its name and hash stand below the table."""
    before = (home / "b.zip").read_bytes()
    write(home, "t", STUDY.replace("0.25]", "0.75]"))
    here = f"from-{source}"
    status, output, errors = ablate("run", "t.yaml", "--recipe", "r.yaml", "--runs", here, "--from", source)
    assert (status, f"{source}: 3 trials taken; trained by" in errors) == (0, True), errors
    hashed = home / source if source.endswith("zip") else home / "b/SHA256SUMS"
    digest = hashlib.sha256(hashed.read_bytes()).hexdigest()[:12]
    assert "3 of 6 trials were imported from " in output
    assert f"{digest})" in output
    assert len(list((home / here / "trials").iterdir())) == 6
    assert (home / "b.zip").read_bytes() == before
    assert bundle_files.read_bundle(home / "b").files == files_in(home / "b.zip")


def test_a_difference_between_devices_says_so(home: Path) -> None:
    (study,) = load_studies(home / "runs")
    study.columns["device"] = ["A"] * 3 + ["A", "B", "A"]
    (_, row) = study_table.table(study).rows
    assert "the difference mixes devices, whose rounding differs: trained by A and B, its baseline by A" in row.notes
    for devices in (["A"] * 6, ["A", "B", "A"] * 2):
        study.columns["device"] = devices
        assert not any("mixes devices" in note for row in study_table.table(study).rows for note in row.notes)


def test_commands_of_a_bundle_run_only_once_their_recipe_is_named(
    tmp_path: Path, ablate: Ablate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    recipe = commands.RECIPE.replace(sys.executable, "python")
    runs, todo = commands.planned(tmp_path / "code", recipe=recipe, study=commands.ONE_ARM)
    runner.run(todo[:2], Place(runs, None), Quiet())
    (study,) = load_studies(runs)
    asked = Asked(study=str(tmp_path / "code/s.yaml"), recipe=str(tmp_path / "code/r.yaml"))
    study = replace(study, plan=study.plan.model_copy(update={"asked": asked}))
    bundles.write(bundles.pack([study], runs), tmp_path / "b")
    assert (tmp_path / "b/recipes/train.py").read_text() == (tmp_path / "code/train.py").read_text()
    message = refusal(ablate, "verify", "b")
    assert "trains code of its authors: read it, then name its recipe by --recipe FILE" in message
    status, output, errors = ablate("verify", "b", "--sample", "1", "--recipe", "b/recipes/r.yaml")
    assert (status, "1 equal, 0 not" in output) == (0, True), errors


def test_results_are_packed_without_code_that_is_gone(tmp_path: Path) -> None:
    recipe = f"{commands.RECIPE}    code: [lib.py]\n"
    (tmp_path / "lib.py").write_text("")
    runs, todo = commands.planned(tmp_path, recipe=recipe, study=commands.ONE_ARM)
    runner.run(todo[:1], Place(runs, None), Quiet())
    (tmp_path / "lib.py").unlink()
    packed = bundles.pack(load_studies(runs), runs)
    assert b"the code of r: was edited since" in packed["README.md"]


def test_files_that_an_export_names_are_not_packed(home: Path) -> None:
    """An export of others could name any file of this machine."""
    (home / "secret.py").write_text("key = 1")
    (study,) = load_studies(home / "runs")
    asked = study.plan.asked.model_copy(update={"plugins": [str(home / "secret.py")]})
    plan = study.plan.model_copy(update={"asked": asked})
    export.write([replace(study, plan=plan)], home / "all.parquet")
    packed = bundles.pack(load_studies(home / "all.parquet"), home / "all.parquet")
    assert [name for name in packed if name.startswith(("plugins", "studies", "recipes"))] == []
    assert b"secret.py: is not on the machine that packed this" in packed["README.md"]


def test_what_a_plugin_imports_is_packed_beside_it(home: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import helper\nfrom parts import one\nimport json\n")
    (tmp_path / "helper.py").write_text("from . import near\n")
    (tmp_path / "near.py").write_text("")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/one.py").write_text("")
    (study,) = load_studies(home / "runs")
    asked = study.plan.asked.model_copy(update={"plugins": [str(tmp_path / "mine.py")]})
    packed = bundles.pack([replace(study, plan=study.plan.model_copy(update={"asked": asked}))], home / "runs")
    names = [name.removeprefix("plugins/") for name in packed if name.startswith("plugins/")]
    assert sorted(names) == ["helper.py", "mine.py", "parts/one.py"]


def test_files_whose_names_no_bundle_may_have_are_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("")
    packer = bundles.Packer(LocalPaths(()), with_own_files=True)
    for name in ("recipes/a\\b.py", "recipes/a\nb.py", "recipes/1/2/3/4/5/6/7/x.py"):
        packer.add_code(name, tmp_path / "x.py")
    assert (packer.files, len(packer.left_out)) == ({}, 3)
    assert "too many folders" in packer.left_out[2]


def test_no_module_that_a_bundle_or_an_export_names_is_imported(
    home: Path, ablate: Ablate, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "evil.py").write_text("open('harmed', 'w')")
    monkeypatch.syspath_prepend(home)
    (study,) = load_studies(home / "runs")
    study = replace(study, plan=study.plan.model_copy(update={"trainable": "evil:X", "seals": []}))
    export.write([study], home / "evil.parquet")
    rewrite(home / "evil.zip", {"results.parquet": (home / "evil.parquet").read_bytes()}, summed=True)
    for source in ("evil.parquet", "evil.zip"):
        assert "trains code of its authors" in refusal(ablate, "verify", source)
    message = "evil.parquet: s@r trains code of its authors: read it, and plan it here first"
    for runs in ("runs", "elsewhere"):
        assert message in refusal(ablate, "import", "evil.parquet", "--runs", runs)
    assert not (home / "elsewhere").exists()
    assert ablate("bundle", "--runs", "evil.parquet", "--out", "others.zip")[0] == 0
    assert not (home / "harmed").exists()
    files = files_in(home / "b.zip") | {"results.parquet": b"no export"}
    rewrite(home / "evil.zip", files, summed=True)
    assert refusal(ablate, "verify", "evil.zip").startswith("ablate: evil.zip")
    for source in ("b", "b.zip"):
        assert f"--runs {source}: is a bundle" in refusal(ablate, "table", "--runs", source)


def test_no_more_is_unpacked_than_an_archive_states(tmp_path: Path) -> None:
    stated, real = 10, 2**23
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("x", bytes(real), zipfile.ZIP_DEFLATED)
    payload = (tmp_path / "c.zip").read_bytes()
    (tmp_path / "c.zip").write_bytes(payload.replace(real.to_bytes(4, "little"), stated.to_bytes(4, "little")))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="not a whole"):
            bundle_files.read_bundle(tmp_path / "c.zip")
        assert tracemalloc.get_traced_memory()[1] < real / 4
    finally:
        tracemalloc.stop()
