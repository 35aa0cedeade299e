"""Several trainings as one: trials of one shape take their steps together, as one model with an axis more.

Small models keep a GPU waiting: their kernels take less time than starting them. Here one kernel serves all members.
The forward pass is mapped over their weights by torch.func, so that no variant is written twice; the optimiser steps
what is stacked. All else (order, augmentation, dropout, schedule, evaluations, divergence, checkpoints) is each
member's own training, as vitcore.train has it: its weights and its optimiser's state are rows of the stack, so that
a checkpoint of one kind resumes the other.

Shapes: K members, B images a batch; * any shape of a weight.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from vitcore.average import Average
from vitcore.data import Data, load
from vitcore.device import computing, in_precision, torch_device
from vitcore.folding import Folding, Types
from vitcore.kin import PLAIN, common
from vitcore.memory import out_of_memory, room, shrinking
from vitcore.optim import OPTIMIZER, set_rate
from vitcore.options import ConfigError
from vitcore.ranks import ALONE
from vitcore.run import Outcome, Run
from vitcore.schedule import learning_rate
from vitcore.train import CHECKPOINT_SHARE, Batch, Training, course
from vitcore.transfer import Weights, weights_for

if TYPE_CHECKING:
    from vitcore.config import Config
    from vitcore.train import Course

AnyTraining = TypeVar("AnyTraining", bound=Training)
EQUAL = 1e-9  # how near to a training alone one with others comes, in float64
COUNT = "step"  # what an optimiser keeps of a weight that is no tensor of its shape
TRIED = 2  # steps: the second finds what the first left
# How near the losses of the first steps are, relative. In bfloat16 a value in thousands is rounded the other way, which
# by the third step has been seen to make 0.001 of a small batch's loss; the types of all results are compared besides.
NEAR = {"float32": 1e-5, "bf16": 1e-2}


def train_fused(
    configs: Sequence[Config],
    runs: Sequence[Run],
    *,
    data_dir: Path | None = None,
    parents: Sequence[bytes | None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = 2.0,
    on_end: Callable[[int, Outcome | Exception], None] = lambda position, outcome: None,
) -> list[Outcome | Exception]:
    """What `vitcore.train` makes of each config and run, to rounding; an error of one member alone in its place.

    A member's seconds are its share of the group's, so that those of all add up to the device's.
    `on_end` is told of each, by its position, when it ends: others may go on for long.
    Raises ValueError for configs that cannot be members of one group (see `refuse`); what the device raises of a step.
    """
    refuse(configs)
    with computing(configs[0]), Group(torch_device(configs[0])) as group:
        courses = begun(group, configs, runs, data_dir, parents or [None] * len(configs), stop, checkpoint_seconds)
        ended: dict[int, Outcome | Exception] = {}
        order = sorted(courses, key=lambda number: repr(rates(configs[number])))  # equals are neighbours in the stack
        while running := [number for number in order if number in courses]:
            ready = [*filter(None, (following(courses, number, ended) for number in running))]
            for number in running:
                if number in ended:
                    with group.off_the_clock():
                        on_end(number, ended[number])
            if ready:
                group.advance(ready)
    return [ended[number] for number in range(len(configs))]


def begun(
    group: Group,
    configs: Sequence[Config],
    runs: Sequence[Run],
    data_dir: Path | None,
    parents: Sequence[bytes | None],
    stop: Callable[[], bool],
    checkpoint_seconds: float,
) -> dict[int, Course]:
    """The course of each, which alone keeps its images."""
    images, share = together(configs, data_dir), CHECKPOINT_SHARE / len(configs)
    courses = {}
    for number, (config, run, data, parent) in enumerate(zip(configs, runs, images, parents, strict=True)):
        make = partial(Member, group, config, data, weights_for(config, parent))
        courses[number] = course(make, run, stop, checkpoint_seconds, share)
    return courses


def following(courses: dict[int, Course], number: int, ended: dict[int, Outcome | Exception]) -> Training | None:
    """The training before its next step; None where its course is over, which is noted."""
    try:
        return next(courses[number])
    except StopIteration as end:
        ended[number] = end.value
    except Exception as error:  # of its run or its data: the others go on, and the caller learns of it
        traceback.clear_frames(error.__traceback__)  # who keeps it keeps nothing of the training
        ended[number] = error
    del courses[number]
    return None


def refuse(configs: Sequence[Config]) -> None:
    """Raises ConfigError naming the field in which they differ and may not, or that cannot be so in a group."""
    first = common(configs[0].model_dump())
    for config in configs:
        for name, value in common(config.model_dump()).items():
            if value != first[name]:
                raise ConfigError(f"{name}={first[name]} and {value}: trained together they have to agree in it")
    for name, value in PLAIN.items():
        if first[name] != value:
            raise ConfigError(f"{name}={first[name]}: trained together it has to be {value}")


def unfit(config: Config, data_dir: Path | None = None) -> str:
    """Why trials of this config cannot be trained together; "" where they can.

    Two of them take two steps in float64, together and alone: where what that leaves differs, a part of the model or
    the optimiser does something that cannot be mapped over members. In bfloat16, which float64 shows nothing of, they
    take two more, whose operations and losses are compared. Raises what is no verdict on the config: memory that ran
    out, a device that is lost.
    """
    start = {"head_init": "lecun-normal", "warmup": 0.0, "init_from": "none"}  # gradients reach all from the first step
    pair = [config.model_copy(update=start | {"seed": seed}) for seed in range(2)]
    try:
        refuse(pair)
        with computing(config):
            images = together(pair, data_dir)
            if (why := unequal_in_float64(pair, images)) or config.precision == "float32":
                return why
            return unequal_as_declared(pair, images)
    except Exception as error:  # whatever a part meets under vmap: its trials are trained alone
        if out_of_memory(error):
            raise
        if torch_device(config).type == "cuda":
            torch.cuda.synchronize()  # raises again where the device is lost
        return f"{type(error).__name__}: {' '.join(str(error).split())}"


def unequal_in_float64(configs: Sequence[Config], images: Sequence[Data]) -> str:
    """What two steps together leave that is another number than alone."""
    with Group(torch_device(configs[0])) as group:
        doubles = [exact(data) for data in images]
        alone = [in_float64(Training(one, data)) for one, data in zip(configs, doubles, strict=True)]
        members = [in_float64(Member(group, one, data, None)) for one, data in zip(configs, doubles, strict=True)]
        both(group, members, alone)
    return next((why for one, other in zip(alone, members, strict=True) if (why := unequal(one, other))), "")


def unequal_as_declared(configs: Sequence[Config], images: Sequence[Data], steps: int = TRIED) -> str:
    """The operation whose result is of another type together than alone, or by how much losses of first steps differ.

    In the precision of the config.
    """
    with Group(torch_device(configs[0])) as group:
        alone = [Training(one, data) for one, data in zip(configs, images, strict=True)]
        members = [Member(group, one, data, None) for one, data in zip(configs, images, strict=True)]
        types = Types(alone[0].model), Types(members[0].model)
        both(group, members, alone, steps)
    for (name, expected), (_, found) in zip(types[0].seen, types[1].seen, strict=True):
        if expected != found:
            return f"{name} returns {found} together, and {expected} alone".replace("torch.", "")
    near = NEAR[configs[0].precision]
    for one, other in zip(members, alone, strict=True):
        off = (one.losses[:steps] / other.losses[:steps] - 1).abs().max().item()
        if not off <= near:
            return f"losses of the first {steps} steps are {off:.2g} from those alone, relative, and not {near:g}"
    return ""


def both(group: Group, members: Sequence[Member], alone: Sequence[Training], steps: int = TRIED) -> None:
    """Some steps of each, together and alone."""
    for _ in range(steps):
        group.advance(members)
        group.stack = None  # the next step finds what this one left in the members
        for training in alone:
            training.advance()


def unequal(one: Training, other: Training) -> str:
    """What is another number in the second."""
    found = other.state()
    for name, tensor in one.state().items():
        near = 1e-5 if name == "losses" else EQUAL  # they are kept in float32
        if name != "seconds" and not torch.allclose(tensor.double(), found[name].double(), rtol=near, atol=EQUAL):
            return f"{name} is another one after {TRIED} steps together"
    return ""


def exact(data: Data) -> Data:
    """Images are float64 once they are standardised."""
    return replace(data, mean=data.mean.double(), std=data.std.double())


def in_float64(training: AnyTraining) -> AnyTraining:
    """The same training, before its first step."""
    training.model.double()
    if training.average:
        training.average = Average(training.model, training.config.ema)
    return training


def together(configs: Sequence[Config], data_dir: Path | None) -> list[Data]:
    """The images of each, on the device. Raises ConfigError where all of them do not fit there."""
    device = torch_device(configs[0])
    found = [load(config, data_dir) for config in configs]
    taken = sum(part.pixels.nbytes for data in found for part in (data.train, data.val, data.test))
    if taken > room(device):
        raise ConfigError(f"data={configs[0].data}: those of {len(configs)} trials do not fit into memory together")
    return [data.to(device) for data in found]


class Member(Training):
    """A training that takes its steps with others."""

    def __init__(self, group: Group, config: Config, data: Data, start: Weights | None) -> None:
        self.group = group
        super().__init__(config, data, start, ALONE)

    @contextmanager
    def off_the_clock(self) -> Iterator[None]:
        """The clock is the group's."""
        with self.group.off_the_clock():
            yield


