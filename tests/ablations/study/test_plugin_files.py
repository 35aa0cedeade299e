"""What a plug-in imports: modules beside it can be imported, and every local file is in the ids of its parts."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from unittest.mock import patch

import pytest
from in_process import Ablate, refusal

from ablations.cluster import campaign
from ablations.execution.launch import Place
from ablations.trainables.local_imports import NEIGHBORS
from ablations.trainables.vit import plugins
from ablations.trainables.vit.commands.part_checks import check_plugin
from slurm.profile import Profile
from vitcore import Config
from vitcore.identity import identity, trial_id
from vitcore.sizes import REGISTERED
from vitcore.variants import VARIANTS

Write = Callable[[dict[str, str]], Path]
PART = """
from vitcore import POSITION, Position

class Mine(Position):
    '''Adds a number.'''

    def tokens(self, x, layer, grid):
        {inside}
        return x

POSITION["mine"] = Mine
"""
PLUGIN = "import helper\nfrom pkg.inner import scale" + PART.format(inside="from late import more")
FILES = {
    "mine.py": PLUGIN,
    "helper.py": "import importlib\nliteral = importlib.import_module('literal')\n",
    "literal.py": "import json, torch\n",
    "late.py": "def more(): return 1\n",
    "pkg/__init__.py": "from . import deep\nfrom .stars import *\n",
    "pkg/deep.py": "D = 1\n",
    "pkg/stars.py": "__all__ = ['D']\nfrom pkg.deep import D\n",
    "pkg/inner.py": "import importlib\nfrom .deep import D\nimport space.part\n"
    "def scale(): return D, importlib.import_module('.named', __package__)\n",
    "pkg/named.py": "",
    "space/part.py": "S = 1\n",
    "unused.py": "U = 1\n",
    "pkg/unused.py": "U = 1\n",
}
IMPORTED = sorted(FILES.keys() - {"mine.py", "unused.py", "pkg/unused.py"})
TOPS = {name.partition("/")[0].removesuffix(".py") for name in FILES}


@contextmanager
def alone() -> Iterator[None]:
    """Forget what is loaded inside the block, as another process would."""
    with ExitStack() as restored:
        for named in (*VARIANTS.values(), NEIGHBORS.folders, NEIGHBORS.files, plugins.LOADED, REGISTERED):
            restored.enter_context(patch.dict(named))
        known = {*sys.modules}
        yield
    for name in {*sys.modules} - known:
        if name.partition(".")[0] in TOPS or name.startswith("plugin_"):
            del sys.modules[name]


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Write]:
    """Return a function that writes files into a new folder and returns it. All that is loaded is forgotten."""
    folders = []

    def files(sources: dict[str, str]) -> Path:
        folder = tmp_path / str(len(folders))
        folders.append(folder)
        for name, source in sources.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(dedent(source))
        return folder

    with alone():
        yield files


def digest(plugin: Path) -> str:
    """Return the digest of a plug-in that is loaded alone, as by a worker."""
    with alone():
        return plugins.loaded(plugin).digest


def test_every_local_file_that_a_plugin_imports_is_in_its_digest(write: Write) -> None:
    """Modules and packages, by relative imports, inside functions, by literal names, and folders without __init__."""
    same = digest(write(FILES) / "mine.py")
    with alone():
        found = plugins.loaded(write(FILES) / "mine.py")
    assert sorted(str(file.relative) for file in found.files) == IMPORTED
    assert found.digest == same
    for name in IMPORTED:
        assert digest(write({**FILES, name: FILES[name] + "# edited\n"}) / "mine.py") != same, name


@pytest.mark.parametrize("name", ["unused.py", "pkg/unused.py"])
def test_what_a_plugin_does_not_import_is_not_in_its_digest(name: str, write: Write) -> None:
    assert digest(write({**FILES, name: "U = 2\n"}) / "mine.py") == digest(write(FILES) / "mine.py")


def test_a_trial_has_the_digest_in_its_id(write: Write) -> None:
    first = plugins.loaded(write(FILES) / "mine.py")
    assert identity(Config(position="mine"))["parts"]["position"] == first.digest


def test_a_plugin_without_neighbors_keeps_its_id(write: Write) -> None:
    """As version 0.23 hashed it: the file alone."""
    source = "import json, torch, timm, vitcore.config\nfrom results import store\n" + PART.format(inside="pass")
    plugins.loaded(write({"mine.py": source, "helper.py": "", "torch.txt": ""}) / "mine.py")
    assert trial_id(Config(position="mine")) == "2b9a3a4084cf"


def test_relative_imports_of_a_plugin_find_its_neighbors(write: Write) -> None:
    sources = {
        "mine.py": "from .helper import N\nfrom . import other" + PART.format(inside="x = x + N"),
        "other.py": "",
    }
    folder = write({**sources, "helper.py": "from .deeper import N\n", "deeper.py": "N = 2\n"})
    assert [file.module for file in plugins.loaded(folder / "mine.py").files] == ["deeper", "helper", "other"]
    assert sys.modules[VARIANTS["position"]["mine"].__module__].N == 2


def test_modules_that_a_package_loads_by_computed_names_are_found(write: Write) -> None:
    parts = "import importlib, pkgutil\nfor one in pkgutil.iter_modules(__path__):\n"
    parts += "    importlib.import_module(f'{__name__}.{one.name}')\n"
    sources = {"mine.py": "import pkg" + PART.format(inside="pass"), "pkg/__init__.py": parts, "pkg/a.py": "A = 1\n"}
    before = digest(write(sources) / "mine.py")
    assert digest(write({**sources, "pkg/a.py": "A = 2\n"}) / "mine.py") != before


def test_an_edit_within_the_same_second_is_run(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    """Compiled code is matched to its source by the second, so a plug-in's neighbors are read from their text."""
    folder = write({"mine.py": "from helper import N\nprint(N)\n", "helper.py": ""})
    for number in (1, 2):
        (folder / "helper.py").write_text(f"N = {number}\n")
        os.utime(folder / "helper.py", (1e9, 1e9))
        digest(folder / "mine.py")
    assert capsys.readouterr().out == "1\n2\n"
    assert not (folder / "__pycache__").exists()


