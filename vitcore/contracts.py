"""The contracts of variants: the checks of a variant that the tests and `ablate check` run.

A variant is an entry of a dictionary such as POSITION, and its slot is the field of Config that chooses it. A check
takes (slot, name). It raises AssertionError, or any error of the variant's own, if the variant breaks the contract.
"""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from commonfloor.options import ConfigError
from vitcore.analysis.evals import EVAL
from vitcore.config import Config, merge
from vitcore.data.augment import AUGMENT
from vitcore.data.splits import load
from vitcore.keyed_random import image_keys
from vitcore.model.build import OtherModel, build, couples_images
from vitcore.model.initialization import Initial, nearest_owner
from vitcore.model.vit import ViT
from vitcore.runtime.compile_cache import use_private_cache
from vitcore.runtime.device import compute_settings, device_of, torch_device
from vitcore.sizes import is_reference
from vitcore.training.evaluation import evaluate, score
from vitcore.training.objectives import OBJECTIVE
from vitcore.training.run import Memory, Metrics
from vitcore.training.schedules import learning_rate
from vitcore.training.state import Training
from vitcore.variants import PARTS, VARIANTS

Contract = Callable[[str, str], None]
SIDES = (8, 32, 224)  # pixels of the digits for a model: its first that it takes
EQUAL = 1e-9  # largest difference that counts as a rounding error of float64 numbers near 1
SOURCE = re.compile(r"https?://\S+|arXiv \d{4}\.\d{4,5}")


def contracts(slot: str, name: str) -> list[tuple[str, Contract]]:
    """Return a variant's contracts as pairs (description, check); raise AssertionError if there is no such variant.

    slot: "model" also for a reference model, such as timm/NAME; "eval" for an eval.
    """
    if slot == "model" and is_reference(name):
        return [*CONTRACTS_OF_MODELS.items()]
    if slot == "eval":
        return [*CONTRACTS_OF_EVALS.items()]
    assert name in VARIANTS[slot], f"{slot}={name}: no such entry"
    if slot == "model":
        return [*CONTRACTS_OF_CLASSIFIERS.items()]
    of_parts = CONTRACTS_OF_PARTS if slot in PARTS else {}
    return [*CONTRACTS.items(), *of_parts.items(), *CONTRACTS_OF.get(slot, {}).items()]


def tiny(slot: str, name: str) -> Config:
    """Return a config for fast tests of the given variant: two layers, trained for four steps on the digits."""
    patch = 4 if slot == "stem" else 2  # a stem may halve the side more than once
    model = {"width": 16, "depth": 2, "heads": 2, "patch": patch, "pool": "gap"}
    settings = merge(model, {"steps": 4, "batch": 8, "evaluations": 1}, {slot: name})
    if slot != "model":
        return Config(**settings)
    for side in SIDES:
        with suppress(ConfigError):
            return Config(**settings, image_size=side)
    return Config(**settings)


def trains(slot: str, name: str) -> None:
    """Check that the variant trains, and that gradients reach all of its parameters."""
    learns(tiny(slot, name), slot, name)


def beside_prefix(slot: str, name: str) -> None:
    """Check that the variant trains with registers and a class token, although some parameters may get no gradient."""
    pool = {} if slot == "pool" else {"pool": "cls"}
    learns(Config(**tiny(slot, name).model_dump() | {"registers": 2} | pool), slot, name, every=False)


