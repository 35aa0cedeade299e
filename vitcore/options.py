"""Frozen records that refuse unknown keys, and the wording of errors for an invalid setting."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

Setting = str | bool | int | float | Sequence["Setting"] | Mapping[str, "Setting"] | None  # plain JSON
JsonSettings = dict[str, Setting]  # field or dotted option -> value
ALLOWED = {  # Pydantic's type of an error -> what is allowed, in the words of YAML
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a finite number",
    "finite_number": "a finite number",
    "string_type": "a string",
    "list_type": "a list",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "greater_than": "above {gt:.9g}",
    "greater_than_equal": "at least {ge:.9g}",
    "less_than": "below {lt:.9g}",
    "less_than_equal": "at most {le:.9g}",
}
ALSO_CALLED = {  # setting -> its names in timm, Hugging Face, Lightning, scikit-learn and other code
    "augment": "aa auto_augment augmentation",
    "batch": "batch_size bs b train_batch_size",
    "channels": "in_chans num_channels",
    "classes": "num_classes n_classes",
    "clip_norm": "clip_grad grad_clip max_grad_norm gradient_clip_val",
    "compile": "torchcompile",
    "cutmix": "cutmix_alpha",
    "data": "dataset data_path",
    "depth": "num_layers n_layers num_hidden_layers layers",
    "device": "accelerator",
    "drop_path": "drop_path_rate stochastic_depth",
    "dropout": "drop drop_rate",
    "ema": "model_ema_decay ema_decay",
    "epochs": "max_epochs num_epochs n_epochs epoch",
    "gpus": "num_gpus devices ngpus",
    "heads": "num_heads n_heads num_attention_heads",
    "image_size": "img_size input_size resolution",
    "init_from": "pretrained checkpoint initial_checkpoint",
    "label_smoothing": "smoothing",
    "layer_scale": "init_values",
    "lr": "learning_rate base_lr max_lr",
    "micro_batch": "accum_iter accumulate_grad_batches grad_accum_steps",
    "mixup": "mixup_alpha",
    "mlp": "act_layer activation",
    "model": "arch architecture backbone net",
    "norm": "norm_layer",
    "objective": "loss criterion",
    "optimizer": "opt optim",
    "patch": "patch_size",
    "pool": "global_pool pooling",
    "position": "pos_embed position_embedding",
    "precision": "amp amp_dtype dtype fp16 bf16",
    "random_erasing": "reprob erasing",
    "registers": "reg_tokens num_registers",
    "schedule": "scheduler lr_scheduler sched",
    "seed": "random_state",
    "steps": "max_steps num_steps iterations iters",
    "warmup": "warmup_steps warmup_epochs warmup_ratio",
    "weight_decay": "wd decay",
    "width": "embed_dim hidden_size d_model dim",
}
OTHER_NAMES = {  # without underscores
    other.replace("_", ""): setting for setting, others in ALSO_CALLED.items() for other in others.split()
}


class ConfigError(ValueError):
    """The error for an invalid setting. Its one-line message names the key, the value and what is allowed."""


class Options(BaseModel):
    """Base class of frozen records that refuse unknown keys, such as Config and the options of a variant.

    A variant declares its options in a subclass. Values are plain JSON, so a sequence is a list and not a tuple. Equal
    records have equal JSON, because an int in a float field becomes a float and -0.0 becomes 0.0. Raises ConfigError if
    a key is unknown, a required value is missing, or a value is invalid.
    """

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, validate_default=True, defer_build=True
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(explain(error, type(self))) from None

    @field_validator("*")
    @classmethod
    def one_zero(cls, value: Any) -> Any:
        return unsigned_zeros(value)


AnyOptions = TypeVar("AnyOptions", bound=Options)


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """Return a one-line message about the first problem in `error`: the key, the value and what `model` allows."""
    problems = error.errors(include_url=False)
    problem = problems[0]
    if problem["loc"] == ("data_seed",):  # unless set, it equals `seed`, whose error is then reported
        problem = next((other for other in problems if other["loc"] == ("seed",)), problem)
    key = key_of(problem)
    keys = [field.alias or name for name, field in model.model_fields.items()]
    keys += getattr(model, "shorthands", ())
    match problem["type"]:
        case "extra_forbidden":
            listed = f": known are {joined_names(keys)}" if keys else ": this variant has no options"
            return unknown_key(key, keys, listed)
        case "value_error":  # a ConfigError, raised inside a validator
            return str(problem["ctx"]["error"])
        case "missing":
            return f"'{key}' is missing"
        case _:
            value = problem["input"]
            field = model.model_fields.get(key)
            if field is not None and field.annotation in (int, float) and problem["type"] in ALLOWED:
                return f"{key}={value}: {allowed_numbers(field)}"
            same = [
                other for other in problems if key_of(other) == key and other["input"] is value
            ]  # one for each type tried
            return f"{key}={value}: {' or '.join(map(allowed, same))}"


def allowed_numbers(field: FieldInfo) -> str:
    """Return the numbers that a field allows, such as "a whole number from 1 to 1,024" or "a finite number above 0"."""
    words = {"gt": "above", "ge": "of at least", "lt": "below", "le": "at most"}
    limits: dict[str, str] = {}
    for bound in field.metadata:
        for name in words:
            if hasattr(bound, name):
                limits[name] = f"{getattr(bound, name):,.12g}"
    kind = "a whole number"
    if field.annotation is not int:
        kind = "a number" if len(limits) > 1 else ALLOWED["float_type"]
    if limits.keys() == {"ge", "le"}:
        return f"{kind} from {limits['ge']} to {limits['le']}"
    return f"{kind} {' and '.join(f'{words[name]} {limit}' for name, limit in limits.items())}".strip()


def allowed(problem: ErrorDetails) -> str:
    """Return what is allowed instead of a value, such as "a whole number" or "at least 1"."""
    if problem["type"] in ALLOWED:
        return ALLOWED[problem["type"]].format(**problem.get("ctx", {}))
    words = problem["msg"].removeprefix("Input should be ")
    return words.replace("True or False", ALLOWED["bool_type"])


def key_of(problem: ErrorDetails) -> str:
    """Return the key of a problem, such as factors.heads, without the types that Pydantic tried, such as list[any]."""
    return ".".join(str(part) for part in problem["loc"] if "[" not in str(part))


def unsigned_zeros(value: Any) -> Any:
    """Return `value` with -0.0 replaced by 0.0, also inside lists: the two are equal but differ in JSON."""
    if isinstance(value, list):
        return [unsigned_zeros(item) for item in value]
    return 0.0 if isinstance(value, float) and value == 0.0 else value


def unknown_key(key: str, known: Iterable[str] = (), otherwise: str = "") -> str:
    """Return the message that a key is unknown, with the key that was probably meant or else `otherwise`."""
    names = list(known)
    stage, dot, _ = key.rpartition(".")
    setting = usual_name(key)
    candidate = next((name for name in (stage + dot + setting, setting) if name in names), stage + dot + setting)
    return f"unknown key '{key}'{spelling_hint(candidate, names) or otherwise}"


def usual_name(key: str) -> str:
    """Return what a setting of other code is called here: `lr` for `--learning-rate` and `optimizer.learningRate`."""
    plain = key.rpartition(".")[2].strip("+~-").replace("-", "_").lower()
    return OTHER_NAMES.get(plain.replace("_", ""), plain)


def spelling_hint(word: object, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the known word most similar to `word`, or "" if none is similar."""
    close = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def joined_names(known: Iterable[object]) -> str:
    return ", ".join(str(name) for name in known)
