"""Vision Transformers and their training by vitcore, as a trainable.

What loads NumPy or torch is imported when it is needed: commands that only read plans and results load neither.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablations import machine
from ablations.faults import Fault
from ablations.trainables.trainable import (
    Compared,
    EvalResult,
    Parent,
    Resources,
    Trainable,
    TrainingContext,
    TrainingOutcome,
)
from ablations.trainables.vit import machine_checks
from results import store
from results.store.schemas import Fact, Metric, PlannedData, Settings, Split
from vitcore.config import Config, check_settings, merge
from vitcore.runtime.host import Cost, has_bf16, processor
from vitcore.settings import HOW_IT_RUNS
from vitcore.sizes import is_architectural
from vitcore.training import parents

HEAD = ("head", "head_init")  # slots of the head, which a stage does not share with its children
BRINGS = {"position": ("position_at",), "data": ("image_size", "channels", "classes")}  # what follows from a setting
FREE = {  # settings that a step's time does not depend on
    *("seed", "data_seed", "data_fraction", "val_fraction"),
    *("lr", "weight_decay", "warmup", "schedule", "steps", "evaluations"),
    *("init", "head_init", "init_from"),
    *("layer_decay", "weight_decay_on", "label_smoothing"),
}
# A step in bf16 against one in float32 on an Intel Xeon without bf16 instructions, at width 192 and batch 16 and 256.
BF16_SLOWDOWN = 3.7


class LazyModule:
    """A module of this folder, imported when it is first used."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(f"{__package__}.{self.name}"), attribute)


if TYPE_CHECKING:
    from ablations.trainables.vit import budget, data, notes, own_faults, planned, training
else:
    names = ("budget", "data", "notes", "own_faults", "planned", "training")
    budget, data, notes, own_faults, planned, training = map(LazyModule, names)


