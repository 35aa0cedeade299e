"""Packing a bundle: all that a deposit needs, without private names. Equal results give equal bytes."""

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

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ablations import provenance
from ablations.planning.bundle_files import RESULTS, SUMS, ZIP, check_size, is_name
from ablations.planning.local_paths import LocalPaths, user_code
from ablations.study.naming import stem
from ablations.study.reading import find_file
from ablations.trainables.local_imports import LocalImports
from ablations.trainables.user_code import UserCode
from commonfloor.files import read_bytes, safe_name, sync_folder, write_bytes
from results import export, report
from results.store import seals
from results.store.eval_files import Inspection
from results.store.record import THEN
from results.store.schemas.plans import Asked, Plan
from results.store.schemas.seals import Seal
from results.study_results import StudyResults
from results.tables import seal_notes, sentences, study_table

REPORT, README, CITATION, ENVIRONMENT = "report.html", "README.md", "CITATION.cff", "environment.txt"
EARLIEST = (1980, 1, 1, 0, 0, 0)  # the first date of a .zip file
UNKNOWN_START = "1980-01-01T00:00:00Z"
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


class Packer:
    """The files of a bundle. with_own_files: whether to pack what plans name, as an export of others names any file."""

    def __init__(self, paths: LocalPaths, with_own_files: bool) -> None:
        self.paths = paths
        self.with_own_files = with_own_files
        self.files: dict[str, bytes] = {}
        self.left_out: list[str] = []

    def add(self, name: str, payload: bytes) -> None:
        if self.files.setdefault(name, payload) != payload:
            raise ValueError(f"two files would be {name} in the bundle: rename one")

    def add_yaml(self, packed: str, file: str) -> str:
        """Add a study's or recipe's file as `packed`, and return what names it in a command."""
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
        elif not is_name(name):
            self.left_out.append(f"{name!a}: its name has unusual characters or too many folders")
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
        for file in asked.plugins:
            if file.endswith(".py"):
                plugins.append(f"plugins/{Path(file).name}")
                self.add_code(plugins[-1], Path(file))
                for name, path in self.imported(Path(file)).items():
                    self.add_code(f"plugins/{name}", path)
        code = user_code(plan)
        if code is not None and not Path(code.about.folder).is_dir():
            self.left_out.append(f"the code of {plan.recipe}: is not on the machine that packed this")
        elif code is not None and not is_current(code):
            self.left_out.append(f"the code of {plan.recipe}: was edited since")
        elif code is not None:
            for name in code.files:
                path = Path(code.about.folder, name)
                beside_recipe = Path("recipes", os.path.relpath(path, Path(asked.recipe).parent))
                self.add_code(os.path.normpath(beside_recipe), path)
        return asked.model_copy(update={"study": study, "recipe": recipe, "plugins": plugins, "data_dir": None})

    def imported(self, plugin: Path) -> dict[str, Path]:
        """Return the local files that a plug-in imports, without running it: name beside it -> path."""
        if not self.with_own_files or not plugin.is_file():
            return {}
        files = LocalImports.of_file(plugin, read_bytes(plugin)).files.values()
        return {file.relative.as_posix(): file.path for file in files}

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


def is_current(code: UserCode) -> bool:
    try:
        return code.about.current().digest == code.about.digest
    except ValueError:  # a file is gone
        return False


def pack(studies: Sequence[StudyResults], source: Path, inside: Mapping[str, Inspection] = {}) -> dict[str, bytes]:
    """Return the files of a bundle: name -> content. source: where the results are. inside: trial id -> inspection."""
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
    check_size(len(packer.files) + 1, sum(map(len, packer.files.values())), Path("the bundle"))
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
    installed = {dist.name.lower(): dist.version for dist in metadata.distributions() if dist.name}
    lines = [f"{name}=={version}" for name, version in sorted(installed.items())]
    comment = "# installed when the bundle was packed; the versions of each trial are in results.parquet"
    return "\n".join([comment, f"# Python {provenance.versions()['python']}", *lines, ""])


def citation_text(studies: Sequence[StudyResults]) -> str:
    """Return a CITATION.cff that names the studies, their sources and the suite. JSON texts are valid YAML."""
    names = ", ".join(study.name for study in studies)
    sources = dict.fromkeys(study.plan.source for study in studies if study.plan.source)
    return TEMPLATES.get_template("bundle_citation.cff.j2").render(
        title=json.dumps(f"Ablation results: {names}"),
        version=json.dumps(metadata.version("vit-ablations")),
        sources=list(map(json.dumps, sources)),
    )


def readme_text(studies: Sequence[StudyResults], sealed: Mapping[str, Seal], packer: Packer) -> str:
    views = []
    for study in studies:
        notes, warnings = seal_notes.seal_notes(study)
        view = {"name": study.name, "question": study.plan.question, "notes": [*warnings, *notes]}
        answer = sentences.answer(study_table.table(study))
        views.append(view | {"answer": answer, "again": report.rerun_command(study.plan)})
    return TEMPLATES.get_template("bundle_readme.md.j2").render(
        studies=views,
        sealed=sealed,
        folders={name.partition("/")[0] for name in packer.files if "/" in name},
        left_out=list(dict.fromkeys(packer.left_out)),
    )


def write(files: Mapping[str, bytes], out: Path) -> None:
    """Write a bundle to a new folder or a .zip file, completely or not at all. Raises ValueError if a folder exists."""
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