class Group:
    """Those that take the next step together, and the clock of their steps."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.members: list[Training] = []
        self.stack: Stack | None = None
        self.width: int | None = None  # members at a time, as memory has it
        self.mark = time.perf_counter()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *exception: object) -> None:
        """Members refer to it: without this, what they hold of a GPU's memory would stay for a while."""
        self.members, self.stack = [], None

    def settle(self) -> None:
        """The seconds since the clock was last looked at are shared out."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        for member in self.members:
            member.seconds += (now - self.mark) / len(self.members)
        self.mark = now

    @contextmanager
    def off_the_clock(self) -> Iterator[None]:
        """What happens inside is no member's training time."""
        self.settle()
        try:
            yield
        finally:
            self.mark = time.perf_counter()

    def advance(self, members: Sequence[Training]) -> None:
        """One step of each."""
        if self.stack is None or self.members != members:
            self.settle()
            self.members, self.stack = list(members), None  # no two stacks in memory
            self.stack = Stack(members)
        gradients = partial(self.stack.gradients, batch_of_each(members))
        width = min(self.width or len(members), len(members))
        losses, self.width = shrinking(gradients, width, members[0].indivisible)
        self.stack.step()
        for member, loss in zip(members, losses, strict=True):
            member.stepped(loss)


def batch_of_each(members: Sequence[Training]) -> Batch:
    """The batches of the step to come, each part with one more axis, the first.

    What becomes of an image depends on its key alone, so all are augmented, and standardised, at once.
    """
    first, drawn = members[0], [member.drawn() for member in members]
    pixels = torch.cat([own for own, _, _ in drawn])
    keys = [own for _, _, own in drawn if own is not None]
    if keys:
        pixels = first.augment(pixels, torch.cat(keys))
    images = first.data.standardise(pixels)
    parts = zip(pixels.chunk(len(members)), images.chunk(len(members)), drawn, strict=True)
    batches = [
        member.targeted(some, standardised, labels, own)
        for member, (some, standardised, (_, labels, own)) in zip(members, parts, strict=True)
    ]
    return Batch(
        torch.stack([batch.images for batch in batches]),
        torch.stack([batch.targets for batch in batches]),
        torch.stack([batch.keys for batch in batches if batch.keys is not None]) if keys else None,
    )


