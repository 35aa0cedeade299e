"""Knockouts: what a part of a trained ViT is worth at test time, by four replacements (arXiv 2604.14433).

Zeros are activations that the model has never seen, so that their effect overstates what a part is worth. The other
replacements are plausible: the mean, noise of the same mean and variance, and the part of another image or patch.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from commonfloor.metrics import ACCURACY
from commonfloor.options import ConfigError
from vitcore.analysis.eval import Computed, Eval, batch_outputs, check_predicts_classes, trial_data
from vitcore.data.splits import Data
from vitcore.model.build import Model
from vitcore.model.pooling import POOLING
from vitcore.model.vit import ViT
from vitcore.settings import Settings

REGISTERS = "registers"
CLASS = "class"
POSITION = "position"
PARTS = {REGISTERS: " registers", CLASS: " the class token", POSITION: " position embeddings"}
WORDS = {"zero": "zeros", "mean": "means", "noise": "noise", "shuffle": "shuffled values"}  # of the replacements


class RunningMoments:
    """The mean and standard deviation (..., D) of vectors (n, ..., D) over all n, from sums in float64."""

    def __init__(self) -> None:
        self.count = 0
        self.total = torch.zeros(())
        self.squares = torch.zeros(())

    def add(self, vectors: Tensor) -> None:
        exact = vectors.double()
        self.count += len(exact)
        self.total = self.total.to(exact.device) + exact.sum(dim=0)
        self.squares = self.squares.to(exact.device) + exact.square().sum(dim=0)

    @property
    def mean(self) -> Tensor:
        return self.total / self.count

    @property
    def std(self) -> Tensor:
        return (self.squares / self.count - self.mean.square()).clamp(min=0).sqrt()


Replacement = Callable[[Tensor, RunningMoments, torch.Generator], Tensor]


def zero(vectors: Tensor, moments: RunningMoments, generator: torch.Generator) -> Tensor:
    return torch.zeros_like(vectors)


def mean(vectors: Tensor, moments: RunningMoments, generator: torch.Generator) -> Tensor:
    return moments.mean.to(vectors).expand_as(vectors)


def noise(vectors: Tensor, moments: RunningMoments, generator: torch.Generator) -> Tensor:
    drawn = torch.randn(vectors.shape, generator=generator).to(vectors)
    return moments.mean.to(vectors) + moments.std.to(vectors) * drawn


def shuffle(vectors: Tensor, moments: RunningMoments, generator: torch.Generator) -> Tensor:
    return vectors[torch.randperm(len(vectors), generator=generator).to(vectors.device)]


REPLACEMENTS: dict[str, Replacement] = {"zero": zero, "mean": mean, "noise": noise, "shuffle": shuffle}


class Knockout(Eval):
    """Test accuracy with registers or class token replaced after every block, or with learned positions replaced."""

    metrics = {
        f"knockout_{how}_accuracy": {**ACCURACY, "label": f"accuracy with {words} for"} for how, words in WORDS.items()
    }
    values = tuple(PARTS)

    @property
    def label_suffix(self) -> str:
        return PARTS[self.value]

    def check(self, config: Settings) -> None:
        name = self.with_value("knockout")
        check_predicts_classes(name, config)
        if config.model:
            raise ConfigError(f"eval {name}: the tokens of model={config.model} are not known")
        if self.value == REGISTERS and not config.registers:
            raise ConfigError(f"eval {name}: registers=0: the model has none")
        if self.value == CLASS and not POOLING[config.pool].class_token:
            raise ConfigError(f"eval {name}: pool={config.pool} has no class token")

    def compute(self, model: Model, data_dir: Path | None = None) -> Computed:
        self.check(model.config)
        assert isinstance(model, ViT), "`check` takes no other"
        data = trial_data(model, data_dir)
        if self.value != POSITION:
            return Computed(self.with_tokens_replaced(model, data))
        tables = position_tables(model)
        others = [name for name, _ in model.position.named_parameters() if name not in tables]
        notes = []
        if others:
            notes.append(f"only tables of position embeddings are replaced, not {', '.join(others)}")
        if not tables:
            return Computed({}, [f"position={model.config.position} has no learned embeddings to replace", *notes])
        return Computed(self.with_positions_replaced(model, data, [*tables.values()]), notes)

    def with_tokens_replaced(self, model: ViT, data: Data) -> dict[str, float]:
        """Return the accuracies with registers or class token replaced. Moments are over the test images."""
        tokens = slice(0, 1)
        if self.value == REGISTERS:
            first = int(model.pool.class_token)
            tokens = slice(first, first + model.config.registers)  # before a distillation token
        moments = [RunningMoments() for _ in model.encoder.blocks]

        def record(layer: int, vectors: Tensor) -> Tensor:
            moments[layer].add(vectors)
            return vectors

        def replace(replacement: Replacement, generator: torch.Generator, layer: int, vectors: Tensor) -> Tensor:
            return replacement(vectors, moments[layer], generator)

        with editing_blocks(model, tokens, record):
            accuracy(model, data)
        metrics = {}
        for how, replacement in REPLACEMENTS.items():
            generator = torch.Generator().manual_seed(model.config.seed)
            with editing_blocks(model, tokens, partial(replace, replacement, generator)):
                metrics[self.with_value(f"knockout_{how}_accuracy")] = accuracy(model, data)
        return metrics

    def with_positions_replaced(self, model: ViT, data: Data, tables: list[nn.Parameter]) -> dict[str, float]:
        """Return the accuracies with each table (rows, D) of position embeddings replaced. Moments are over rows."""
        learned = [table.detach().clone() for table in tables]
        metrics = {}
        for how, replacement in REPLACEMENTS.items():
            generator = torch.Generator().manual_seed(model.config.seed)
            for table, values in zip(tables, learned, strict=True):
                rows = values.reshape(-1, values.shape[-1])
                moments = RunningMoments()
                moments.add(rows)
                table.data = replacement(rows, moments, generator).view_as(values)
            metrics[self.with_value(f"knockout_{how}_accuracy")] = accuracy(model, data)
        for table, values in zip(tables, learned, strict=True):
            table.data = values
        return metrics


def position_tables(model: ViT) -> dict[str, nn.Parameter]:
    """Return name -> table of position embeddings: parameters (rows, D) outside linear layers, or (1, rows, width)."""
    tables = {}
    for name, parameter in model.position.named_parameters():
        owner = model.position.get_submodule(name.rpartition(".")[0])
        is_batch_of_one = parameter.ndim == 3 and parameter.shape[::2] == (1, model.config.width)
        if is_batch_of_one or (parameter.ndim == 2 and not isinstance(owner, nn.Linear)):
            tables[name] = parameter
    return tables


def accuracy(model: ViT, data: Data) -> float:
    predicted = batch_outputs(model, model.config, data, data.test).argmax(dim=1)
    return (predicted == data.test.labels).double().mean().item()


@contextmanager
def editing_blocks(model: ViT, tokens: slice, edit: Callable[[int, Tensor], Tensor]) -> Iterator[None]:
    """Within a `with` block, replace tokens (B, t, D) after each block by what `edit` returns of (layer, tokens)."""

    def hook(layer: int, block: nn.Module, inputs: tuple[Tensor, ...], x: Tensor) -> Tensor:
        edited = x.clone()
        edited[:, tokens] = edit(layer, x[:, tokens])
        return edited

    with ExitStack() as hooks:
        for layer, block in enumerate(model.encoder.blocks):
            hooks.callback(block.register_forward_hook(partial(hook, layer)).remove)
        yield
