"""Confounds: differences between an arm and its baseline other than the declared factor.

Side effects of the factor become footnotes of the table. An undeclared difference in settings is an error. Device, code
and kernels may differ from trial to trial: results/tables/provenance.py reports them.
"""

from collections.abc import Iterator, Mapping

from ablations.study import stages
from ablations.study.arms import Arm
from ablations.study.budget import MEANT, Budget
from ablations.study.naming import assignments
from results.store.schemas import Entry, Plan, Settings
from vitcore.analysis.cost import initial_weights, measure
from vitcore.data.lookup import FOLDER, describe
from vitcore.identity import HOW_IT_RUNS
from vitcore.runtime.host import Cost
from vitcore.sizes import is_architectural

# setting -> settings that follow from it; the data, for example, determine the image size
BRINGS: Mapping[str, tuple[str, ...]] = {
    "position": ("position_at",),
    "data": ("image_size", "channels", "classes"),
    "epochs": ("steps",),
}


def footnotes(arm: Arm, baseline: Arm, budget: Budget = "steps") -> list[str]:
    """Return the footnotes of an arm: its confounds and a note on enlarged images. A baseline has no confounds."""
    stored = enlargement_notes(arm.config.data, arm.config.image_size)
    if arm.name == baseline.name:
        return list(stored)
    return [
        *declared_notes(arm, baseline),
        *model_notes(arm, baseline),
        *schedule_notes(arm, baseline, budget),
        *stage_notes(arm, baseline),
        *weights_note(arm, baseline),
        *stored,
    ]


def enlargement_notes(data: str, size: int) -> Iterator[str]:
    """Yield a note if images are enlarged beyond their stored size. size: pixels per side of the model's input.

    The stored size of an image folder is the size of its first image.
    """
    about = describe(data)
    if size <= about.image_size:
        return
    if data.startswith(FOLDER):
        stored = "that the first image of the folder has"
    else:
        stored = f"of them that {data} is packed with" if "pack" in about.fingerprint else f"that {data} has"
    yield f"images of {size} px are enlarged from the {about.image_size} px {stored}"


def declared_notes(arm: Arm, baseline: Arm) -> Iterator[str]:
    """Yield notes on the settings of a named arm, on co-changed settings, and on a different training objective."""
    if arm.change.named:
        yield f"is {assignments(arm.change.settings)}"
    for key, value in arm.change.co_changes.items():
        yield f"with {key} {value} against {stages.value(baseline.config, baseline.parent, key)}, declared"
    if arm.config.objective != baseline.config.objective:
        yield f"its metrics are those of objective={arm.config.objective}, the baseline's {baseline.config.objective}"


def model_notes(arm: Arm, baseline: Arm) -> dict[str, str]:
    """Return the differences between the models of an arm and its baseline: note -> the table column it explains."""
    return dict(model_differences(measure(arm.config), measure(baseline.config)))


def model_differences(arm: Cost, baseline: Cost) -> Iterator[tuple[str, str]]:
    """Yield (note, table column) for each difference in tokens, parameters, FLOPs, class token or attention bias.

    Values that are None, as in timm's models, are not compared.
    """
    for own, other, label, column in (
        (arm.tokens, baseline.tokens, "tokens", "flops"),
        (arm.params, baseline.params, "parameters", "params"),
        (arm.flops, baseline.flops, "FLOPs", "flops"),
    ):
        if own is not None and other is not None and own != other:
            yield f"{label} {own:,} against {other:,}{change_text(own, other)}", column
    if None not in (arm.class_token, baseline.class_token) and arm.class_token != baseline.class_token:
        yield "has a class token" if arm.class_token else "has no class token", "params"
    if None not in (arm.attention_bias, baseline.attention_bias) and arm.attention_bias != baseline.attention_bias:
        yield "a bias in its attention" if arm.attention_bias else "no bias in its attention", "arm"


def change_text(value: float, reference: float) -> str:
    """Return the relative change as text such as " (+12.0%)" or " (× 3.9)", or "" if it rounds to zero."""
    ratio = value / reference
    if 0.5 < ratio < 2:
        percent = f"{ratio - 1:+.1%}"
        return "" if percent in ("+0.0%", "-0.0%") else f" ({percent})"
    return f" (× {ratio:,.0f})" if ratio >= 10 else f" (× {ratio:.2g})"


def schedule_notes(arm: Arm, baseline: Arm, budget: Budget) -> Iterator[str]:
    """Yield notes on undeclared differences in steps and warm-up, and on images seen if batch sizes differ."""
    own, other = arm.config, baseline.config
    said = arm.change.declared_settings
    if own.steps != other.steps and "steps" not in said:
        why = f", for equal {MEANT[budget]}" if budget != "steps" else ""
        yield f"steps {own.steps:,} against {other.steps:,}{why}"
    warmup, its_warmup = (round(config.warmup * config.steps) for config in (own, other))
    if warmup != its_warmup and "warmup" not in said:
        yield f"warm-up steps {warmup:,} against {its_warmup:,}"
    if own.batch != other.batch and own.steps * own.batch != other.steps * other.batch:
        yield f"images seen in training {own.steps * own.batch:,} against {other.steps * other.batch:,}"


