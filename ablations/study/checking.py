"""Check plug-ins, studies and recipes before anything is trained: `ablate check`."""

import re
import traceback
from pathlib import Path

from ablations.planning.plan import check
from ablations.study import plugins, strict_yaml
from ablations.study.confounds import footnotes
from ablations.study.design import Design
from ablations.study.reading import packaged, read_recipe, read_study
from vitcore.analysis.cost import measure
from vitcore.config import Config, merge
from vitcore.contracts import contracts
from vitcore.data import splits
from vitcore.data.datasets import BUILT_IN
from vitcore.data.lookup import pack_of
from vitcore.variants import VARIANTS


def check_word(word: str, recipe: str) -> bool:
    """Print one line per check; return whether all pass. Raises ValueError for a word that names nothing to check."""
    if word == "all":
        return check_everything(recipe)
    if word.endswith(".py"):
        return check_plugin(Path(word))
    if word.endswith((".yaml", ".yml")):
        return check_study(word, recipe) if "question" in strict_yaml.read(Path(word)) else check_recipe(word)
    if word in packaged("studies"):
        return check_study(word, recipe)
    if word in packaged("recipes"):
        return check_recipe(word)
    raise ValueError(f"{word}: not a plug-in (.py), a study or recipe (.yaml, or a name of `ablate list`), or 'all'")


def check_everything(recipe: str) -> bool:
    """Check every part, study and recipe of the package. Print errors and continue."""
    passed = [check_part(slot, name) for slot, parts in VARIANTS.items() for name in parts]
    for name in (*packaged("studies"), *packaged("recipes")):
        try:
            passed.append(without_data(name) or check_word(name, recipe))
        except ValueError as error:
            print(f"{name}\n  FAILED  {message_line(error)}")
            passed.append(False)
    return all(passed)


def without_data(name: str) -> bool:
    """If the recipe's pack is missing, print that it is skipped. Return whether it was."""
    data = read_recipe(name).config["data"] if name in packaged("recipes") else "digits"
    if data in BUILT_IN or pack_of(data) is not None:
        return False
    print(f"{name}\n  skipped data={data}: no such pack here")
    return True


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


def check_part(slot: str, name: str, file: Path | None = None) -> bool:
    """Run the contract tests on one entry; `file` is the plug-in that added it."""
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


def last_place(error: BaseException, file: Path | None) -> str:
    """Return where in the plug-in an exception was raised or passed through."""
    if file is None:
        return ""
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
    print(f"  ok      {size.params:,} parameters, {size.flops:,} FLOPs an image, {config.steps:,} steps")
    for name in recipe.arms:
        config = Config(**merge(recipe.config, recipe.arms[name]))
        splits.check(config)
        print(f"  ok      arm {name}: {measure(config).flops / size.flops:.2g} times the FLOPs")
    for name in recipe.stages:
        config = Config(**merge(recipe.config, recipe.stages[name]))
        splits.check(config)
        print(f"  ok      stage {name}: {config.steps:,} steps of {config.batch} images of {config.data}")
    return True