class Vit(Trainable):
    keys = (*Config.model_fields, *Config.shorthands)
    seed_keys = frozenset({"seed", "data_seed"})
    how_it_runs = HOW_IT_RUNS
    shorthands = {"epochs": "steps"}
    bundles = {"model": ("width", "depth", "heads", "patch")}
    fixed = {
        "data_seed": "it is what pairs the arms",
        "model": "name width, depth, heads or patch, or give models as arms",
        "epochs": "give steps",
    }
    described = tuple(Cost.__dataclass_fields__)
    default_metric = "test_accuracy"
    selection_metric = "val_accuracy"
    stage_evals = frozenset({"fewshot"})
    data_key = "data"
    node_checks = machine_checks.NODE_CHECKS

    # -- settings ------------------------------------------------------------------------------------------------------

    def merge(self, *layers: Mapping[str, Any]) -> dict[str, Any]:
        return merge(*layers)

    def resolve(self, settings: Mapping[str, Any]) -> Settings:
        return Config(**settings).model_dump()

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        check_settings(settings)

    def resolve_recipe(self, recipe: Mapping[str, Any], own: Settings) -> Settings:
        return planned.resolve_recipe(dict(recipe), own)

    def values(self, key: str) -> list[Any]:
        return planned.values(key)

    def check_link(self, key: str, value: str) -> None:
        parents.normalized(key, value)

    def is_shared(self, key: str) -> bool:
        return is_architectural(key) and key.partition(".")[0] not in HEAD

    def covers(self, declared: str, key: str) -> bool:
        """See Trainable. A slot includes the options of its variants, and `model` the whole architecture."""
        brought = key in BRINGS.get(declared, ()) or (declared == "model" and is_architectural(key))
        return brought or super().covers(declared, key)

    def data_name(self, settings: Mapping[str, Any]) -> str:
        return str(settings.get("data", Config.model_fields["data"].default))

    def meet_budget(self, budget: str, reference: Settings, settings: dict[str, Any]) -> dict[str, Any]:
        return planned.meet_budget(budget, reference, settings)

    # -- identity ------------------------------------------------------------------------------------------------------

    def identity(self, settings: Settings) -> Settings:
        return planned.identity(settings)

    def fingerprints(self, values: Callable[[str], Iterable[str]]) -> Settings:
        return data.fingerprints(values)

    def rounded_otherwise(self, settings: Settings) -> Settings | None:
        """See Trainable. Gradients of two halves of a batch are summed instead of those of the whole."""
        if settings["micro_batch"] or settings["batch"] % 2:
            return None
        return {**settings, "micro_batch": settings["batch"] // 2}

    # -- plans ---------------------------------------------------------------------------------------------------------

    def describe(self, settings: Settings) -> Settings:
        return planned.describe(settings)

    def describe_data(self, settings: Settings) -> PlannedData | None:
        return data.describe_data(settings["data"])

    def assume_data(self, name: str, facts: Mapping[str, int], data_dir: Path | None) -> str:
        return data.assume_pack(name, facts, data_dir)

    def split(self, settings: Settings) -> Split | None:
        return data.split(settings["data"])

    def summary(self, settings: Settings, recipe: str, recipe_text: str, has_stages: bool) -> str:
        return planned.summary(settings, recipe, recipe_text, has_stages)

    def notes(self, arm: Compared, baseline: Compared, budget: str) -> dict[str, str]:
        return notes.notes(arm, baseline, budget)

    def warnings(self, settings: Settings) -> list[str]:
        return list(data.enlargement_notes(settings["data"], settings["image_size"]))

    def check_trial(self, settings: Settings, parent: Settings | None) -> None:
        planned.check_trial(settings, parent)

    def resources(self, settings: Settings) -> Resources:
        return Resources(int(settings.get("gpus", 1)), settings.get("device") == "cpu", settings.get("threads"))

    # -- metrics and evals ---------------------------------------------------------------------------------------------

    def metrics(self, trials: Sequence[Settings]) -> list[Metric]:
        return planned.metrics(trials)

    def known_evals(self) -> Sequence[str]:
        return planned.known_evals()

    def eval_names(self, name: str, reference: Settings, axis: Callable[[str], list[Any]]) -> list[str]:
        """Return `name` alone unless it ends in @axis or @patch-axis.

        @axis gives the recipe's image sizes except the training size. @patch-axis gives its patch sizes, and the
        baseline's comes last. Raises ValueError if the recipe lacks the axis or has no other image size.
        """
        kind, _, at_axis = name.partition("@")
        if at_axis == "patch-axis":
            patches = sorted(axis("patch"), key=lambda size: size == reference.get("patch"))
            return [f"{kind}@patch{size}" for size in patches]
        if at_axis != "axis":
            return [name]
        trained = reference["image_size"]
        if isinstance(trained, str):
            raise ValueError(f"image_size={trained}: @axis is for square images; write the size, as in {kind}@224x448")
        sizes = [size for size in axis("image_size") if size != trained]
        if not sizes:
            raise ValueError(f"axis image_size has only {trained}, the size of training")
        return [f"{kind}@{size}" for size in sizes]

    def eval_of(self, metric: str) -> str:
        return planned.eval_of(metric)

    def metrics_of(self, eval_name: str) -> list[Metric]:
        return planned.metrics_of(eval_name)

    def check_eval(self, name: str, settings: Settings) -> None:
        planned.check_eval(name, settings)

    def eval_caveats(self, names: Sequence[str], settings: Settings) -> list[str]:
        return planned.eval_caveats(names, settings)

    def compute_eval(
        self, name: str, settings: Settings, weights: bytes, number: int | None, data_dir: Path | None
    ) -> EvalResult:
        return training.compute_eval(name, Config(**settings), weights, number, data_dir)

    # -- time ----------------------------------------------------------------------------------------------------------

    def work(self, settings: Settings, flops: int | None) -> float:
        """Return the FLOPs per process of training a trial. A backward pass counts as two forward passes."""
        return 3.0 * (flops or 0) * float(settings["steps"] * settings["batch"]) / self.resources(settings).gpus

    def speed_settings(self, settings: Settings) -> tuple[Any, ...]:
        is_compiled = settings.get("compile") is True  # not the default, which was false in earlier versions
        return is_compiled, settings.get("data"), settings.get("threads"), settings.get("precision")

    def slowdown(self, settings: Settings, on_gpu: bool) -> tuple[float, str]:
        """See Trainable. A CPU without instructions for bf16 emulates it."""
        if settings.get("precision") != "bf16" or on_gpu or has_bf16():
            return 1.0, ""
        return BF16_SLOWDOWN, (
            "this CPU has no bf16 instructions: with precision=float32, which makes other trials, steps were "
            f"{BF16_SLOWDOWN:g} times as fast on such a CPU"
        )

    def hardware(self, settings: Settings) -> tuple[bool, str]:
        if settings["device"] == "cpu" or (settings["device"] == "auto" and not machine.gpus()):
            return False, processor()
        return planned.hardware(settings) if machine.gpus() else (True, "")

    def evaluation_fraction(self, settings: Settings, images: PlannedData | None) -> float:
        """See Trainable. Training on an image takes as long as evaluating three."""
        if images is None:  # in plans of earlier versions
            return 0.0
        evaluations = min(settings["evaluations"], settings["steps"])
        evaluated = evaluations * round(settings["val_fraction"] * images.train) + images.test
        return float(evaluated / (3 * settings["steps"] * settings["batch"]))

    def cheaper(self, settings: Settings, varied: Collection[str]) -> Iterable[tuple[float, str]]:
        return budget.remaining_flops(Config(**settings), varied)

    def step_settings(self, settings: Settings) -> Settings:
        return {key: value for key, value in settings.items() if key not in FREE}

    def step_seconds(self, settings: Settings, data_dir: Path | None, teacher: Settings | None) -> float:
        return planned.step_seconds(settings, data_dir, teacher)

    # -- execution -----------------------------------------------------------------------------------------------------

    def check_machine(self, settings: Settings, description: Settings) -> None:
        machine_checks.check_machine(settings, description)

    def check_data(self, trials: Sequence[Settings], to_train: Sequence[Settings], data_dir: Path | None) -> None:
        machine_checks.check_data(trials, to_train, data_dir)

    def start_worker(self, plugins: Sequence[str], needs_gpu: bool) -> None:
        training.start_worker(plugins, needs_gpu)

    def environment(self, settings: Settings, needs_gpu: bool) -> dict[str, Fact]:
        training.ensure_device(Config(**settings), needs_gpu)
        return training.environment(Config(**settings))

    def train(
        self, settings: Settings, run: store.Attempt, sources: Mapping[str, Parent], context: TrainingContext
    ) -> TrainingOutcome:
        return training.train(Config(**settings), run, sources, context)

    def fault(self, error: BaseException) -> Fault | None:
        return own_faults.fault(error)

    def release_memory(self) -> None:
        training.release()


VIT = Vit()
