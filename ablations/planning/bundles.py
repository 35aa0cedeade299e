"""Packing a bundle: results with all that a deposit needs, without folders and host names of this machine.

Equal results in an equal environment give equal bytes.
"""

import hashlib
import io
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from ablations import provenance
from ablations.planning.bundle_files import RESULTS, SUMS, ZIP
from ablations.planning.local_paths import LocalPaths, user_code
from ablations.study.naming import stem
from ablations.study.reading import find_file
from commonfloor.files import read_bytes, safe_name, sync_folder, write_bytes
from results import export, report
from results.store import seals
from results.store.eval_files import Inspection
from results.store.record import THEN
from results.store.schemas import Asked, Plan, Seal
from results.study_results import StudyResults
from results.tables import seal_notes, sentences, study_table

REPORT, README, CITATION, ENVIRONMENT = "report.html", "README.md", "CITATION.cff", "environment.txt"
EARLIEST = (1980, 1, 1, 0, 0, 0)  # the first date of a .zip file
UNKNOWN_START = "1980-01-01T00:00:00Z"
FILES = {
    REPORT: "tables, figures and verdicts; opens in a browser, without a network",
    RESULTS: "plans, metrics, training curves and per-image correctness of every trial",
    "studies/, recipes/": "what was asked, and on what",
    "plugins/": "the authors' own parts",
    "seals/": "what was declared before the first result",
    ENVIRONMENT: "the packages that were installed when this was packed",
    CITATION: "what to cite",
    SUMS: "the SHA-256 of every other file: `sha256sum -c SHA256SUMS`",
}


class Packer:
    """The files of a bundle, as they are added.

    with_own_files: whether to pack files that plans name by path. An export of others could name any file. left_out:
    what could not be packed as it is, and why.
    """

    def __init__(self, paths: LocalPaths, with_own_files: bool) -> None:
        self.paths = paths
        self.with_own_files = with_own_files
        self.files: dict[str, bytes] = {}
        self.left_out: list[str] = []

    def add(self, name: str, payload: bytes) -> None:
        """Add a file. Raises ValueError if another file has its name."""
        if self.files.setdefault(name, payload) != payload:
            raise ValueError(f"two files would be {name} in the bundle: rename one")

    def add_yaml(self, packed: str, file: str) -> str:
        """Add a study's or recipe's file without folders of this machine, and return what names it in a command.

        packed: its name in the bundle. file: its path, or the name of a packaged one.
        """
        is_packaged = stem(file) == file
        try:
            if not is_packaged and not self.with_own_files:
                raise FileNotFoundError
            text = find_file(packed.partition("/")[0], file).read_text(encoding="utf-8")
        except (OSError, ValueError):
            self.left_out.append(f"{packed}: is not on the machine that packed this")
            return Path(file).name
        without = self.paths.cut_text(text)
        if without != text:
            self.left_out.append(f"{packed}: folders of the authors' machine were cut from it")
        self.add(packed, without.encode())
        return file if is_packaged else packed

    def add_code(self, name: str, path: Path) -> None:
        """Add a file of code as it is, unless it is gone, lies elsewhere, or names a folder of this machine."""
        if not self.with_own_files or not path.is_file():
            self.left_out.append(f"{name}: is not on the machine that packed this")
        elif ".." in Path(name).parts:
            self.left_out.append(f"{path.name}: lies outside the recipe's folder")
        elif self.paths.are_in(read_bytes(path)):
            self.left_out.append(f"{name}: names a folder of the authors' machine")
        else:
            self.add(name, read_bytes(path))

    def add_inputs(self, plan: Plan) -> Asked:
        """Add the files of a plan's study, recipe and code. Return the plan's arguments as seen from the bundle."""
        asked = plan.asked or Asked(study=plan.study, recipe=plan.recipe)
        study = self.add_yaml(f"studies/{safe_name(plan.study)}.yaml", asked.study)
        recipe = self.add_yaml(f"recipes/{safe_name(plan.recipe)}.yaml", asked.recipe)
        plugins = []
        for file in filter(is_python, asked.plugins):
            plugins.append(f"plugins/{Path(file).name}")
            self.add_code(plugins[-1], Path(file))
        code = user_code(plan)
        if code is not None and not Path(code.about.folder).is_dir():
            self.left_out.append(f"the code of {plan.recipe}: is not on the machine that packed this")
        elif code is not None and code.about.current().digest != code.about.digest:
            self.left_out.append(f"the code of {plan.recipe}: was edited since")
        elif code is not None:
            for name in code.files:
                path = Path(code.about.folder, name)
                beside_recipe = Path("recipes", os.path.relpath(path, Path(asked.recipe).parent))
                self.add_code(os.path.normpath(beside_recipe), path)
        return asked.model_copy(update={"study": study, "recipe": recipe, "plugins": plugins, "data_dir": None})

    def public(self, study: StudyResults) -> StudyResults:
        """Return results without folders and host names of this machine."""
        cut = self.paths.cut
        plan = Plan(**cut(study.plan.content("asked")), asked=self.add_inputs(study.plan))
        beside = {"declarations": cut(study.plan.declarations), "seals": study.plan.seals}
        columns = cut(study.columns)
        columns["host"] = [""] * len(columns["host"])
        return replace(
            study,
            plan=plan.model_copy(update=beside),
            columns=columns,
            evaluations=cut(study.evaluations),
            metrics=tuple(map(cut, study.metrics)),
        )


def is_python(file: str) -> bool:
    return file.endswith(".py")


