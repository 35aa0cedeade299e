"""Check a user's plug-in, study or recipe before anything is trained: `ablate check`."""

import re
import traceback
from pathlib import Path

from ablations.planning.plan import check
from ablations.study import plugins, strict_yaml
from ablations.study.confounds import footnotes
from ablations.study.design import Design
from ablations.study.reading import read_recipe, read_study
from vitcore.analysis.cost import measure
from vitcore.config import Config, merge
from vitcore.contracts import contracts
from vitcore.data import splits
from vitcore.variants import VARIANTS


def check_file(file: Path, recipe: str) -> bool:
    """Print one line per check; return whether all pass. Raises ValueError for a file of another kind."""
    if file.suffix == ".py":
        return check_plugin(file)
    if file.suffix not in (".yaml", ".yml"):
        raise ValueError(f"{file}: is neither a plugin (.py) nor a study or recipe (.yaml)")
    if "question" in strict_yaml.read(file):
        return check_study(str(file), recipe)
    return check_recipe(str(file))


def check_plugin(file: Path) -> bool:
    """Check that a plug-in loads, and run the contract tests on every part it adds."""
    before = {(slot, name) for slot, parts in VARIANTS.items() for name in parts}
    try:
        plugins.load([file])
    except plugins.Refused as error:
        print(file)
        print(f"  FAILED  {message_line(error)}")
        return False
    added = [(slot, name) for slot, parts in VARIANTS.items() for name in parts if (slot, name) not in before]
    if not added:
        raise ValueError(f"plugin {file}: adds nothing to {', '.join(slot.upper() for slot in VARIANTS)}")
    print(file)
    return all([check_part(slot, name, file) for slot, name in added])


def check_part(slot: str, name: str, file: Path) -> bool:
    passed = True
    for title, contract in contracts(slot, name):
        try:
            contract(slot, name)
            print(f"  ok      {slot}={name}: {title}")
        except (Exception, SystemExit) as error:  # whatever a user's part raises is the answer, not a crash
            passed = False
            print(f"  FAILED  {slot}={name}: {title}: {message_line(error)}{hint(error)}{last_place(error, file)}")
    return passed


def hint(error: BaseException) -> str:
    """Name the dtype that a part fixes itself, for a dtype error of PyTorch."""
    raised = error.__cause__ or error
    if isinstance(raised, AssertionError) or not re.search(r"dtype|\b(float|double)\b", str(raised), re.IGNORECASE):
        return ""
    return " (the check runs in float64: follow x.dtype)"


def last_place(error: BaseException, file: Path) -> str:
    """Return where in the plug-in an exception was raised or passed through."""
    frames = traceback.extract_tb((error.__cause__ or error).__traceback__)
    own = [frame for frame in frames if Path(frame.filename).resolve() == file.resolve()]
    return f" [{file}:{own[-1].lineno}]" if own else ""


def message_line(error: BaseException) -> str:
    """Return the exception's message as one line."""
    return " ".join(str(error).split()) or type(error).__name__


def check_study(file: str, recipe: str) -> bool:
    """Build every arm and report what else differs from the baseline."""
    design = Design(read_study(file), read_recipe(recipe), {})
    check(design)
    arms = {arm.name: arm for arm in design.arms}
    print(f"{file} on recipe {design.recipe.name}")
    for arm in design.arms:
        notes = "; ".join(footnotes(arm, arms[arm.baseline], design.study.budget))
        role = "baseline" if arm.name == arm.baseline else notes or "nothing else differs"
        print(f"  ok      {arm.name}: {role}")
    return True


def check_recipe(file: str) -> bool:
    recipe = read_recipe(file)
    config = Config(**recipe.config)
    splits.check(config)
    size = measure(config)
    print(file)
    print(f"  ok      {size['params']:,} parameters, {size['flops']:,} FLOPs an image, {config.steps:,} steps")
    for name in recipe.arms:
        config = Config(**merge(recipe.config, recipe.arms[name]))
        splits.check(config)
        print(f"  ok      arm {name}: {measure(config)['flops'] / size['flops']:.2g} times the FLOPs")
    for name in recipe.stages:
        config = Config(**merge(recipe.config, recipe.stages[name]))
        splits.check(config)
        print(f"  ok      stage {name}: {config.steps:,} steps of {config.batch} images of {config.data}")
    return True
