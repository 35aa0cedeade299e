"""The rules by which `ablate init` writes the arms and stages that packaged studies take from a recipe."""

from collections.abc import Iterator

from results.store.schemas import Settings

RESNETS = {  # whether on a GPU -> ResNets of timm, smallest first
    False: ("test_resnet", "resnet10t", "resnet14t", "resnet18"),
    True: ("resnet18", "resnet34", "resnet50", "resnet101"),
}
FINETUNE_STEPS = 500  # minimum steps of fine-tuning; otherwise, a quarter of the training steps


def arms(
    copied: dict[str, Settings], settings: Settings, patches: list[int], on_gpu: bool
) -> Iterator[tuple[str, Settings, str]]:
    """Yield (name, settings, reason) for each arm that studies take from a recipe.

    copied: the arms of the recipe digits, which those without a rule repeat. settings: the new recipe's config.
    patches: its patch sizes, in ascending order.
    """
    rules = adapted_arms(settings, patches, on_gpu)
    for name, own in copied.items():
        yield name, *rules.get(name, (own, "as in the recipe digits"))


def adapted_arms(settings: Settings, patches: list[int], on_gpu: bool) -> dict[str, tuple[Settings, str]]:
    """Return the arms that a new recipe does not copy from the recipe digits: name -> (settings, reason)."""
    width, depth, batch = settings["width"], settings["depth"], settings["batch"]
    smaller = {"width": width * 3 // 4, "depth": max(1, depth // 2), "patch": patches[-1]}
    larger = {"width": width * 3 // 2, "depth": depth * 3 // 2, "patch": patches[0]}
    original = {"position": "1d", "pool": "cls", "batch": 4 * batch}
    crop = {"augment": "crop-three-augment", "augment.flip": False}
    resnets = [{"model": f"timm/{name}"} for name in RESNETS[on_gpu]]
    return {
        "axial": ({"self_attention": "axial", "depth": 2 * depth}, "a block attends along rows or columns"),
        "half": ({"width": width // 2}, "the paper's b/32: half of each dimension"),
        "large": ({"width": 2 * width}, "almost four times the FLOPs"),
        "all-smaller": (smaller, "all dimensions at once"),
        "all-larger": (larger, "all dimensions at once"),
        "flexible": ({"stem.patches": patches}, "those of the axis"),
        "resnet": (resnets[-1 if on_gpu else 0], "of timm, not pre-trained"),
        **{f"ResNet-{number}": (model, "smallest first") for number, model in enumerate(resnets, start=1)},
        "simple-random-crop": (crop, "of recipe-deit3; no flips, as images may have a left and a right"),
        "large-batch": ({"batch": 4 * batch}, "the paper's 1,024 to 4,096"),
        "original-randaugment-mixup": (original, "all but the augmentation undone"),
        "original": ({**original, "augment": "none", "mixup": 0.0}, "all undone"),
    }


def finetune(settings: Settings, fractions: list[float]) -> Settings:
    """Return the settings for fine-tuning on the smallest data fraction, with SGD as in arXiv 2010.11929."""
    return {
        "data_fraction": fractions[0],
        "optimizer": "sgd",
        "lr": 0.03,
        "weight_decay": 0.0,
        "label_smoothing": 0.0,
        "steps": max(FINETUNE_STEPS, settings["steps"] // 4),
    }
