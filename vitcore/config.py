"""Config: one flat, frozen, validated record of a trial; layers of settings merged into one.

Field name = override key = table column = command-line word. Importing this module loads no torch. Making a Config
does: it is validated against the parts that exist.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from vitcore.options import AnyOptions, ConfigError, Options
from vitcore.sizes import is_reference, of_architecture, sizes

Values = Mapping[str, Any]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1, le=2**16)]
Many = Annotated[int, Field(ge=1, le=2**20)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]


class Config(Options):
    """Everything that a trial's outcome depends on (and, last, how it is run).

    `model="S/16"` fills width, depth, heads, mlp_ratio and patch where it is written; `model="timm/resnet18"` stays,
    and the fields from width to init then mean nothing. `epochs` becomes `steps`; `image_size`, `channels` and
    `classes` come from `data` unless set. An option of one variant is
    spelt `Config(position="mine", **{"position.base": 100.0})`; `options` then holds every option of the chosen
    variants, validated, written out or not.

    Raises ConfigError for unknown keys, wrong types, impossible values and combinations.
    """

    shorthands: ClassVar[tuple[str, ...]] = ("epochs",)  # accepted, never stored

    # the data
    data: str = "digits"
    image_size: Count
    channels: Count
    classes: Annotated[int, Field(ge=2, le=2**20)]
    data_fraction: Fraction = 1.0
    data_seed: Seed
    val_fraction: Annotated[float, Field(gt=0, le=0.5)] = 0.1

    # the model
    model: str = ""  # timm/NAME: a reference model, to which the rest of this section does not apply
    width: Count = 192
    depth: Annotated[int, Field(ge=1, le=1024)] = 12
    heads: Count = 3
    mlp_ratio: Annotated[float, Field(gt=0, le=1024)] = 4.0
    mlp: str = "gelu"
    norm: str = "layer"
    bias: Literal["all", "no-qkv", "none"] = "all"  # of the blocks' dense layers
    block: str = "pre"
    self_attention: str = "full"
    embedding_norm: bool = False  # a norm of the tokens before the first block
    patch: Count = 4
    position: str = "1d"
    position_at: str = ""  # input, every-layer, shared; the kind's own first choice unless set
    pool: str = "cls"
    final_norm: Literal["before", "after", "none"] = "before"  # of the pooling
    registers: Annotated[int, Field(ge=0, le=2**16)] = 0
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
    steps: Annotated[int, Field(ge=1, le=10**8)] = 1000
    batch: Many = 128
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
    attention_dropout: Share = 0.0  # of the attention's weights
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
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    compile: Literal["auto", True, False] = "auto"  # on a GPU where there are at least 1,000 steps
    cuda_graph: Literal["auto", "off"] = "auto"  # on a GPU: a step as one launch, where it can be captured
    attention: Literal["fastest", "pinned"] = "fastest"  # on a GPU: PyTorch's choice, or one kernel for all arms
    micro_batch: Annotated[int, Field(ge=0, le=2**20)] = (
        0  # images a backward pass; 0: the whole batch, less where memory is
    )
    gpus: Count = 1  # of one trial, each with its part of every batch; with device=cpu: processes

    @model_validator(mode="before")
    @classmethod
    def complete(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Everything that is not written out, from what is."""
        from vitcore.data.lookup import describe  # late: says of unknown data what is wrong as a ConfigError

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
        """The parts and options of the chosen variants, filled in and checked; raises ConfigError."""
        from vitcore.validation import complete_parts  # late: the parts are torch modules

        complete_parts(self)
        return self

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
        from vitcore.model.stem import STEM

        return self.depth - STEM[self.stem].blocks(self)

    @property
    def stem_width(self) -> int:
        """The width of the tokens that the stem gives: `width`, less what a concatenated position takes of it."""
        from vitcore.model.position import POSITION

        return POSITION[self.position].stem_width(self)

    def options_of(self, slot: str, schema: type[AnyOptions]) -> AnyOptions:
        """The validated options of the variant chosen for `slot`: those spelt 'slot.name'."""
        prefix = f"{slot}."
        mine = {key.removeprefix(prefix): v for key, v in self.options.items() if key.startswith(prefix)}
        try:
            return schema(**mine)
        except ConfigError as error:
            raise ConfigError(f"{slot}={getattr(self, slot)}: {error}") from None


class Epochs(Options):
    """What turns epochs into steps."""

    epochs: Annotated[float, Field(gt=0, le=1e8)]
    batch: Many
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
