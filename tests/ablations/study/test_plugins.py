"""Plug-ins: added parts have an identity; a file that adds anything else is refused in one line."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from textwrap import dedent
from unittest.mock import patch

import pytest
from in_process import Ablate, refusal

from ablations.trainables.vit import plugins
from ablations.trainables.vit.commands.part_checks import check_plugin
from vitcore.analysis.evals import EVAL
from vitcore.config import Config
from vitcore.identity import identity, trial_id
from vitcore.variants import VARIANTS

Write = Callable[..., Path]
ADDS = "from vitcore.model.position import POSITION, Position\n"
HELPER = """
    from vitcore.model.position import Position

    class Mine(Position):
        '''Nothing (arXiv 0000.00000).'''
"""
REFUSED = [
    ("POSITION['x'] = 3", "position=x is 3, not a Position class"),
    ("POSITION['x'] = Position.tokens", "not a Position class"),
    ("POSITION[3] = Position", "position=3: a name is a string"),
    ("from vitcore.model.pooling import GlobalAverage\nPOSITION['x'] = GlobalAverage", "not a Position class"),
    ("POSITION.clear()", "redefines position=none"),
    ("class X(Position):\n  neutral = {'base': 1.0}\nPOSITION['x'] = X", "'neutral' names base, which is no option"),
    ("class X(Position):\n  neutral = ['base']\nPOSITION['x'] = X", "'neutral' is ['base'], not option -> value"),
    ("class X(Position):\n  class Options: base = 1\nPOSITION['x'] = X", "'Options' is no subclass of Variant.Options"),
    ("class X(Position):\n  places = None\nPOSITION['x'] = X", "break the check of every config: TypeError"),
    (
        "from vitcore import Pooling\nclass X(Pooling):\n  every_layer = True",
        "X.every_layer: gone; override `gather`",
    ),
    ("from vitcore import EVAL\nEVAL['x'] = print", "eval x is <built-in function print>, not an Eval class"),
    ("from vitcore import EVAL\ndel EVAL['knn']", "redefines the eval knn: choose another name"),
    ("from vitcore import EVAL, Eval\nEVAL['a/b'] = Eval", "eval 'a/b': small letters, digits and hyphens"),
    (
        "from vitcore import EVAL, Eval\nclass X(Eval):\n  metrics = {'loss': {}}\nEVAL['x'] = X",
        "eval x: metric loss: a name that starts with x",
    ),
    ("from vitcore import MODEL, Classifier\nMODEL['S/4'] = Classifier", "model=S/4: a name without '/'"),
    ("from torch import nn\nfrom vitcore import MODEL\nMODEL['x'] = nn.Linear", "not a Classifier class"),
    ("import sys; sys.exit(3)", "it ends the program (exit status 3)"),
    ("exit()", "it ends the program"),
    ("x = (", "does not import: SyntaxError"),
    ("import nowhere", "does not import: ModuleNotFoundError: No module named 'nowhere'"),
    ("raise ValueError('plugin of\\ntwo lines')", "does not import: ValueError: plugin of"),
]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Return a function that writes a file into a folder of plug-ins. Parts and modules are restored at the end."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def file(name: str, source: str) -> Path:
        (tmp_path / name).write_text(dedent(source))
        return tmp_path / name

    with ExitStack() as restored:
        for named in (*VARIANTS.values(), EVAL):
            restored.enter_context(patch.dict(named))
        yield file
    for name in set(sys.modules) - before:
        if name.startswith(("plugin_", "helper_")):
            del sys.modules[name]


@pytest.mark.parametrize(("source", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_plugin_that_cannot_be_loaded_is_bad_input(write: Write, ablate: Ablate, source: str, message: str) -> None:
    """Status 1 of `ablate check` means that a contract test failed."""
    write("mine.py", ADDS + source)
    before = {slot: dict(parts) for slot, parts in VARIANTS.items()}
    errors = refusal(ablate, "check", "mine.py")
    assert errors.startswith("ablate: plugin ")
    assert message in errors
    assert before == VARIANTS


def test_an_eval_of_a_plugin_is_a_metric_of_studies(write: Write, ablate: Ablate, tmp_path: Path) -> None:
    source = """
        from vitcore import EVAL, Computed, Eval

        class Norm(Eval):
            metrics = {"norm_loss": {"higher_is_better": False, "unit": " m"}}

            def compute(self, model, data_dir=None):
                return Computed({"norm_loss": model.head.weight.norm().item()})

        EVAL["norm"] = Norm
    """
    write("mine.py", source)
    (tmp_path / "s.yaml").write_text("{question: q, baseline: {heads: 2}, factors: {heads: [1]}, metric: norm_loss}")
    tiny = ("width=16", "depth=1", "steps=2", "batch=8", "--seeds", "2")
    assert ablate("run", "s.yaml", *tiny, "--plugin", "mine.py")[0] == 0
    status, output, _ = ablate("table", "s.yaml", *tiny[:4], "--format", "json")
    assert status == 0
    assert '"metric": "norm_loss"' in output
    assert '"missing": 0' in output
    assert "ok      eval=norm: computes its metrics" in ablate("check", "mine.py")[1]


def test_plugin_that_is_loaded_already_is_checked(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    """ablate.toml may name the plug-in, so that it is loaded before the check."""
    path = write("mine.py", "from vitcore import POSITION, Position\nPOSITION['x'] = Position")
    plugins.load([path])
    check_plugin(path)
    assert "  ok      position=x: trains\n" in capsys.readouterr().out


def test_interrupt_passes(write: Write) -> None:
    path = write("mine.py", ADDS + "POSITION['x'] = Position\nraise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        plugins.load([path])
    assert "x" not in VARIANTS["position"]


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("def __init__(self, width, grid): pass", "arm position=x cannot be built: TypeError: "),
        ("@classmethod\n    def check(cls, config): raise KeyError('old')", "arm position=x: KeyError: 'old'"),
    ],
)
def test_a_part_for_an_earlier_version_is_bad_input(write: Write, ablate: Ablate, method: str, said: str) -> None:
    write("mine.py", f"{ADDS}class X(Position):\n    {method}\nPOSITION['x'] = X")
    write("ablate.toml", "plugins = ['mine.py']")
    write("s.yaml", "{question: q, baseline: {position: 1d}, factors: {position: [1d, x]}}")
    assert said in refusal(ablate, "check", "s.yaml")


def test_part_of_a_helper_module_is_identified_by_the_plugin(write: Write) -> None:
    write("helper_one.py", HELPER)
    path = write(
        "mine.py", "from helper_one import Mine\nfrom vitcore.model.position import POSITION\nPOSITION['x'] = Mine"
    )
    digest = plugins.load([path])[str(path)]
    assert identity(Config(position="x"))["parts"]["position"] == digest


def test_two_plugins_cannot_both_identify_a_class(write: Write) -> None:
    write("helper_two.py", HELPER)
    add = "from helper_two import Mine\nfrom vitcore.model.position import POSITION\n"
    plugins.load([write("first.py", add + "POSITION['first'] = Mine")])
    with pytest.raises(ValueError, match=r"adds Mine, which another plugin adds: let it declare numerics"):
        plugins.load([write("second.py", add + "POSITION['second'] = Mine")])


def test_name_for_a_built_in_part_keeps_its_numerics(write: Write) -> None:
    add = "from vitcore.model.position import POSITION, Learned2D\nPOSITION['x'] = Learned2D"
    before = trial_id(Config(position="2d"))
    plugins.load([write("mine.py", add)])
    assert identity(Config(position="x"))["parts"]["position"] == 1
    assert trial_id(Config(position="2d")) == before


def test_part_that_ends_the_program_fails_its_contract(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    source = """
        import sys
        from vitcore.model.position import POSITION, Position

        class Ends(Position):
            '''Ends (arXiv 0000.00000).'''
            def __init__(self, config):
                sys.exit(3)

        POSITION["ends"] = Ends
    """
    path = write("mine.py", source)
    assert not check_plugin(path)
    output = capsys.readouterr().out
    assert f"  FAILED  position=ends: trains: 3 [{path}:8]\n" in output
    assert "  ok      position=ends: says what it is\n" in output


def test_exception_of_a_part_is_reported_with_its_line(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    source = """\
        import torch
        from vitcore.model.position import POSITION, Position

        class Fixed(Position):
            '''A product in float32.'''
            def tokens(self, x, layer, grid):
                return x @ torch.eye(x.shape[-1], device=x.device)

        POSITION["fixed"] = Fixed
    """
    path = write("mine.py", source)
    assert not check_plugin(path)
    first, again = [line for line in capsys.readouterr().out.splitlines() if "FAILED" in line]
    assert "position=fixed: exports: " in first
    assert first.endswith(f"(the check runs in float64: follow x.dtype) [{path}:7]")
    assert again == "  FAILED  position=fixed: the same again: is unchanged by compile; says where a patch is"


WRONG = """\
    import torch
    from vitcore import POOLING, POSITION, Pooling, Position

    class Wrong(Position):
        '''A table of the wrong length.'''
        def tokens(self, x, layer, grid):
            return x + torch.zeros(7, x.shape[-1], dtype=x.dtype, device=x.device)

    class Misspelled(Pooling):
        '''A pooling that calls what is not there.'''
        def forward(self, x, prefix):
            return x.average(dim=1)

    POSITION["wrong"], POOLING["misspelled"] = Wrong, Misspelled
