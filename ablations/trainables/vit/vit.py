"""Vision Transformers and their training by vitcore, as a trainable.

What loads NumPy or torch is imported when it is needed: commands that only read plans and results load neither.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from ablations import machine
from ablations.trainables.trainable import Resources, Trainable
from ablations.trainables.vit import machine_checks
from results.store.schemas.base import Settings
from results.store.schemas.plans import PlannedData
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


def late(place: str) -> Any:
    """Return a method that calls a function, given as `module:function`, whose module is imported at the first call."""
    module, _, name = place.partition(":")

    def call(trainable: Trainable, *arguments: Any) -> Any:
        return getattr(import_module(module, __package__), name)(*arguments)

    return call


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

    merge = staticmethod(merge)
    check_settings = staticmethod(check_settings)
    resolve_recipe = late(".planned:resolve_recipe")
    values = late(".planned:values")
    meet_budget = late(".planned:meet_budget")

    identity = late(".planned:identity")
    fingerprints = late(".data:fingerprints")

    describe = late(".planned:describe")
    describe_data = late(".data:describe_data")
    assume_data = late(".data:assume_data")
    split = late(".data:split")
    summary = late(".planned:summary")
    notes = late(".notes:notes")
    warnings = late(".data:warnings")
    check_trial = late(".planned:check_trial")

    metrics = late(".planned:metrics")
    known_evals = late(".planned:known_evals")
    eval_of = late("vitcore.analysis.evals:eval_of")
    metrics_of = late(".planned:metrics_of")
    check_eval = late(".planned:check_eval")
    eval_caveats = late(".planned:eval_caveats")
    compute_eval = late(".training:compute_eval")

    hardware_beside_gpus = late(".planned:hardware")
    cheaper = late(".planned:cheaper")
    step_seconds = late(".planned:step_seconds")

    check_machine = staticmethod(machine_checks.check_machine)
    check_data = late(".data:check_data")
    start_worker = late(".training:start_worker")
    environment = late(".training:checked_environment")
    train = late(".training:train")
    fault = late(".training:fault")
    release_memory = late("vitcore.runtime.memory:release")

    def resolve(self, settings: Mapping[str, Any]) -> Settings:
        return Config(**settings).model_dump()

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

    def rounded_otherwise(self, settings: Settings) -> Settings | None:
        """See Trainable. Gradients of two halves of a batch are summed instead of those of the whole."""
        if settings["micro_batch"] or settings["batch"] % 2:
            return None
        return {**settings, "micro_batch": settings["batch"] // 2}

    def resources(self, settings: Settings) -> Resources:
        return Resources(int(settings.get("gpus", 1)), settings.get("device") == "cpu", settings.get("threads"))

    def eval_names(self, name: str, reference: Settings, axis: Callable[[str], list[Any]]) -> list[str]:
        """See Trainable. NAME@axis stands for the recipe's other sizes, larger first; NAME@patch-axis for patches."""
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
        sizes.sort(key=lambda size: isinstance(size, int) and size < trained)
        if not sizes:
            raise ValueError(f"axis image_size has only {trained}, the size of training")
        return [f"{kind}@{size}" for size in sizes]

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
        if machine.gpus() and settings["device"] != "cpu":
            return self.hardware_beside_gpus(settings)
        if settings["device"] == "cuda":
            return True, ""
        return False, processor()

    def evaluation_fraction(self, settings: Settings, images: PlannedData | None) -> float:
        """See Trainable. Training on an image takes as long as evaluating three."""
        if images is None:  # in plans of earlier versions
            return 0.0
        evaluations = min(settings["evaluations"], settings["steps"])
        evaluated = evaluations * round(settings["val_fraction"] * images.train) + images.test
        return float(evaluated / (3 * settings["steps"] * settings["batch"]))

    def step_settings(self, settings: Settings) -> Settings:
        return {key: value for key, value in settings.items() if key not in FREE}


VIT = Vit()