def stage_notes(arm: Arm, baseline: Arm) -> Iterator[str]:
    """Yield a note on the stage that the arm starts or learns from, unless the baseline has an equal stage."""
    if arm.parent is None or (baseline.parent is not None and baseline.parent.config == arm.parent.config):
        return
    own = arm.parent.config
    note = f"{'starts' if arm.parent.link == 'init_from' else 'learns'} from {arm.parent.name}: "
    note += f"{own.steps:,} steps of {own.batch} images of {own.data} at {own.image_size} px"
    if own.objective != "classification":
        note += f", objective {own.objective}"
    elif own.data == arm.config.data and own.data_fraction > arm.config.data_fraction:
        fractions = f"data_fraction {own.data_fraction:g}, the arm itself {arm.config.data_fraction:g}"
        note += f"; it saw labels of more images of the same task ({fractions}), which the difference measures too"
    yield note


def weights_note(arm: Arm, baseline: Arm) -> Iterator[str]:
    """Yield a note on the fraction of an arm's initial weights that equal the baseline's at the same seed.

    Yields nothing if all weights are equal, or if a model is from timm or starts from a stage's weights.
    """
    own, other = initial_weights(arm.config), initial_weights(baseline.config)
    parents = (arm.parent, baseline.parent)
    if own is None or other is None or any(parent and parent.link == "init_from" for parent in parents):
        return
    total = sum(count for count, _ in own.values())
    same = sum(drawn[0] for name, drawn in own.items() if other.get(name) == drawn)
    if same / total < 0.001:  # only constants are equal, such as biases that start at zero
        yield "almost none of its initial weights are the baseline's"
    elif same < total:
        yield f"{min(same / total, 0.999):.1%} of its initial weights are the baseline's"


def refuse_undeclared(plan: Plan) -> None:
    """Raise ValueError for undeclared differences in settings between arms and baselines, or between their stages."""
    arms = {arm.name: arm for arm in plan.arms}
    for arm in plan.arms:
        baseline = arms.get(arm.baseline)
        allowed = None if baseline is None else allowed_settings(arm, baseline, plan)
        if baseline is None or allowed is None:
            continue
        refuse_undeclared_start(plan, arm, baseline, allowed)
        if difference := undeclared_difference(arm, baseline, allowed):
            raise ValueError(
                f"{plan.name}: {arm.name} differs from {arm.baseline} in {difference}, "
                "which the study does not declare: name it in `with`, or plan anew with --prune"
            )


def refuse_undeclared_start(plan: Plan, arm: Entry, baseline: Entry, allowed: set[str]) -> None:
    """Raise ValueError if a stage of the arm and the same stage of its baseline differ in an undeclared setting.

    allowed: the settings in which arm and baseline may differ, such as pretrain.lr.
    """
    there = {entry.name: entry for entry in plan.stages}
    own, other = (there.get(one.parent) for one in (arm, baseline))
    while own is not None and other is not None and own.stage == other.stage:
        prefix = f"{own.stage}."
        declared = {key.removeprefix(prefix) for key in allowed if key.startswith(prefix)}
        declared |= {brought for key in declared for brought in BRINGS.get(key, ())}
        declared |= {key for key in allowed if is_architectural(key)}  # a stage has the model of its children
        if difference := undeclared_difference(own, other, declared):
            raise ValueError(
                f"{plan.name}: {own.name}, from which {arm.name} starts, differs from {other.name} in {difference}, "
                "which the study does not declare"
            )
        own, other = there.get(own.parent), there.get(other.parent)


def allowed_settings(arm: Entry, baseline: Entry, plan: Plan) -> set[str] | None:
    """Return the settings in which an arm may differ from its baseline.

    Returns None for a named arm in a plan of an earlier version, because such plans record no declared settings.
    """
    said = arm.declared
    if said is None:  # in plans of earlier versions
        said = [key for key, value in arm.values.items() if value != baseline.values.get(key)]
        if arm.name != arm.baseline and not said:
            return None
    budget = {"steps"} if plan.budget != "steps" else set()
    return {*said, *budget, *(brought for key in said for brought in BRINGS.get(key, ()))}


def undeclared_difference(entry: Entry, reference: Entry, declared: set[str]) -> str:
    """Return the first undeclared difference between two entries as text with both values, or "" if there is none."""
    own, other = learning_settings(entry.config), learning_settings(reference.config)
    for key in sorted(own.keys() | other.keys()):
        if own.get(key) != other.get(key) and not any(covers(one, key) for one in declared):
            return f"{key}, {own.get(key)} against {other.get(key)}"
    return ""


def covers(declared: str, key: str) -> bool:
    """Return whether a declared setting includes the setting `key`.

    A slot includes the options of its variants. `model` includes all settings of the architecture.
    """
    return declared == key or declared == key.partition(".")[0] or (declared == "model" and is_architectural(key))


def learning_settings(config: Settings) -> Settings:
    """Return the settings that affect what is learned, including the options of variants."""
    whole = {**config, **config.get("options", {})}
    return {key: value for key, value in whole.items() if key != "options" and key not in HOW_IT_RUNS}
