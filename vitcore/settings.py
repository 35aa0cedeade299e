"""Settings, the plain record of a trial's settings that all parts of the package read.

Config adds what depends on the parts: whether their variants exist, and whether the settings fit together.
"""

import re
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field

from commonfloor.options import AnyOptions, ConfigError, Options

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1, le=2**16)]
Many = Annotated[int, Field(ge=1, le=2**20)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
Probability = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Shape = tuple[int, int]  # height and width of an image in pixels
LARGEST_SIDE = 2**16  # pixels
Kernel = Literal["fastest", "pinned"]
KERNELS = get_args(Kernel)
HOW_IT_RUNS = frozenset({"device", "threads", "compile", "cuda_graph", "attention", "micro_batch", "gpus"})


def image_shape(size: object) -> Shape:
    """Return height and width of a size, such as 224 or "224x448"; raise ConfigError if it is none."""
    match = re.fullmatch(r"([1-9]\d{0,5})(?:x([1-9]\d{0,5}))?", str(size), re.ASCII)
    if match:
        shape = int(match[1]), int(match[2] or match[1])
        if max(shape) <= LARGEST_SIDE and (match[2] or isinstance(size, int)):
            return shape
    raise ConfigError(
        f"image_size={size}: a whole number from 1 to {LARGEST_SIDE:,}, or height x width, such as 224x448"
    )


def size_name(shape: Shape) -> int | str:
    """Return the side of a square, or the text "224x448": the value of `image_size` for images of `shape`."""
    height, width = shape
    return height if height == width else f"{height}x{width}"


class Settings(Options):
    """Base class of Config, in which each setting has a type and a range of its own."""

    shorthands: ClassVar[tuple[str, ...]] = ("epochs",)  # accepted, never stored

    # the data
    #: The built-in dataset `digits`, a downloaded dataset, `imagefolder:PATH`, `hf:PATH`, `parquet:GLOB`, `wds:GLOB`,
    #: a pack, or a name that ablate.toml maps to a folder.
    data: str = "digits"
    #: Height and width of the model's input in pixels: a number, or `224x448` for 224 rows of 448 pixels. From the data
    #: unless set. Of each image, the largest centered window of that shape is resized.
    image_size: Annotated[int | str, BeforeValidator(lambda size: size_name(image_shape(size)))]
    channels: Count  #: Number of channels of an image. From the data unless set.
    classes: Annotated[int, Field(ge=2, le=2**20)]  #: Number of classes. From the data unless set.
    data_fraction: Fraction = 1.0  #: Fraction of each class's training images to use. 0.3 includes the images of 0.1.
    data_seed: Seed  #: Seed of the fold, the validation images, `data_fraction` and few-shot draws. `seed` unless set.
    #: Fraction of the training images that is set aside for validation, before `data_fraction` applies.
    val_fraction: Annotated[float, Field(gt=0, le=0.5)] = 0.1

    # the model
    #: A named size such as `S/16`, which sets width, depth, heads, mlp_ratio and patch, a reference model from timm
    #: (`timm/NAME`), or a model of a plug-in. The last two fix all settings from width to init.
    model: str = ""
    width: Count = 192  #: D, the number of channels of a token.
    depth: Annotated[int, Field(ge=1, le=1024)] = 12  #: Number of encoder blocks, including any that the stem replaces.
    heads: Count = 3  #: Number of attention heads of a block, a divisor of `width`.
    #: Hidden width of a block's MLP, divided by D. A gated MLP has about 2/3 of this width.
    mlp_ratio: Annotated[float, Field(gt=0, le=1024)] = 4.0
    mlp: str = "gelu"  #: Activation of a block's MLP.
    norm: str = "layer"  #: Norm of the blocks and of the encoder's output.
    bias: Literal["all", "no-qkv", "none"] = "all"  #: Which linear layers of the blocks have biases.
    block: str = "pre"  #: Order of norms and branches in a block.
    self_attention: str = "full"  #: Kind of self-attention.
    embedding_norm: bool = False  #: Whether tokens are normalized before the first block.
    patch: Count = 4  #: Height and width of a patch in pixels, a divisor of both sides of `image_size`.
    position: str = "1d"  #: Position embedding, or two that act at different sites, such as `1d+rope2d`.
    #: Site of the position embedding: `input`, `every-layer` or `shared`. Empty: the first that `position` allows.
    position_at: str = ""
    pool: str = "cls"  #: Pooling of the tokens into one vector.
    #: Whether the final norm is before the pooling, after the pooling, or left out.
    final_norm: Literal["before", "after", "none"] = "before"
    registers: Annotated[int, Field(ge=0, le=2**16)] = 0  #: Number of register tokens, never pooled (arXiv 2309.16588).
    stem: str = "patch"  #: Stem that maps an image to tokens.
    head: str = "linear"  #: Head that maps the pooled vector to logits.
    head_init: Literal["zeros", "lecun-normal"] = "zeros"  #: Initial weights of the head's last layer.
    layer_scale: NonNegative = 0.0  #: Initial scale of each residual branch (arXiv 2103.17239). 0: no layer scale.
    qk_norm: bool = False  #: Whether queries and keys are normalized by `norm` (arXiv 2302.05442).
    #: Normal distribution of the initial values of learned tables, such as position embeddings. The standard
    #: deviation is 1 for `unit-positions`, 0.02 for `paper`, and 1/sqrt(D) for `big-vision` (attention biases: 0.02).
    init: str = "unit-positions"
    options: dict[str, Any] = {}  #: Options of the chosen variants, written as `position.base=100`.

    # the training
    objective: str = "classification"  #: Training objective.
    #: Weights to start from: `timm/NAME` after `ablate weights download NAME`, a `.safetensors` or `.npz` file, the id
    #: of a trial, or a stage of a study.
    init_from: str = "none"
    #: A model to distill (arXiv 2012.12877): the id of a trial, a stage of a study, or `timm/NAME:FILE` with a
    #: `.safetensors` file. The options of distillation belong to `objective=classification`.
    teacher: str = "none"
    #: Parameters to train: all, or those of self-attention and position (arXiv 2203.09795, section 4), of the norms, or
    #: of the head. Head and objective are always trained. All other parameters keep their initial values.
    trainable: Literal["all", "attention", "norm", "head"] = "all"
    steps: Annotated[int, Field(ge=1, le=10**8)] = 1000  #: Number of optimizer steps.
    batch: Many = 128  #: Number of images per step, over all GPUs. Every batch is full.
    optimizer: str = "adamw"  #: Optimizer.
    lr: Positive = 1e-3  #: The highest learning rate, reached after the warm-up.
    layer_decay: Fraction = 1.0  #: Factor on the learning rate per layer below the last (arXiv 2106.08254).
    schedule: str = "cosine"  #: Schedule of the learning rate after the warm-up.
    warmup: Share = 0.1  #: Fraction of the steps in which the learning rate rises.
    weight_decay: NonNegative = 0.05  #: Weight decay, as the optimizer defines it.
    #: `matrices` decays the weights of linear layers and convolutions, and `all` decays every parameter.
    weight_decay_on: Literal["matrices", "all"] = "matrices"
    clip_norm: NonNegative = 1.0  #: Largest norm of the gradient. 0: gradients are not clipped.
    label_smoothing: Share = 0.0  #: Fraction of the target that is spread over all classes.
    dropout: Share = 0.0  #: Probability of dropping a value after the embedding and in residual branches.
    attention_dropout: Share = 0.0  #: Probability of dropping an attention weight.
    #: Fraction of an image's patches that are left out in training (arXiv 2208.07220). Class token and registers stay.
    patch_dropout: Share = 0.0
    drop_path: Share = 0.0  #: Probability of dropping a branch (arXiv 1603.09382), in the last block.
    #: Whether the probability rises from 0 in the first block, or is the same in every block, as in ViT-5.
    drop_path_by_layer: Literal["linear", "constant"] = "linear"
    augment: str = "none"  #: Augmentation of the training images, or several, as in `flip+randaugment`.
    #: Number of consecutive copies of an image, each augmented anew (arXiv 1901.09335). Epochs do not get longer.
    augment_repeats: Count = 1
    random_erasing: Probability = 0.0  #: Probability that a rectangle of an image is erased (arXiv 1708.04896).
    random_erasing_fill: Literal["constant", "pixel"] = "constant"  #: Fill: the mean of the data, or noise per pixel.
    mixup: NonNegative = 0.0  #: Alpha of mixup (arXiv 1710.09412). 0: no mixup.
    cutmix: NonNegative = 0.0  #: Alpha of CutMix (arXiv 1905.04899). 0: no CutMix. A batch uses CutMix or mixup.
    mix_prob: Fraction = 1.0  #: Probability that a batch is mixed, if mixup or cutmix is set.
    mix_switch_prob: Probability = 0.5  #: Probability of CutMix rather than mixup, if both are set.
    ema: Share = 0.0  #: Decay per step of the weights' moving average, which is evaluated and saved. 0: no average.
    precision: Literal["float32", "bf16"] = "float32"  #: Compute precision. Weights stay float32.
    evaluations: Count = 10  #: Number of points of the training curves.
    seed: Seed = 0  #: Seed of initial values, image order, augmentation and dropout.

    # how it runs, not what is learned
    device: Literal["auto", "cpu", "cuda"] = "auto"  #: `cpu`, `cuda`, or `auto`: a GPU if the machine has one.
    threads: Annotated[int, Field(ge=1, le=1024)] = 1  #: Number of PyTorch's CPU threads.
    #: Whether `torch.compile` compiles the model. `auto`: on a GPU, for at least 2,000 steps of one patch size.
    compile: Literal["auto", True, False] = "auto"
    cuda_graph: Literal["auto", "off"] = "auto"  #: On a GPU, `auto` runs a step as one launch if possible.
    #: On a GPU, `pinned` gives all arms one attention kernel if their head widths allow it. `fastest`: PyTorch chooses.
    attention: Kernel = "fastest"
    #: Number of images per backward pass. Gradients accumulate. 0: the whole batch, or less if memory is short.
    micro_batch: Annotated[int, Field(ge=0, le=2**20)] = 0
    gpus: Count = 1  #: Number of ranks, each with a part of every batch: GPUs, or processes with `device=cpu`.

    @property
    def image_shape(self) -> Shape:
        """The height and the width of the model's input in pixels."""
        return image_shape(self.image_size)

    def square_side(self, what: str) -> int:
        """Return the side of square images; raise ConfigError for others, which `what` does not take."""
        height, width = self.image_shape
        if height != width:
            raise ConfigError(f"image_size={self.image_size}: {what} takes square images only: a whole number")
        return height

    @property
    def grid(self) -> tuple[int, int]:
        """The number of rows and of columns of patches."""
        height, width = self.image_shape
        return height // self.patch, width // self.patch

    @property
    def layers(self) -> int:
        """The number of encoder blocks: `depth` minus the number of blocks that the stem replaces."""
        return self.depth - int(self.options.get("stem.fewer_blocks", 0))

    def options_of(self, slot: str, schema: type[AnyOptions]) -> AnyOptions:
        """Return the options of `slot` in a record of type `schema`; raise ConfigError if one is unknown or invalid."""
        prefix = f"{slot}."
        options = {key.removeprefix(prefix): value for key, value in self.options.items() if key.startswith(prefix)}
        try:
            return schema(**options)
        except ConfigError as error:
            misplaced = (options.keys() - schema.model_fields.keys()) & Settings.model_fields.keys()
            if misplaced:
                key = min(misplaced)
                raise ConfigError(f"unknown key '{prefix}{key}'; did you mean '{key}'?") from None
            raise ConfigError(f"{slot}={getattr(self, slot)}: {error}") from None