def test_modules_on_pythonpath_are_local_files(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = write({"helper.py": "N = 1\n"})
    folder = write({"mine.py": "import helper\n"})
    monkeypatch.syspath_prepend(elsewhere)
    before = digest(folder / "mine.py")
    (elsewhere / "helper.py").write_text("N = 22\n")
    after = digest(folder / "mine.py")
    (folder / "helper.py").write_text("N = 22\n")
    assert before != after == digest(folder / "mine.py")


def test_packages_that_are_installed_elsewhere_are_no_local_files(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clusters put installed packages on PYTHONPATH."""
    monkeypatch.syspath_prepend(write({"site-packages/helper.py": "N = 1\n"}) / "site-packages")
    with alone():
        assert plugins.loaded(write({"mine.py": "import helper\n"}) / "mine.py").files == []


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        ({"random.py": ""}, "random.py"),
        ({"timm/__init__.py": ""}, "timm/"),
        ({"results.py": ""}, "results.py"),
        ({"vitcore/__init__.py": ""}, "vitcore/"),
    ],
)
def test_a_neighbor_with_the_name_of_another_module_is_bad_input(
    files: dict[str, str], shown: str, write: Write, ablate: Ablate
) -> None:
    """Of Python, of an installed package, or of this suite; also by way of another neighbor."""
    name = shown.strip("/").removesuffix(".py")
    folder = write({"mine.py": "import helper", "helper.py": f"import {name}", **files})
    errors = refusal(ablate, "check", str(folder / "mine.py"))
    assert f"mine.py: imports {name}, and both {shown} beside it and " in errors
    assert f" have this name: rename {shown}" in errors


def test_a_neighbor_that_is_not_imported_may_have_any_name(write: Write) -> None:
    folder = write({"mine.py": "import torch" + PART.format(inside="pass"), "random.py": "1 / 0", "torch/data.csv": ""})
    assert plugins.loaded(folder / "mine.py").files == []


def test_two_plugins_with_different_neighbors_of_one_name_are_bad_input(write: Write) -> None:
    """Even if each imports its own only when it runs. Equal ones are one module."""
    source = "def later():\n    import helper\n"
    first, same, other = (write({"mine.py": source, "helper.py": f"N = {number}\n"}) for number in (1, 1, 2))
    plugins.load([first / "mine.py", same / "mine.py"])
    with pytest.raises(ValueError, match=r"imports .*/helper\.py, and .*/helper\.py has its name: rename one"):
        plugins.load([other / "mine.py"])


def test_a_submission_takes_the_neighbors_along(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job finds the plan's digest, whatever becomes of the files by then."""
    folder = write(FILES)
    with alone():
        place = Place(tmp_path / "runs", None, plugins.load([folder / "mine.py"]))
        made = campaign.write(campaign.new(["study@recipe"], Profile.parse({"partition": "p"}, "profile"), place))
    monkeypatch.syspath_prepend(folder)
    for name in FILES:
        (folder / name).write_text("1 / 0")
    ((copy, planned),) = made.place.plugins.items()
    assert planned == place.plugins[str(folder / "mine.py")] == digest(Path(copy))


def test_plan_lists_the_local_files(write: Write, ablate: Ablate) -> None:
    folder = write(FILES)
    (folder / "s.yaml").write_text("{question: q, baseline: {position: 1d}, factors: {position: [1d, mine]}}")
    asked = ["plan", str(folder / "s.yaml"), "--plugin", str(folder / "mine.py"), "--runs", str(folder / "runs")]
    status, output, _ = ablate(*asked)
    assert status == 0
    assert f"  plug-in {folder / 'mine.py'}, with {', '.join(IMPORTED)}\n" in output


# -- a model of a plug-in ---------------------------------------------------------------------------------------------

CLASSIFIER = """
    from torch import nn
    from vitcore import MODEL, Classifier, Options
    from helper import HIDDEN

    class Net(Classifier):
        class Options(Options):
            width: int = HIDDEN

        def __init__(self, config):
            super().__init__(config)
            size = config.channels * config.image_size**2
            width = self.options.width
            layers = [nn.Flatten(), nn.Linear(size, width), nn.GELU(), nn.Linear(width, config.classes)]
            self.layers = nn.Sequential(*layers)

        def forward(self, images):
            return self.layers(images)

    MODEL["plain-net"] = Net
"""


def plain_net_id(folder: Path) -> str:
    with alone():
        plugins.load([folder / "mine.py"])
        return trial_id(Config(model="plain-net"))


def test_a_model_of_a_plugin_is_identified_by_its_files(write: Write) -> None:
    sources = {"mine.py": CLASSIFIER, "helper.py": "HIDDEN = 8\n"}
    before = plain_net_id(write(sources))
    assert plain_net_id(write(sources)) == before
    assert plain_net_id(write({**sources, "helper.py": "HIDDEN = 8  # edited\n"})) != before
    assert plain_net_id(write({**sources, "mine.py": CLASSIFIER.replace("GELU", "ReLU")})) != before


@pytest.mark.parametrize("how", ["--plugin", "ablate.toml"])
def test_a_command_takes_a_model_of_a_plugin(how: str, write: Write, tmp_path: Path, ablate: Ablate) -> None:
    """Settings are checked before plug-ins are loaded, and the name of the model after."""
    folder = write({"mine.py": CLASSIFIER, "helper.py": "HIDDEN = 8\n"})
    (folder / "s.yaml").write_text("{question: q, baseline: {model.width: 8}, factors: {model.width: [8, 16]}}")
    asked = ["plan", str(folder / "s.yaml"), "model=plain-net", "--runs", str(folder / "runs")]
    assert "model=plain-net: a size of " in refusal(ablate, *asked)
    if how == "--plugin":
        asked += ["--plugin", str(folder / "mine.py")]
    else:
        Path("ablate.toml").write_text(f"plugins = ['{folder / 'mine.py'}']")
    status, output, errors = ablate(*asked)
    assert status == 0, errors
    assert "model.width=16  parameters 1,210 against 610" in output


# -- models that a plug-in registers with timm -------------------------------------------------------------------------

MODEL = """
    import timm.models
    from torch import nn
    from helper import HIDDEN

    @timm.models.register_model
    def mine_net(pretrained=False, num_classes=10, in_chans=1, img_size=8, **_):
        size = in_chans * img_size * img_size
        return nn.Sequential(nn.Flatten(), nn.Linear(size, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, num_classes))
"""


def model_ids(folder: Path) -> tuple[str, str]:
    """Return the ids of trials with a model that a plug-in registers, as the model and as the teacher."""
    (folder / "teacher.safetensors").write_bytes(b"weights")
    with alone():
        plugins.load([folder / "mine.py"])
        own = trial_id(Config(model="timm/mine_net"))
        return own, trial_id(Config(teacher=f"timm/mine_net:{folder / 'teacher.safetensors'}"))


@pytest.mark.filterwarnings("ignore:Overwriting mine_net")
def test_a_model_that_a_plugin_registers_with_timm_is_identified_by_its_files(write: Write) -> None:
    """An edit of the file, or of a file that it imports, makes other trials of the model and of its pupils."""
    sources = {"mine.py": MODEL, "helper.py": "HIDDEN = 8\n"}
    before = model_ids(write(sources))
    assert model_ids(write(sources)) == before
    for name, edited in {"helper.py": "HIDDEN = 16\n", "mine.py": MODEL.replace("GELU", "ReLU")}.items():
        after = model_ids(write({**sources, name: edited}))
        assert after[0] != before[0]
        assert after[1] != before[1]


@pytest.mark.filterwarnings("ignore:Overwriting mine_net")
def test_a_registered_model_is_checked(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_plugin(write({"mine.py": MODEL, "helper.py": "HIDDEN = 8\n"}) / "mine.py")
    assert "  ok      model=timm/mine_net: resumes\n" in capsys.readouterr().out


def test_a_model_that_no_plugin_registered_has_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing says when its results are out of date."""
    import timm.models

    def nobodys_net(pretrained: bool = False, **how: object) -> object:
        return timm.create_model("test_resnet", **how)

    monkeypatch.setitem(sys.modules, "tests.nobody", ModuleType("tests.nobody"))
    nobodys_net.__module__ = "tests.nobody"
    timm.models.register_model(nobodys_net)
    with pytest.raises(ValueError, match=r"model=timm/nobodys_net: of tests\.nobody, neither timm's own nor of a"):
        trial_id(Config(model="timm/nobodys_net", image_size=32))
