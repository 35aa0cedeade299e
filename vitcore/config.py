"""Config: one flat, frozen, validated record of a trial; the named sizes; layers of settings merged into one.

Field name = override key = table column = command-line word. Importing this module loads no torch; making a
Config does, because a Config knows which parts exist.
"""

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

if TYPE_CHECKING:
    from vitcore.position import Position

# name: width, depth, heads. Ti: arXiv 2012.12877; B, L, H: arXiv 2010.11929, Table 1; S: arXiv 2106.10270.
SIZES = {
    "Ti": (192, 12, 3),
    "S": (384, 12, 6),
    "B": (768, 12, 12),
    "L": (1024, 24, 16),
    "H": (1280, 32, 16),
}

REFERENCE = "timm/"  # model=timm/NAME is a classifier of timm's
# What a reference model brings itself; the options of these slots too.
ARCHITECTURE = (
    "width",
    "depth",
    "heads",
    "mlp_ratio",
    "patch",
    "position",
    "position_at",
    "pool",
    "final_norm",
    "registers",
    "stem",
    "head",
    "head_init",
    "layer_scale",
    "qk_norm",
    "init",
)

Values = Mapping[str, Any]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]


class ConfigError(ValueError):
    """What a user wrote cannot be: one line that names the key, the value and what is allowed."""