def learns(config: Config, slot: str, name: str, every: bool = True) -> None:
    """Check that logits are well-shaped and finite, weights change, and gradients are finite and reach the variant.

    Gradients are checked in the third step, because a head or branch that starts at zero blocks them at first. every:
    whether they must reach all of the variant's parameters.
    """
    training = Training(config, load(config))
    batch = training.batch()
    with torch.no_grad():
        outputs = training.forward(batch.images, batch.rng_keys)
    if slot != "objective":
        shape = tuple(outputs.shape)
        wanted = (config.batch, config.classes)
        assert shape == wanted, f"{slot}={name}: logits of shape {shape}, not (B, classes) = {wanted}"
    for tensor in outputs if isinstance(outputs, tuple) else (outputs,):
        assert tensor.isfinite().all(), f"{slot}={name}: logits are not finite"
    before = [parameter.detach().clone() for parameter in training.model.parameters()]
    training.advance()
    training.advance()
    moved = any(not torch.equal(*pair) for pair in zip(before, training.model.parameters(), strict=True))
    assert moved, f"{slot}={name}: two steps leave every weight where it was"
    training.train_step.backward(training.batch(), config.batch)
    names = part_names(training.model, slot, name)
    unreached = []
    for key, parameter in training.model.named_parameters():
        gradient = parameter.grad
        assert gradient is None or gradient.isfinite().all(), f"{key}: a gradient is not finite"
        if key in names and (gradient is None or not gradient.any()):
            unreached.append(key)
    enough = not unreached or (not every and len(unreached) < len(names))
    assert enough, f"{unreached[0]}: no gradient reaches it"


def part_names(model: nn.Module, slot: str, name: str) -> set[str]:
    """Return the names of the parameters that belong to a variant."""
    kind = VARIANTS[slot][name]
    prefixes = [f"{slot}."]
    for name_of_module, module in model.named_modules():
        if type(module) is kind:
            prefixes.append(f"{name_of_module}.")
    return {parameter for parameter, _ in model.named_parameters() if parameter.startswith(tuple(prefixes))}


def declares_its_values(slot: str, name: str) -> None:
    """Check that a variant declares values that it sets in `__init__`, because `initialize` overwrites all others."""
    preset: list[nn.Parameter] = []

    def registered(module: nn.Module, parameter_name: str, parameter: nn.Parameter) -> None:
        if parameter is not None and not parameter.isnan().all():
            preset.append(parameter)

    hook = register_module_parameter_registration_hook(registered)
    try:
        with nan_in_empty_tensors():
            model = build(tiny(slot, name))
    finally:
        hook.remove()
    names = part_names(model, slot, name)
    for full, parameter in model.named_parameters():
        if full in names and any(parameter is value for value in preset):
            owner, own_name = nearest_owner(model, full)
            replaced = type(owner).initial is Initial.initial and owner.draw_of(own_name) is owner.draw_table
            assert not replaced, f"{full}: its value in __init__ is drawn over: draws = {{'{own_name}': constant(...)}}"


@contextmanager
def nan_in_empty_tensors() -> Iterator[None]:
    """Let PyTorch fill empty tensors with NaN within the block, which tells them from tensors with values."""
    before = torch.are_deterministic_algorithms_enabled()
    try:
        torch.use_deterministic_algorithms(True)
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def trained(config: Config, piece: int = 0) -> tuple[bytes, Metrics]:
    """Return the weights and metrics, without times, after a training that resumes every `piece` steps, or never."""
    with compute_settings(config):
        training = Training(config, load(config).to(torch_device(config)))
        for step in range(config.steps):
            if piece and step and step % piece == 0:
                training = resumed(training)
            training.advance()
        metrics = evaluate(training)
    del metrics["seconds"]
    return training.weights(), metrics


def resumed(training: Training) -> Training:
    """Return a training that resumes from a checkpoint of the given one."""
    run = Memory()
    training.save_checkpoint(run)
    assert run.checkpoints, f"step {training.step}: no checkpoint is saved, as a value is not finite"
    again = Training(training.config, training.data)
    again.restore(run.checkpoint())
    return again


def trains_the_same_twice(slot: str, name: str) -> None:
    config = tiny(slot, name)
    assert trained(config) == trained(config), f"{slot}={name}: two training runs with one seed end differently"