class Stack:
    """The weights of all members, (K, *) for each of the model's, and what the optimiser keeps of them.

    The members' own tensors become rows of them.
    """

    def __init__(self, members: Sequence[Training]) -> None:
        self.members, self.model = members, members[0].model
        self.parameters = {
            name: nn.Parameter(rows(member.model.get_parameter(name) for member in members), own.requires_grad)
            for name, own in self.model.named_parameters()
        }
        kept, buffers = self.model.state_dict().keys(), [dict(member.model.named_buffers()) for member in members]
        self.buffers = {
            name: rows(own[name] for own in buffers)
            for name, one in buffers[0].items()
            if name in kept or not all(torch.equal(one, own[name]) for own in buffers)  # the others are constants
        }
        for member in members:
            if member.average:
                member.average.follow(member.model)
        self.optimizers = [
            Steps(members[start:end], self.parameters, slice(start, end)) for start, end in alike(members)
        ]

    def gradients(self, batches: Batch, size: int) -> Tensor:
        """Those of each member's mean loss over its batch; the losses (K,). `size` members at a time."""
        for parameter in self.parameters.values():
            parameter.grad = None
        losses, keys = [], batches.keys
        for start in range(0, len(self.members), size):
            some = slice(start, start + size)
            batch = Batch(batches.images[some], batches.targets[some], keys if keys is None else keys[some])
            weights: dict[str, Tensor] = self.parameters | self.buffers
            if size < len(self.members):
                weights = {name: tensor[some] for name, tensor in weights.items()}
            loss = vmap(self.members[0].goal.loss)(self.logits(weights, batch), batch.targets)
            loss.sum().backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        return torch.cat(losses)

    def logits(self, weights: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(K, B, classes), or as the objective says."""

        def of_one(weights: Mapping[str, Tensor], *inputs: Tensor) -> Tensor:
            return functional_call(self.model, dict(weights), inputs)  # type: ignore[no-any-return]

        def of_all(*inputs: Tensor) -> Tensor:
            with Folding(batch.images.device.type):
                return vmap(of_one)(weights, *inputs)

        inputs = [batch.images] if batch.keys is None else [batch.images, batch.keys]
        return in_precision(self.members[0].config, of_all, *inputs)

    @torch.no_grad()
    def step(self) -> None:
        """Each member's gradient clipped by its own norm, then the optimisers."""
        if bound := self.members[0].config.clip_norm:
            gradients = [parameter.grad for parameter in self.parameters.values() if parameter.grad is not None]
            norms = torch.cat([gradient.reshape(len(self.members), -1) for gradient in gradients], dim=1).norm(
                dim=1
            )  # (K,)
            shares = (bound / (norms + 1e-6)).clamp(max=1.0)  # as torch.nn.utils.clip_grad_norm_
            torch._foreach_mul_(gradients, [shares.view(-1, *[1] * (one.ndim - 1)) for one in gradients])
        for optimizer in self.optimizers:
            optimizer.step()


class Steps:
    """Members that are neighbours and step alike: one optimiser, in the config's own kind, for their part of the stack.

    What it keeps of each weight is stacked too; the count of its steps is one for all.
    """

    def __init__(self, members: Sequence[Training], parameters: Mapping[str, nn.Parameter], part: slice) -> None:
        self.members, self.part = members, part
        first = members[0]
        whole = part == slice(0, len(next(iter(parameters.values()))))
        self.stacks = parameters
        self.weights = {name: p if whole else nn.Parameter(p.detach()[part]) for name, p in parameters.items()}
        names = {parameter: name for name, parameter in first.model.named_parameters()}
        groups = [
            {
                "params": [self.weights[names[parameter]] for parameter in group["params"]],
                **{key: group[key] for key in ("weight_decay", "lr_scale")},
            }
            for group in first.optimizer.param_groups
        ]
        self.optimizer = OPTIMIZER[first.config.optimizer].make(groups, first.config)
        self.shared = False
        for name, weight in self.weights.items():
            states = [member.optimizer.state[member.model.get_parameter(name)] for member in members]
            if states[0]:
                self.optimizer.state[weight] = {
                    key: tensor.clone() if key == COUNT else torch.stack([state[key] for state in states])
                    for key, tensor in states[0].items()
                }

    def step(self) -> None:
        for name, weight in self.weights.items():
            if weight is not (stack := self.stacks[name]):
                weight.grad = None if stack.grad is None else stack.grad[self.part]
        first = self.members[0]
        set_rate(self.optimizer, learning_rate(first.step, first.config))
        self.optimizer.step()
        if not self.shared:  # what it keeps exists from its first step on
            self.share()

    def share(self) -> None:
        """The members' optimisers keep rows of it."""
        self.shared = True
        for name, weight in self.weights.items():
            for row, member in enumerate(self.members):
                member.optimizer.state[member.model.get_parameter(name)] = {
                    key: tensor if key == COUNT else tensor[row] for key, tensor in self.optimizer.state[weight].items()
                }


def rows(tensors: Iterable[Tensor]) -> Tensor:
    """A stack (K, *) of tensors, which from then on are its rows."""
    own = list(tensors)
    stack = torch.stack([tensor.detach() for tensor in own])
    for tensor, row in zip(own, stack, strict=True):
        tensor.data = row
    return stack


def rates(config: Config) -> tuple[Any, ...]:
    """What says how far a step goes."""
    names = ("lr", "weight_decay", "schedule", "warmup", "steps")
    return (*(getattr(config, name) for name in names), config.options)


def alike(members: Sequence[Training]) -> Iterator[tuple[int, int]]:
    """From where to where neighbours are at the same step of the same schedule."""
    start = 0
    for end in range(1, len(members) + 1):
        if end == len(members) or differ(members[start], members[end]):
            yield start, end
            start = end


def differ(one: Training, other: Training) -> bool:
    return (one.step, rates(one.config)) != (other.step, rates(other.config))