class Options(BaseModel):
    """Base of the options that one variant alone understands, declared beside its class.

    Values are plain JSON (a list, not a tuple). Equal records have equal JSON: an int in a float's field becomes a
    float, in the defaults too, and -0.0 becomes 0.0.
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


class Config(Options):
    """Everything that a trial's outcome depends on (and, last, how it is run).

    `model="S/16"` fills width, depth, heads, mlp_ratio and patch where it is written; `model="timm/resnet18"` stays,
    and the fields from width to init then mean nothing. `epochs` becomes `steps`; `image_size`, `channels` and
    `classes` come from `data` unless set. An option of one variant is
    spelt `Config(position="mine", **{"position.base": 100.0})`; `options` then holds every option of the chosen
    variants, validated, written out or not.

    Raises ConfigError for unknown keys, wrong types, impossible values and combinations.
    """

    # the data
    data: str = "digits"
    image_size: Count
    channels: Count
    classes: Annotated[int, Field(ge=2)]
    data_fraction: Fraction = 1.0
    data_seed: Seed
    val_fraction: Annotated[float, Field(gt=0, le=0.5)] = 0.1

    # the model
    model: str = ""  # timm/NAME: a reference model, to which the rest of this section does not apply
    width: Count = 192
    depth: Count = 12
    heads: Count = 3
    mlp_ratio: Positive = 4.0
    patch: Count = 4
    position: str = "1d"
    position_at: str = ""  # input, every-layer, shared; the kind's own first choice unless set
    pool: str = "cls"
    final_norm: Literal["before", "after", "none"] = "before"  # of the pooling
    registers: Annotated[int, Field(ge=0)] = 0
    stem: str = "patch"
    head: str = "linear"
    head_init: Literal["zeros", "lecun-normal"] = "zeros"
    layer_scale: NonNegative = 0.0  # where each branch's scale starts; 0: there is none
    qk_norm: bool = False
    init: str = "unit-positions"
    options: dict[str, Any] = {}

    # the training
    objective: str = "classification"
    init_from: str = "none"  # weights to start from: a file, or a trial by its id
    steps: Count = 1000
    batch: Count = 128
    optimizer: str = "adamw"
    lr: Positive = 1e-3
    layer_decay: Fraction = 1.0  # of the learning rate, a layer down from the head
    schedule: str = "cosine"
    warmup: Share = 0.1
    weight_decay: NonNegative = 0.05
    weight_decay_on: Literal["matrices", "all"] = "matrices"
    clip_norm: NonNegative = 1.0  # 0: gradients are not clipped
    label_smoothing: Share = 0.0
    dropout: Share = 0.0
    drop_path: Share = 0.0  # of the last block; 0 at the first, in a line between
    augment: str = "none"
    mixup: NonNegative = 0.0  # alpha
    cutmix: NonNegative = 0.0  # alpha
    ema: Share = 0.0  # decay a step of the averaged weights; 0: there are none
    precision: Literal["float32", "bf16"] = "float32"
    evaluations: Count = 10  # points of the curves; train_loss is the mean since the one before
    seed: Seed = 0

    # how it runs, not what is learned
    device: str = "auto"
    threads: Count = 1
    compile: bool = False
    attention: Literal["pinned", "fastest"] = "pinned"  # on a GPU: one kernel for all arms, or PyTorch's choice
    micro_batch: Annotated[int, Field(ge=0)] = 0  # images a backward pass; 0: the whole batch, less where memory is
    gpus: Count = 1  # of one trial, each with its part of every batch; with device=cpu: processes

    @model_validator(mode="before")
    @classmethod
    def complete(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Everything that is not written out, from what is."""
        from vitcore.describe import describe  # late: says of unknown data what is wrong as a ConfigError

        values = merge(values)
        if is_reference(model := values.get("model")) and (own := [key for key in values if of_architecture(key)]):
            raise ConfigError(f"{own[0]}={values[own[0]]}: model={model} has its own: leave it out")
        values = gather_options(values)
        if isinstance(data := values.get("data", "digits"), str):
            about = describe(data)
            for name in ("image_size", "channels", "classes"):
                values.setdefault(name, getattr(about, name))
            if "epochs" in values:
                values["steps"] = about.steps(**dict(Epochs(epochs=values.pop("epochs"), **default_sizes(values))))
        values.setdefault("data_seed", values.get("seed", 0))
        return values

    @model_validator(mode="after")
    def possible(self) -> "Config":
        """The combinations that can be built; raises ConfigError for the others."""
        from vitcore.initial import INIT  # late: torch
        from vitcore.origin import checked
        from vitcore.position import POSITION
        from vitcore.variants import VARIANTS  # late: the parts are torch modules

        if not self.model:
            self.check_sizes()
        object.__setattr__(self, "init_from", checked(self.init_from))
        if self.model and self.init_from != "none":
            raise ConfigError(f"init_from={self.init_from}: model={self.model} has other parts: none")
        if self.device not in ("auto", "cpu", "cuda"):
            raise ConfigError(f"device={self.device}: one of auto, cpu, cuda")
        named: dict[str, Iterable[str]] = {**VARIANTS, "init": INIT}
        for slot, known in named.items():
            if (name := getattr(self, slot)) not in known:
                raise ConfigError(f"{slot}={name}: one of {listed(known)}{nearest(name, known)}")
        owners = [key for key in self.options if key.partition(".")[0] not in VARIANTS]
        if owners:
            raise ConfigError(f"unknown key '{owners[0]}': options are spelt {', '.join(VARIANTS)} + '.name'")
        chosen = {
            slot: variants[getattr(self, slot)]
            for slot, variants in VARIANTS.items()
            if not (self.model and of_architecture(slot))
        }
        resolved = {
            f"{slot}.{option}": value
            for slot, variant in chosen.items()
            for option, value in self.options_of(slot, variant.Options).model_dump(mode="json").items()
        }
        object.__setattr__(self, "options", resolved)  # frozen from here on
        if self.model:
            from vitcore.model import check_reference

            check_reference(self)
        else:
            object.__setattr__(self, "position_at", placed(self, POSITION))
        for slot, variant in chosen.items():
            self.options.update({f"{slot}.{option}": value for option, value in variant.canonical(self).items()})
            variant.check(self)
        if self.micro_batch:
            from vitcore.model import check_micro_batch

            check_micro_batch(self)
        if self.gpus > 1:
            from vitcore.ranks import check_ranks

            check_ranks(self)
        return self

    def check_sizes(self) -> None:
        """Raises ConfigError for heads that do not divide the width, patches the image, or an MLP of no width."""
        if self.width % self.heads:
            allowed = listed(divisors(self.width, self.heads))
            raise ConfigError(f"heads={self.heads} does not divide width={self.width}: one of {allowed}")
        if self.image_size % self.patch:
            allowed = listed(divisors(self.image_size, self.patch))
            raise ConfigError(f"patch={self.patch} does not divide image_size={self.image_size}: one of {allowed}")
        if round(self.width * self.mlp_ratio) < 1:
            least = f"more than {0.5 / self.width:g}, so that the MLP is not empty"
            raise ConfigError(f"mlp_ratio={self.mlp_ratio}: of width={self.width}: {least}")

    @model_serializer(mode="wrap")
    def what_applies(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A dump of a reference model has no setting of ours, so that it reads as it is and makes the config anew."""
        dumped: dict[str, Any] = handler(self)
        return {key: value for key, value in dumped.items() if not (self.model and of_architecture(key))}

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.image_size // self.patch, self.image_size // self.patch

    @property
    def layers(self) -> int:
        """Blocks of the encoder: `depth`, less those that the stem stands for."""
        from vitcore.stem import STEM

        return self.depth - STEM[self.stem].blocks(self)

    @property
    def stem_width(self) -> int:
        """The width of the tokens that the stem gives: `width`, less what a concatenated position takes of it."""
        from vitcore.position import POSITION

        return POSITION[self.position].stem_width(self)

    def options_of(self, slot: str, schema: type[AnyOptions]) -> AnyOptions:
        """The validated options of the variant chosen for `slot`: those spelt 'slot.name'."""
        prefix = f"{slot}."
        mine = {key.removeprefix(prefix): v for key, v in self.options.items() if key.startswith(prefix)}
        try:
            return schema(**mine)
        except ConfigError as error:
            raise ConfigError(f"{slot}={getattr(self, slot)}: {error}") from None


def placed(config: Config, kinds: Mapping[str, "type[Position]"]) -> str:
    """Where the position enters: as written, or the kind's first place; '' for a kind that has no choice.

    position=none ignores what is written, which still has to be a place of some kind.
    """
    places = kinds[config.position].places
    known = list(dict.fromkeys(place for kind in kinds.values() for place in kind.places))
    if config.position_at and config.position_at not in known:
        hint = nearest(config.position_at, known)
        raise ConfigError(f"position_at={config.position_at}: one of {listed(places or known)}{hint}")
    if config.position == "none" or not (config.position_at or places):
        return ""
    if config.position_at and config.position_at not in places:
        allowed = f"one of {listed(places)}" if places else "it has no choice of place"
        raise ConfigError(f"position_at={config.position_at}: position={config.position}: {allowed}")
    return config.position_at or places[0]


class Epochs(Options):
    """What turns epochs into steps."""

    epochs: Positive
    batch: Count
    data_fraction: Fraction
    val_fraction: Fraction


def merge(*layers: Values) -> dict[str, Any]:
    """Settings from weakest to strongest; a named size, `steps` and `epochs` hold where they are written.

    Options hold with their variant: a layer that chooses another one drops those of its slot in the layers before.
    A reference model drops the architecture in the layers before, and a named size such a model.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        if "steps" in layer and "epochs" in layer:
            raise ConfigError(f"steps={layer['steps']} and epochs={layer['epochs']}: give one of them")
        if "steps" in layer:
            merged.pop("epochs", None)
        if "epochs" in layer:
            merged.pop("steps", None)
        written = spread_options(layer)
        if is_reference(written.get("model")):
            merged = {key: value for key, value in merged.items() if not of_architecture(key)}
        elif "model" in written:
            merged.pop("model", None)
            written = sizes(written.pop("model")) | written
        for key in [key for key in merged if "." in key and chooses_another(written, merged, key.partition(".")[0])]:
            del merged[key]
        merged |= written
    return merged


def chooses_another(layer: Values, before: Values, slot: str) -> bool:
    """Whether `layer` changes the variant of `slot`, which is the default until a layer writes it."""
    if slot not in layer or slot not in Config.model_fields:
        return False
    return bool(layer[slot] != before.get(slot, Config.model_fields[slot].default))


def is_reference(model: object) -> bool:
    """Whether it is a classifier of timm's, not a size of ours."""
    return str(model).startswith(REFERENCE)


def of_architecture(key: str) -> bool:
    """Whether it is a setting, or an option of one, that a reference model brings itself."""
    return key.partition(".")[0] in ARCHITECTURE


def sizes(model: object) -> dict[str, Any]:
    """'S/16' -> width, depth, heads, mlp_ratio, patch; nothing for '', no name."""
    if model == "":
        return {}
    name, slash, patch = str(model).partition("/")
    if name not in SIZES or not slash or not patch.isdigit():
        raise ConfigError(f"model={model}: a size of {listed(SIZES)}, a slash and the patch, as in S/16, or timm/NAME")
    width, depth, heads = SIZES[name]
    return {"width": width, "depth": depth, "heads": heads, "mlp_ratio": 4.0, "patch": int(patch)}


def spread_options(values: Values) -> dict[str, Any]:
    """What stands in `options` becomes dotted keys ('position.base')."""
    options = values.get("options", {})
    if not isinstance(options, Mapping):
        raise ConfigError(f"options={options}: a mapping from 'slot.name', as in position.base, to values")
    for key in options:
        if not isinstance(key, str) or "." not in key:
            raise ConfigError(f"unknown key '{key}': an option is spelt 'slot.name', as in position.base")
    return {**options, **{key: value for key, value in values.items() if key != "options"}}


def gather_options(values: Values) -> dict[str, Any]:
    """Dotted keys ('position.base') move into `options`."""
    dotted = {key: value for key, value in values.items() if "." in key}
    plain = {key: value for key, value in values.items() if "." not in key}
    return plain | ({"options": dotted} if dotted else {})


def default_sizes(values: Values) -> dict[str, Any]:
    """What turns epochs into steps: batch and fractions, as written or by default."""
    names = ("batch", "data_fraction", "val_fraction")
    return {name: values.get(name, Config.model_fields[name].default) for name in names}


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """The first problem of a pydantic error as one line: key, value, what is allowed."""
    problems = error.errors(include_url=False)
    problem = problems[0]
    if problem["loc"] == ("data_seed",):  # the seed, where it is not written: what is wrong with both is said of that
        problem = next((one for one in problems if one["loc"] == ("seed",)), problem)
    key = ".".join(str(part) for part in problem["loc"])
    known = [field.alias or name for name, field in model.model_fields.items()]
    known += ["epochs"] if model is Config else []
    match problem["type"]:
        case "extra_forbidden":
            allowed = nearest(key, known) or (
                f": known are {listed(known)}" if known else ": this variant has no options"
            )
            return f"unknown key '{key}'{allowed}"
        case "value_error":  # a ConfigError of ours, raised inside a validator
            return str(problem["ctx"]["error"])
        case "missing":
            return f"'{key}' is missing"
        case _:
            return f"{key}={problem['input']}: {problem['msg'][:1].lower()}{problem['msg'][1:]}"


def divisors(number: int, near: int) -> list[int]:
    """The (at most 8) divisors of `number` nearest to `near`, in order."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    every = {*small, *(number // d for d in small)}
    return sorted(sorted(every, key=lambda d: (abs(d - near), d))[:8])


def unsigned_zeros(value: Any) -> Any:
    """-0.0, alone or in a list, becomes 0.0: they are equal, their JSON is not."""
    if isinstance(value, list):
        return [unsigned_zeros(one) for one in value]
    return 0.0 if isinstance(value, float) and value == 0.0 else value


def nearest(word: object, known: Iterable[str]) -> str:
    """', did you mean ...?' or nothing."""
    close = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def listed(known: Iterable[object]) -> str:
    return ", ".join(str(one) for one in known)
