"""The command `ablate check`, which tests plug-ins, studies and recipes before anything is trained."""

import re
import traceback
from pathlib import Path
from typing import Annotated

import typer

import vitcore
from ablations.cli.answer import FAILED
from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import data_folder, load_plugins
from ablations.planning.checks import check as check_design
from ablations.planning.checks import check_margin
from ablations.planning.plan import description
from ablations.study import strict_yaml
from ablations.study.design import Design
from ablations.study.naming import RECIPE, packaged_names
from ablations.study.reading import kind_of, read_recipe, read_study
from ablations.study.recipe import Recipe
from ablations.study.stages import Values
from ablations.study.undeclared import footnotes
from ablations.trainables.trainable import find
from ablations.trainables.vit import plugins
from results.store.schemas import Settings
from vitcore.contracts import contracts
from vitcore.data.builtin import BUILT_IN
from vitcore.data.lookup import find_pack
from vitcore.sizes import REFERENCE
from vitcore.variants import VARIANTS


def check(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|NAME", help="Plug-ins (.py), studies or recipes (.yaml or their names), or 'all'."
        ),
    ],
    recipe: parameters.RecipeName = None,
    plugin: parameters.Plugins = None,
) -> None:
    """Test a plug-in, a study or a recipe.

    Runs the contract tests on the parts of a plug-in. Lists the arms and confounds of a study. Builds the model of a
    recipe. `all` stands for every packaged part, study and recipe. The exit status is 1 if a check fails, and 2 if
    something cannot be checked, such as a plug-in that does not import.

    Examples:

        ablate check fourier.py
        ablate check mine.yaml --recipe cifar10
        ablate check all
    """
    load_plugins(plugin)
    data_folder(None)
    chosen = read_recipe(recipe or RECIPE)
    if not all([check_word(word, chosen) for word in words]):
        raise typer.Exit(FAILED)


def check_word(word: str, recipe: Recipe) -> bool:
    """Check what `word` names, print one line per check, and return whether all checks pass.

    word: a plug-in, a study, a recipe or "all". recipe: the recipe for studies. Raises ValueError if `word` names
    nothing to check or an invalid study or recipe. Also raises the errors of `check_plugin`.
    """
    if word == "all":
        return check_everything(recipe)
    if word.endswith(".py"):
        return check_plugin(Path(word))
    if word.endswith((".yaml", ".yml")):
        return check_study(word, recipe) if kind_of(strict_yaml.read(Path(word))) == "study" else check_recipe(word)
    if word in packaged_names("studies"):
        return check_study(word, recipe)
    if word in packaged_names("recipes"):
        return check_recipe(word)
    raise ValueError(f"{word}: not a plug-in (.py), a study or recipe (.yaml, or a name of `ablate list`), or 'all'")


def check_everything(recipe: Recipe) -> bool:
    """Check all packaged parts, studies and recipes; return whether all pass. An error does not end the checks."""
    passed = [check_part(slot, name) for slot, parts in VARIANTS.items() for name in parts]
    for name in (*packaged_names("studies"), *packaged_names("recipes")):
        try:
            passed.append(lacks_data(name) or check_word(name, recipe))
        except ValueError as error:
            print(f"{name}\n  FAILED  {message_line(error)}")
            passed.append(False)
    return all(passed)


def lacks_data(name: str) -> bool:
    """Return whether `name` is a recipe whose pack is missing. If so, print that the recipe is skipped."""
    data = read_recipe(name).config["data"] if name in packaged_names("recipes") else "digits"
    if data in BUILT_IN or find_pack(data) is not None:
        return False
    print(f"{name}\n  skipped data={data}: no such pack here")
    return True


def check_plugin(file: Path) -> bool:
    """Run the contract tests on the parts of a plug-in, and return whether all pass.

    Raises ValueError if the plug-in cannot be loaded or adds no part.
    """
    plugin = plugins.loaded(file)
    if not (plugin.parts or plugin.models):
        raise ValueError(f"plugin {file}: adds nothing to {', '.join(filter(str.isupper, dir(vitcore)))}")
    print(file)
    passed = [check_part(slot, name, file) for slot, name in plugin.parts]
    return all([*passed, *(check_part("model", f"{REFERENCE}{name}", file) for name in plugin.models)])