"""


def test_one_mistake_is_printed_once(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong shape breaks nearly every contract, in other words on each device; so does a misspelled method."""
    path = write("mine.py", WRONG)
    assert not check_plugin(path)
    failed = [line for line in capsys.readouterr().out.splitlines() if "FAILED" in line]
    assert len(failed) == 4
    assert failed[0].startswith("  FAILED  position=wrong: trains: The size of tensor a (16)")
    assert failed[0].endswith(f" [{path}:7]")
    assert failed[1].startswith("  FAILED  position=wrong: the same again: deterministic; resumes; ")
    assert failed[2].startswith("  FAILED  pool=misspelled: trains: ")
    assert failed[3].startswith("  FAILED  pool=misspelled: the same again: deterministic; resumes; ")


def test_pooling_need_not_say_whether_it_reads_a_class_token(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    source = """
        from torch import Tensor
        from vitcore.model.pooling import POOLING, Pooling

        class Largest(Pooling):
            '''The largest value of the patches in each channel.'''
            def forward(self, x: Tensor, prefix: int) -> Tensor:
                return x[:, prefix:].amax(dim=1)

        POOLING["largest"] = Largest
    """
    assert check_plugin(write("mine.py", source)), capsys.readouterr().out


OF_TIMM = """
    import timm.optim
    from vitcore import OPTIMIZER, Optimizer

    class OfTimm(Optimizer):
        '''An optimizer of timm.'''
        @classmethod
        def make(cls, groups, config):
            return timm.optim.create_optimizer_v2(groups, opt="{name}", lr=config.lr)

    OPTIMIZER["of-timm"] = OfTimm
"""


def test_an_optimizer_is_checked_to_resume(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    """LAMB counts its steps in its groups, and a checkpoint stores them."""
    assert check_plugin(write("mine.py", OF_TIMM.format(name="lamb")))
    assert "  ok      optimizer=of-timm: resumes after every step\n" in capsys.readouterr().out


def test_an_optimizer_that_cannot_resume_fails_its_check(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert not check_plugin(write("mine.py", OF_TIMM.format(name="lookahead_adamw")))
    said = "optimizer=of-timm: trains: optimizer=of-timm: cannot be resumed: a step changes its attribute"
    assert f"  FAILED  {said} _base_optimizer: keep it in `state` or `param_groups`" in capsys.readouterr().out