def resumes(slot: str, name: str) -> None:
    config = tiny(slot, name)
    assert trained(config) == trained(config, config.steps // 2), f"{slot}={name}: a resumed training ends differently"


@torch.no_grad()
def reads_its_tokens(slot: str, name: str) -> None:
    """Check that the pooling reads no register, and that it reads the class token if it declares `class_token`."""
    config = Config(**tiny(slot, name).model_dump() | {"registers": 2})
    model = perturbed(config)
    tokens = model.prefix + math.prod(config.grid)
    generator = torch.Generator().manual_seed(0)
    states = torch.randn((config.layers, 2, tokens, config.width), dtype=torch.float64, generator=generator)

    def pooled() -> Tensor:
        return model.pool(model.pool.gather(states), model.prefix).clone()  # from a view

    before = pooled()
    class_tokens = int(model.pool.class_token)
    states[:, :, class_tokens : model.prefix] += 1
    what = "registers"
    if not class_tokens:
        what = "tokens before the patches: read x[:, prefix:], or set class_token = True"
    assert torch.equal(pooled(), before), f"{slot}={name}: reads the {what}"
    if class_tokens:
        states[:, :, 0] += 1
        assert not torch.equal(pooled(), before), f"{slot}={name}: has a class token and does not read it"


@torch.no_grad()
def locates_patches(slot: str, name: str) -> None:
    config = tiny(slot, name)
    model = perturbed(config)
    images = some_images(config)
    moved = (model(images) - model(shuffle_patches(images, config.patch))).abs().max().item()
    if name == "none":
        assert moved < EQUAL, f"{slot}={name}: shuffling the patches moves the logits by {moved:.1e}"
    else:
        assert moved > 1e-6, f"{slot}={name}: shuffling the patches leaves the logits as they were"


@torch.no_grad()
def perturbed(config: Config) -> ViT:
    """Return a float64 model with noise of standard deviation 0.1 added to every parameter, including zeros."""
    model = build(config).double()
    assert isinstance(model, ViT), "no other model is perturbed"
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.add_(torch.randn(parameter.shape, dtype=torch.float64, generator=generator), alpha=0.1)
    return model


def shuffle_patches(images: Tensor, patch: int) -> Tensor:
    """Return images (B, C, H, W) with their patches in a random order that is the same for all images."""
    B, C, H, W = images.shape
    cut = images.view(B, C, H // patch, patch, W // patch, patch).transpose(3, 4).flatten(2, 3)  # (B, C, N, P, P)
    order = torch.randperm(cut.shape[2], generator=torch.Generator().manual_seed(0))
    return cut[:, :, order].view(B, C, H // patch, W // patch, patch, patch).transpose(3, 4).reshape(B, C, H, W)


@torch.no_grad()
def other_resolution(slot: str, name: str) -> None:
    """Check that images of another size give finite logits, or a ValueError that names the variant or the sizes."""
    config = tiny(slot, name)
    model = ViT(config)
    side, _ = config.image_shape
    for height, width in [(2 * side, 2 * side), (side + config.patch, 2 * side)]:
        try:
            logits = model(torch.randn(2, config.channels, height, width))
        except (ValueError, RuntimeError) as error:
            message = str(error)
            sizes = ((height, width), (side, side))
            named = f"{slot}={name}" in message or any(names_size(message, size, config.patch) for size in sizes)
            if named and isinstance(error, ValueError):
                return
            wanted = "not with a ValueError that names the part or the sizes"
            raise AssertionError(f"{slot}={name}: fails at {height} x {width} pixels, and {wanted}: {error}") from None
        assert logits.isfinite().all(), f"{slot}={name}: logits at another resolution are not finite"


def names_size(text: str, image: tuple[int, int], patch: int) -> bool:
    """Return whether `text` contains an image's height and width, or the grid or number of its patches."""
    numbers = set(map(int, re.findall(r"\d+", text)))
    grid = [side // patch for side in image]
    return any(numbers >= {*size} for size in (image, grid, [math.prod(grid)]))


def leaves_other_values(slot: str, name: str) -> None:
    other = next(variant for variant in VARIANTS[slot] if variant != name)  # comparison with one variant is enough
    before = other_parameters(slot, other)
    after = other_parameters(slot, name)
    changed = [key for key in before.keys() & after.keys() if not torch.equal(before[key], after[key])]
    assert not changed, f"{slot}={name}: {changed[0]} starts with other values than with {slot}={other}"


def other_parameters(slot: str, name: str) -> dict[str, nn.Parameter]:
    """Return name -> parameter of a model with the variant, without parameters that the variant initializes itself."""
    model = ViT(tiny(slot, name))
    kind = VARIANTS[slot][name]
    return {key: values for key, values in model.named_parameters() if type(nearest_owner(model, key)[0]) is not kind}


def exports(slot: str, name: str) -> None:
    config = tiny(slot, name)
    model = perturbed(config).eval()
    copy = ViT(config).double().eval()
    copy.load_state_dict(safetensors.torch.load(safetensors.torch.save(model.state_dict())))
    images = some_images(config)
    with torch.no_grad():
        logits = model(images)
        assert torch.equal(copy(images), logits), f"{slot}={name}: loaded weights give other logits"
        exported = torch.export.export(model, (images,)).module()(images)
    off = (exported - logits).abs().max().item()
    assert off < EQUAL, f"{slot}={name}: the exported graph's logits are off by {off:.1e}"


def compiles(slot: str, name: str, backend: str = "aot_eager") -> None:
    config = tiny(slot, name)
    model = perturbed(config)
    use_private_cache()
    torch.compiler.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    eager = logits_and_gradients(model, model, some_images(config))
    graph = logits_and_gradients(compiled, model, some_images(config))
    for what in eager:
        off = (eager[what] - graph[what]).abs().max().item()
        assert off < EQUAL, f"{slot}={name}: compiled, {what} is off by {off:.1e}"


def logits_and_gradients(run: Callable[[Tensor], Tensor], model: ViT, images: Tensor) -> dict[str, Tensor]:
    """Return {"the logits": logits, parameter name: gradient of their sum of squares} from `run`, eager or compiled."""
    model.zero_grad()
    logits = run(images)
    logits.square().sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {"the logits": logits.detach(), **gradients}


def some_images(config: Config) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    size = (2, config.channels, *config.image_shape)
    return torch.randn(size, dtype=torch.float64, generator=generator)


def names_its_source(slot: str, name: str) -> None:
    """Check that the variant has a docstring, which must contain a link or an arXiv number if it is in vitcore."""
    variant = VARIANTS[slot][name]
    text = variant.__doc__ or ""
    assert text.strip(), f"{slot}={name}: has no docstring that says what it is"
    if variant.__module__.startswith("vitcore."):
        assert SOURCE.search(text), f"{slot}={name}: its docstring names no source (a link, or 'arXiv 2010.11929')"


def same_in_any_batch(slot: str, name: str) -> None:
    """Check that augmentation ignores the rest of a batch, keeps shape and data type, and does not change its input."""
    config = tiny(slot, name)
    augment = AUGMENT[name](config)
    images = next(load(config).train.batches(32))
    given = images.clone()
    rng_keys = image_keys(config.seed, np.zeros(32, np.int64), np.arange(32))
    together = augment(images, rng_keys)
    assert torch.equal(images, given), f"{slot}={name}: writes to the images it is given"
    assert (together.shape, together.dtype) == (images.shape, images.dtype), f"{slot}={name}: not bytes of that shape"
    alone = torch.cat([augment(images[i : i + 1], rng_keys[i : i + 1]) for i in range(len(images))])
    assert torch.equal(alone, together), f"{slot}={name}: an image is augmented differently in another batch"


@torch.no_grad()
def learns_an_image_alone(slot: str, name: str) -> None:
    """Check that a batch's loss is the mean of its images' losses, and that validation scores are from 0 to 1."""
    config = tiny(slot, name)
    training = in_float64(config)
    batch = training.batch()
    together = training.train_step.mean_loss(batch).item()
    alone = sum(training.train_step.mean_loss(image).item() for image in batch.split(1)) / config.batch
    depends = abs(together - alone) > EQUAL
    compares = OBJECTIVE[name].compares
    assert compares or not depends, f"{slot}={name}: an image's loss depends on the images beside it: compares = True"
    loss, right = score(training, training.data.val)
    assert len(right) == len(training.data.val), f"{slot}={name}: not one score for each image"
    assert math.isfinite(loss), f"{slot}={name}: its loss on validation images is not finite"
    assert 0 <= right.min() <= right.max() <= 1, f"{slot}={name}: a score is below 0 or above 1"


def in_float64(config: Config) -> Training:
    """Return a training run at its first step, in float64."""
    data = load(config)
    training = Training(config, replace(data, mean=data.mean.double(), std=data.std.double()))
    training.model.double()
    training.train_step.start_average()
    return training


def finite_rates(slot: str, name: str) -> None:
    for steps in (1, 2, 100):
        config = tiny(slot, name).model_copy(update={"steps": steps})
        for step in range(steps):
            rate = learning_rate(step, config)
            assert 0 <= rate < math.inf, f"{slot}={name}: {rate} at step {step} of {steps}"


def sets_its_values(slot: str, name: str) -> None:
    """Check that every parameter of a model has a value."""
    with nan_in_empty_tensors():
        model = build(tiny(slot, name))
    for full, parameter in model.named_parameters():
        unset = parameter.isnan().any()
        assert not unset, f"{full}: never gets a value: nn.init in __init__, or draws = {{'{full}': normal(0.02)}}"


@torch.no_grad()
def classifies_alone(slot: str, name: str) -> None:
    """Check that no image changes the logits of another, in evaluation and, without batch norm, in training."""
    config = tiny(slot, name)
    model = build(config).double()
    assert isinstance(model, OtherModel)
    images = some_images(config)
    modes = [False]
    if not couples_images(model) and not model.drops:
        modes.append(True)
    for training in modes:
        model.train(training)
        alone = torch.cat([model(image) for image in images.split(1)])
        off = (model(images) - alone).abs().max().item()
        assert off < EQUAL, f"{slot}={name}: an image's logits depend on the images beside it"


def resumes_after_every_step(slot: str, name: str) -> None:
    """Check that a training that resumes from a checkpoint after each step equals one without checkpoints."""
    config = Config(**merge(tiny(slot, name).model_dump(), {"steps": 8, "layer_decay": 0.8}))  # several groups
    assert trained(config) == trained(config, 1), f"{slot}={name}: resumed after every step, it ends differently"


def computes_its_metrics(_: str, name: str) -> None:
    """Check that an eval computes its metrics alone for each value that it takes, and twice the same."""
    config = Config(**merge({"width": 16, "depth": 2, "heads": 2, "patch": 2, "pool": "cls", "registers": 1}))
    model = build(config).to(device_of(config)).eval()
    for spelled in EVAL[name].values:
        entry = EVAL[name](re.sub("[A-Z]+", EVAL[name].example, spelled))
        entry.check(config)
        metrics = entry.compute(model).metrics
        unknown = metrics.keys() - {entry.with_value(metric) for metric in entry.metrics}
        assert not unknown, f"eval {name}: computes {min(unknown)}, which it does not declare"
        assert all(map(math.isfinite, metrics.values())), f"eval {name}: a metric is not finite"
    assert entry.compute(model).metrics == metrics, f"eval {name}: two calls compute different metrics"


CONTRACTS: dict[str, Contract] = {
    "trains": trains,
    "deterministic": trains_the_same_twice,
    "resumes": resumes,
    "leaves the others' initial values": leaves_other_values,
    "says what it is": names_its_source,
}
CONTRACTS_OF_MODELS: dict[str, Contract] = {"deterministic": trains_the_same_twice, "resumes": resumes}
CONTRACTS_OF_CLASSIFIERS: dict[str, Contract] = {
    "trains": trains,
    **CONTRACTS_OF_MODELS,
    "sets all initial values": sets_its_values,
    "classifies each image alone": classifies_alone,
    "says what it is": names_its_source,
}
CONTRACTS_OF_EVALS: dict[str, Contract] = {"computes its metrics": computes_its_metrics}
CONTRACTS_OF_PARTS: dict[str, Contract] = {
    "declares its initial values": declares_its_values,
    "runs at another resolution or says why not": other_resolution,
    "exports": exports,
    "is unchanged by compile": compiles,
}
CONTRACTS_OF: dict[str, dict[str, Contract]] = {
    "position": {"says where a patch is": locates_patches, "works beside prefix tokens": beside_prefix},
    "pool": {"works beside prefix tokens": beside_prefix, "reads patches, or the class token": reads_its_tokens},
    "objective": {"learns each image alone": learns_an_image_alone},
    "augment": {"is the same in any batch": same_in_any_batch},
    "optimizer": {"resumes after every step": resumes_after_every_step},
    "schedule": {"has a rate at every step": finite_rates},
}