def check_part(slot: str, name: str, file: Path | None = None) -> bool:
    """Run the contract tests on a variant, and return whether all pass. file: the plug-in of the variant, if any.

    Failures with the same message, or at the same line of the plug-in, are printed once. A last line names the others.
    """
    causes: set[str] = set()
    repeated = []
    for title, contract in contracts(slot, name):
        try:
            contract(slot, name)
            print(f"  ok      {slot}={name}: {title}")
        except (Exception, SystemExit) as error:  # any exception of a user's part is a failed check, not a crash
            message, line = message_line(error), innermost_line(error, file)
            cause = line or message
            if cause in causes:
                repeated.append(title)
                continue
            causes.add(cause)
            print(f"  FAILED  {slot}={name}: {title}: {message}{hint(error)}{line}")
    if repeated:
        print(f"  FAILED  {slot}={name}: the same again: {'; '.join(repeated)}")
    return not causes


def hint(error: BaseException) -> str:
    """Return advice for an error about dtypes, or "" for any other error."""
    raised = error.__cause__ or error
    if isinstance(raised, AssertionError) or not re.search(r"dtype|\b(float|double)\b", str(raised), re.IGNORECASE):
        return ""
    return " (the check runs in float64: follow x.dtype)"


def innermost_line(error: BaseException, file: Path | None) -> str:
    """Return the plug-in's innermost line in the traceback as " [FILE:LINE]", or "" if there is none."""
    raised = error.__cause__ or error.__context__ or error
    frames = traceback.extract_tb(raised.__traceback__)
    lines = [frame.lineno for frame in frames if file and Path(frame.filename).resolve() == file.resolve()]
    return f" [{file}:{lines[-1]}]" if lines else ""


def message_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def check_study(file: str, recipe: Recipe) -> bool:
    """Check every arm of a study, print the arms and their confounds, and return True.

    Raises ValueError if an arm is not valid or its model cannot be built.
    """
    design = Design(read_study(file, recipe.train), recipe, {})
    check_design(design)
    arms = {arm.name: arm for arm in design.arms}
    for arm in design.arms:
        description(design.trainable, arm.name, arm.config)  # builds the model
    print(f"{file} on recipe {recipe.name}")
    for arm in design.arms:
        notes = "; ".join(footnotes(arm, arms[arm.baseline], design.study.budget))
        role = "baseline" if arm.name == arm.baseline else notes or "nothing else differs"
        print(f"  ok      {arm.name}: {role}")
    return True


def check_recipe(file: str) -> bool:
    """Check the configs of a recipe, its arms, axes and stages, print what was checked, and return True.

    Raises ValueError if a config is invalid or a model cannot be built.
    """
    recipe = read_recipe(file)
    trainable = find(recipe.train)
    check_margin(recipe.margin, file)

    def checked(where: str, own: Values) -> Settings:
        try:
            settings = trainable.resolve(trainable.merge(recipe.config, own))
            trainable.check_trial(settings, None)
        except ValueError as error:
            raise ValueError(f"{file}: {where}: {error}") from None
        return settings

    config = checked("config", {})
    axes = {key: values for key, values in recipe.axes.items() if not {*key.split(".")[:-1]} & VARIANTS.keys()}
    for key, values in axes.items():  # without options of variants, which a study may choose
        stage, _, name = key.rpartition(".")
        base = recipe.stages.get(stage, {})
        for value in values:
            checked(f"axes: {key}", trainable.merge(base, {name: value}))
    size = trainable.describe(config)
    print(
        f"{file}\n  ok      {size['params']:,} parameters, {size['flops']:,} FLOPs an image, {config['steps']:,} steps"
    )
    for name, settings in recipe.arms.items():
        flops = trainable.describe(checked(f"arm {name}", settings))["flops"]
        ratio = f"{flops / size['flops']:.2g}"
        times = "the same" if ratio == "1" else f"{ratio} times the"
        print(f"  ok      arm {name}: {times} FLOPs")
    if axes:
        print(f"  ok      the values of axes {', '.join(axes)}")
    for name, settings in recipe.stages.items():
        config = checked(f"stage {name}", settings)
        print(f"  ok      stage {name}: {config['steps']:,} steps of {config['batch']} images of {config['data']}")
    return True