def pack(studies: Sequence[StudyResults], source: Path, inside: Mapping[str, Inspection] = {}) -> dict[str, bytes]:
    """Return the files of a bundle: name -> content. source: where the results are. inside: trial id -> inspection.

    Raises ValueError if two files would have one name.
    """
    packer = Packer(LocalPaths.of([study.plan for study in studies], source), with_own_files=source.is_dir())
    public = [packer.public(study) for study in studies]
    sealed: dict[str, Seal] = {}
    for study in public:
        for seal in study.plan.seals:
            sealed[seals.sha256(seal)] = seal
            packer.add(f"{seals.FOLDER}/{seals.file_name(seal)}", seals.seal_bytes(seal))
    packer.add(RESULTS, export.parquet(public, inside))
    packer.add(REPORT, report.render(public, last_start(public), inside).encode(errors="backslashreplace"))
    packer.add(ENVIRONMENT, environment_text().encode())
    packer.add(CITATION, citation_text(public).encode())
    packer.add(README, readme_text(public, sealed, packer).encode())
    lines = [f"{hashlib.sha256(payload).hexdigest()}  {name}\n" for name, payload in sorted(packer.files.items())]
    return {**packer.files, SUMS: "".join(lines).encode()}


def last_start(studies: Iterable[StudyResults]) -> datetime:
    """Return when the last trial began, which dates the report: the time of packing would change its bytes."""
    times = [UNKNOWN_START]
    for study in studies:
        for started in filter(None, study.columns["started"]):
            times.append(started.rpartition(THEN)[2])
    return datetime.fromisoformat(max(times))


def environment_text() -> str:
    """Return the installed packages as lines that pip takes, without the places that they were installed from."""
    installed = {dist.name.lower(): dist.version for dist in metadata.distributions() if dist.name}
    lines = [f"{name}=={version}" for name, version in sorted(installed.items())]
    comment = "# installed when the bundle was packed; the versions of each trial are in results.parquet"
    return "\n".join([comment, f"# Python {provenance.versions()['python']}", *lines, ""])


def citation_text(studies: Sequence[StudyResults]) -> str:
    """Return a CITATION.cff that names the studies, their sources and the suite. JSON texts are valid YAML."""
    names = ", ".join(study.name for study in studies)
    references: list[dict[str, Any]] = [
        {
            "type": "software",
            "title": "vit-ablations: ablation studies for Vision Transformers, with error bars",
            "version": metadata.version("vit-ablations"),
            "authors": [{"name": "The vit-ablations authors"}],
        }
    ]
    for source in dict.fromkeys(study.plan.source for study in studies if study.plan.source):
        references.append({"type": "generic", "title": source, "authors": [{"name": "The authors of the source"}]})
    content = {
        "cff-version": "1.2.0",
        "message": "Cite this deposit as the archive says, the source of each study, and the software.",
        "type": "dataset",
        "title": f"Ablation results: {names}",
        "authors": [{"name": "The depositors, as the archive names them"}],
        "references": references,
    }
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in content.items())


def readme_text(studies: Sequence[StudyResults], sealed: Mapping[str, Seal], packer: Packer) -> str:
    lines = ["# Ablation results", ""]
    for study in studies:
        table = study_table.table(study)
        notes, warnings = seal_notes.seal_notes(study)
        lines += [f"## {study.plan.question}", "", f"`{study.name}`: {sentences.answer(table)}", ""]
        lines += [f"- {note[:1].upper()}{note[1:]}." for note in (*warnings, *notes)]
        lines += [f"- Again: `{report.rerun_command(study.plan)}`", ""]
    for digest, seal in sealed.items():
        lines += [
            f"Seal of `{seal.declaration.plan}`: SHA-256 `{digest}`. Compare it with the one that was deposited.",
            "",
        ]
    lines += ["## Files", "", "| file | holds |", "|---|---|"]
    for name, meaning in FILES.items():
        folders = tuple(part for part in name.split(", ") if part.endswith("/"))
        if name in packer.files or name == SUMS or any(file.startswith(folders or "\0") for file in packer.files):
            lines.append(f"| `{name}` | {meaning} |")
    lines += [
        "",
        "## Check and use it",
        "",
        "With vit-ablations: `ablate verify .` checks every hash and trains three random trials anew; code of the "
        "authors only once you have read it and name its recipe (`--recipe`). "
        f"`ablate report --runs {RESULTS}` makes the page again. `ablate run STUDY --from .` takes these trials.",
        "",
        "Nothing in it runs when it is opened. Host names and folders of the authors' machine were left out.",
        "Weights are not in it.",
    ]
    if packer.left_out:
        lines += ["", "Not packed as it was:", "", *(f"- {line}." for line in dict.fromkeys(packer.left_out))]
    return "\n".join([*lines, ""])


def write(files: Mapping[str, bytes], out: Path) -> None:
    """Write a bundle to a folder or, if its name ends in .zip, to a file: completely or not at all.

    Raises ValueError if the folder exists already.
    """
    if out.suffix.lower() == ZIP:
        return write_bytes(out, zip_bytes(files))
    if os.path.lexists(out):
        raise ValueError(f"--out {out}: exists already: give a new folder, or a file that ends in {ZIP}")
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        for name, payload in files.items():
            write_bytes(temporary / name, payload)
        temporary.chmod(0o755)
        temporary.rename(out)
    except BaseException:
        shutil.rmtree(temporary)
        raise
    sync_folder(out.parent)


def zip_bytes(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, payload in sorted(files.items()):
            member = zipfile.ZipInfo(name, EARLIEST)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.create_system = 3  # Unix, whatever made it
            member.external_attr = 0o644 << 16
            archive.writestr(member, payload)
    return buffer.getvalue()
