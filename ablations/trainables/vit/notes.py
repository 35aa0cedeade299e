"""Footnotes on what else differs between an arm and its baseline: the model, the schedule, initial weights, stages."""

from collections.abc import Iterator, Sequence

from ablations.trainables.trainable import Compared
from ablations.trainables.vit.data import enlargement_notes
from ablations.trainables.vit.planned import MEANT, config_of
from vitcore.analysis.cost import initial_weights, measure, trained_params
from vitcore.config import Config
from vitcore.runtime.host import Cost


def notes(arm: Compared, baseline: Compared, budget: str) -> dict[str, str]:
    """Return the footnotes of an arm: note -> the table column that it explains, or ""."""
    config = config_of(arm.settings)
    of_data = dict.fromkeys(enlargement_notes(config.data, config.image_size), "")
    if arm.name == baseline.name:
        return of_data
    other = config_of(baseline.settings)
    columns: dict[str, str] = {}
    if config.objective != other.objective:
        columns[f"its metrics are those of objective={config.objective}, the baseline's {other.objective}"] = ""
    (height, width), (other_height, other_width) = config.image_shape, other.image_shape
    if height * other_width != width * other_height:
        columns[
            f"sees the middle of an image in the aspect {height}:{width}, the baseline {other_height}:{other_width}"
        ] = ""
    columns |= dict(model_differences(measure(config), measure(other)))
    if config.trainable != other.trainable:
        columns[f"trains {trained_params(config):,} parameters, the baseline {trained_params(other):,}"] = "params"
    columns |= dict.fromkeys(schedule_notes(config, other, arm.declared, budget), "")
    columns |= dict.fromkeys(stage_notes(arm, baseline), "")
    columns |= dict.fromkeys(weights_note(arm, baseline), "")
    return columns | of_data


def model_differences(arm: Cost, baseline: Cost) -> Iterator[tuple[str, str]]:
    """Yield (note, table column) for each difference in tokens, parameters, FLOPs, class token or attention bias."""
    for value, reference, label, column in (
        (arm.tokens, baseline.tokens, "tokens", "flops"),
        (arm.params, baseline.params, "parameters", "params"),
        (arm.flops, baseline.flops, "FLOPs", "flops"),
    ):
        if value is not None and reference is not None and value != reference:
            yield f"{label} {value:,} against {reference:,}{change_text(value, reference)}", column
    if None not in (arm.class_token, baseline.class_token) and arm.class_token != baseline.class_token:
        yield f"has {'a' if arm.class_token else 'no'} class token", "params"
    if None not in (arm.attention_bias, baseline.attention_bias) and arm.attention_bias != baseline.attention_bias:
        yield f"{'a' if arm.attention_bias else 'no'} bias in its attention", "arm"


def change_text(value: float, reference: float) -> str:
    """Return the relative change as text such as " (+12.0%)" or " (× 3.9)", or "" if it rounds to zero."""
    ratio = value / reference
    if 0.5 < ratio < 2:
        percent = f"{ratio - 1:+.1%}"
        return "" if percent in ("+0.0%", "-0.0%") else f" ({percent})"
    return f" (× {ratio:,.0f})" if ratio >= 10 else f" (× {ratio:.2g})"


def schedule_notes(own: Config, other: Config, declared: Sequence[str], budget: str) -> Iterator[str]:
    """Yield notes on undeclared differences in steps and warm-up, and on images seen if batch sizes differ."""
    if own.steps != other.steps and "steps" not in declared:
        why = f", for equal {MEANT[budget]}" if budget != "steps" else ""
        yield f"steps {own.steps:,} against {other.steps:,}{why}"
    warmup = round(own.warmup * own.steps)
    other_warmup = round(other.warmup * other.steps)
    if warmup != other_warmup and "warmup" not in declared:
        yield f"warm-up steps {warmup:,} against {other_warmup:,}"
    if own.batch != other.batch and own.steps * own.batch != other.steps * other.batch:
        yield f"images seen in training {own.steps * own.batch:,} against {other.steps * other.batch:,}"


def stage_notes(arm: Compared, baseline: Compared) -> Iterator[str]:
    """Yield a note on the stage that the arm starts or learns from, unless the baseline has an equal stage."""
    if arm.parent is None or (baseline.parent is not None and baseline.parent.settings == arm.parent.settings):
        return
    parent = config_of(arm.parent.settings)
    child = config_of(arm.settings)
    note = f"{'starts' if arm.link == 'init_from' else 'learns'} from {arm.parent.name}: "
    note += f"{parent.steps:,} steps of {parent.batch} images of {parent.data} at {parent.image_size} px"
    if parent.objective != "classification":
        note += f", objective {parent.objective}"
    elif parent.data == child.data and parent.data_fraction > child.data_fraction:
        fractions = f"data_fraction {parent.data_fraction:g}, the arm itself {child.data_fraction:g}"
        note += f"; it saw labels of more images of the same task ({fractions}), which the difference measures too"
    yield note


def weights_note(arm: Compared, baseline: Compared) -> Iterator[str]:
    """Yield a note if some initial weights differ from the baseline's, unless a model is from timm or a stage."""
    weights = initial_weights(config_of(arm.settings))
    of_baseline = initial_weights(config_of(baseline.settings))
    if weights is None or of_baseline is None or "init_from" in (arm.link, baseline.link):
        return
    total = sum(count for count, _ in weights.values())
    same = sum(drawn[0] for name, drawn in weights.items() if of_baseline.get(name) == drawn)
    if same / total < 0.001:  # only constants are equal, such as biases that start at zero
        yield "almost none of its initial weights are the baseline's"
    elif same < total:
        yield f"{min(same / total, 0.999):.1%} of its initial weights are the baseline's"
