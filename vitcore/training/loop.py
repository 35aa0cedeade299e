"""One loop: train, evaluate, checkpoint, resume.

Killed at any moment and started again on the same CPU, a training ends with the weights and the metrics of
one never killed: all that it depends on is in the checkpoint or is a pure function of the seed and the step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from vitcore.analysis.cost import measure
from vitcore.data.mixing import draw as mixing_of
from vitcore.data.splits import Data, Images, Order, load
from vitcore.data.stream import Stored
from vitcore.interop.weight_files import read_tensors
from vitcore.keyed_random import Indices, Keys, image_keys
from vitcore.options import ConfigError
from vitcore.runtime.device import computing, in_precision, sent, torch_device
from vitcore.runtime.memory import capacity, shrinking
from vitcore.runtime.memory_limits import check_memory
from vitcore.training.distributed import ALONE, Alone, Places
from vitcore.training.divergence import DivergedError, Suspicion
from vitcore.training.ema import Average
from vitcore.training.optimizers import OPTIMIZER
from vitcore.training.run import Memory, Outcome, Run, Status
from vitcore.training.schedules import learning_rate
from vitcore.training.step import Batch, Inputs, TrainStep
from vitcore.training.transfer import Weights, weights_for

if TYPE_CHECKING:
    from vitcore.config import Config

EVALUATION_BATCH = 512  # images at most; how much memory an evaluation takes, nothing else
EVALUATION_BYTES = 2**26  # of them, on a CPU, which is no faster with more: 111 images of 224 pixels
CHECKPOINT_SHARE = 0.02  # of the time at most goes into checkpoints
TICK = 0.25  # seconds between two reports of progress


def train(
    config: Config,
    run: Run | None = None,
    *,
    data_dir: Path | None = None,
    parent: bytes | None = None,
    stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = 2.0,
    ranks: Alone = ALONE,
) -> Outcome:
    """Trains `config` from the run's checkpoint, if it has one, to the end or to a step at which `stop()`.

    A checkpoint is made every `checkpoint_seconds`, or less often where that would take more than 2% of the time;
    0: before every step.
    `parent`: the weights, as safetensors, of the trial that `init_from` names. `ranks`: the `config.gpus` processes
    that call this together; the first one's run is written to, its parent taken. Without a `run`, only the outcome is
    kept. Raises ValueError where data are missing or not what `config` says, or the model cannot fit into memory.
    """
    if config.gpus != ranks.count:
        raise ConfigError(f"gpus={config.gpus}: here is 1 process of {ranks.count}; `ablate train` starts the others")
    run = run or Memory()
    with computing(config):
        if ranks.rank == 0:
            check_memory(dict(config), measure(config), capacity(torch_device(config)))
        data = load(config, data_dir).to(torch_device(config))
        start = weights_for(config, ranks.told(lambda: parent))
        make = partial(Training, config, data, start, ranks)
        suspicion: Suspicion | None = None
        while True:
            training = begin(make, run, suspicion)
            try:
                return loop(training, run, stop, checkpoint_seconds)
            except DivergedError as diverged:
                if training.suspicion.confirmed_by(diverged.step):
                    return training.outcome("diverged", {}, diverged.step)
                suspicion = training.suspicion.moved(diverged.step)
            del training  # two of them may not fit into memory


def begin(make: Callable[[], Training], run: Run, suspicion: Suspicion | None) -> Training:
    """From the newest checkpoint, all of which are finite, or from the start; a new suspicion is put on record."""
    training = make()
    if (payload := training.ranks.told(run.checkpoint)) is not None:
        training.restore(payload)
    if suspicion is not None:
        training.suspicion = suspicion
        save(training, run)
    return training


def save(training: Training, run: Run) -> None:
    """A checkpoint; none of what is no longer finite, which the next evaluation tells: what led there stays."""
    if training.ranks.rank == 0 and training.finite():
        run.save_checkpoint(training.step, training.save())


def loop(training: Training, run: Run, stop: Callable[[], bool], checkpoint_seconds: float) -> Outcome:
    """Train to the end or until `stop()`. Checkpoints are saved before a step; evaluations follow one."""
    config = training.config
    due, line = evaluation_steps(config), dict[str, Any]()
    saved = shown = time.monotonic()
    pause = checkpoint_seconds
    while training.step < config.steps:
        now = time.monotonic()
        if (stopping := training.ranks.agreed(stop)) or now - saved >= pause:
            save(training, run)
            saved = time.monotonic()
            pause = checkpoint_seconds and max(checkpoint_seconds, (saved - now) / CHECKPOINT_SHARE)
        if stopping:
            return training.outcome("stopped", {})
        if now - shown >= TICK:
            run.progress(training.step, line.get("val_accuracy"))
            shown = now
        if training.train_step.compiling:
            run.compiling()
            with training.off_the_clock():
                training.advance()
        else:
            training.advance()
        if training.train_step.facts:
            run.record(training.train_step.facts)
            training.train_step.facts = {}
        if training.step in due:
            line = training.evaluate()
            run.log(line)
        if training.suspicion.step:
            training.verify()
    loss, correct = training.test()
    run.save_weights(training.weights())
    if training.goal.labels:
        run.save_correct(training.data.test.index.astype(np.int32), correct.astype(np.uint8))
    run.progress(training.step, line["val_accuracy"])
    validated = {name: line[name] for name in ("val_accuracy", "val_loss", "train_loss")}
    return training.outcome("finished", {"test_accuracy": correct.mean().item(), "test_loss": loss} | validated)


class Training:
    """The state of a training, all of which is in its checkpoint, and what moves it by one step."""

    def __init__(self, config: Config, data: Data, start: Weights | None = None, ranks: Alone = ALONE) -> None:
        self.config, self.data, self.device, self.ranks = config, data, data.mean.device, ranks
        self.train_step = TrainStep(config, data, start, ranks)
        self.goal, self.model = self.train_step.goal, self.train_step.model
        self.optimizer = self.train_step.optimizer
        self.part = ranks.part(config.batch)
        own = OPTIMIZER[config.optimizer].average(self.model, self.optimizer)
        self.average = Average(self.model, config.ema) if config.ema else own
        self.order = Order(len(data.train), config.seed)
        # No bound method: what refers to itself stays in memory until Python happens to look for it.
        self.places = partial(places, self.order, config.batch, self.part)
        self.images = data.train.reader(self.places, config.steps)
        self.evaluation_batch = evaluation_batch(config, self.device)
        self.suspicion = Suspicion()
        self.step = 0
        # The loss of each step since the last evaluation, on the device, so that no step waits for its value.
        self.losses = torch.zeros(config.steps, device=self.device)
        self.since = 0
        self.seconds, self.mark = 0.0, time.perf_counter()

    def advance(self) -> None:
        """Take one step."""
        loss = self.train_step(self.draw(), learning_rate(self.step, self.config))
        self.losses[self.since] = self.ranks.mean(loss)
        self.step, self.since = self.step + 1, self.since + 1
        if self.average:
            self.average.update(self.step)

    def forward(self, images: Tensor, keys: Keys = None) -> Tensor:
        """Logits (B, classes), or as the objective says, in float32, whatever the precision on the way there."""
        return in_precision(self.config, self.model, images, keys)

    def batch(self) -> Batch:
        """This rank's part of the next step's batch, augmented and mixed."""
        return self.train_step.batch(self.train_step.sent(self.draw()))

    def draw(self) -> Inputs:
        """What the next step has of its own, drawn on the CPU."""
        config, train, places = self.config, self.data.train, self.places(self.step)
        pixels = self.images(self.step) if isinstance(train.pixels, Stored) else None
        mixing = None
        if config.mixup or config.cutmix:
            mixing = mixing_of(config, self.step, config.image_size, config.image_size)
        return self.train_step.drawn(Inputs(torch.from_numpy(places), pixels, self.keys(places), None, mixing))

    def keys(self, places: Indices) -> Keys:
        """The random keys of the next step's images, on the CPU; None where nothing needs them."""
        config = self.config
        noisy = config.dropout or config.attention_dropout or config.patch_dropout or config.drop_path
        if not (config.augment != "none" or noisy or self.goal.keyed):
            return None
        epochs = self.order.epochs(self.step * config.batch, config.batch)[self.part]
        return image_keys(config.seed, epochs, self.data.train.index[places])

    def evaluate(self) -> dict[str, Any]:
        """A line of metrics, from the validation images alone. Raises DivergedError."""
        with self.off_the_clock():
            losses = self.finite_losses()
            loss, correct = self.measure(self.data.val)
            if not math.isfinite(loss):
                raise DivergedError(self.step)
            self.since = 0
        images = self.step * self.config.batch
        return {
            "step": self.step,
            "epoch": images / len(self.data.train),
            "images": images,
            "seconds": self.seconds,
            "train_loss": losses.mean().item(),
            "val_loss": loss,
            "val_accuracy": correct.mean().item(),
            "lr": learning_rate(self.step - 1, self.config),
        }

    def finite_losses(self) -> Tensor:
        """Those since the last evaluation, on the CPU. Raises DivergedError with the step of the first that is not."""
        losses = self.losses[: self.since].cpu()
        finite = losses.isfinite()
        if not finite.all():
            raise DivergedError(self.step - self.since + 1 + int(finite.int().argmin()))
        return losses

    def verify(self) -> None:
        """After a step on the way to the suspected one, and after that one. Raises DivergedError."""
        with self.off_the_clock():
            self.finite_losses()
        if self.step >= self.suspicion.step:
            self.suspicion = self.suspicion.refuted()

    def finite(self) -> bool:
        """Whether all that a checkpoint would hold is."""
        with self.off_the_clock():
            return all(bool(tensor.isfinite().all()) for tensor in self.state().values())

    def test(self) -> tuple[float, np.ndarray[Any, Any]]:
        """Loss, and what was right, on the test images: once, at the end."""
        with self.off_the_clock():
            return self.measure(self.data.test)

    @torch.no_grad()
    def measure(self, images: Images) -> tuple[float, np.ndarray[Any, Any]]:
        """Cross-entropy, and for each image (n,) whether it is right, or how much of it."""
        self.model.eval()
        with self.average.in_place() if self.average else nullcontext():
            mine = partial(self.answers, images.at(self.ranks.share(len(images))))
            (answers, targets), self.evaluation_batch = shrinking(mine, self.evaluation_batch)
        self.model.train()
        whole = (self.ranks.gathered(some, len(images)) for some in (answers, targets))
        loss, correct = self.goal.verdict(*whole)
        return loss, correct.cpu().numpy()

    def answers(self, images: Images, size: int) -> tuple[Tensor, Tensor]:
        """What is kept of the logits of n images, `size` at a time, and what they are compared with."""
        keys = self.goal.keys(images.index)
        kept, start = [], 0
        for pixels in images.batches(size):
            labels = images.labels[start : start + len(pixels)]
            some = None if keys is None else sent(keys[start : start + len(pixels)], self.device)
            targets = self.goal.targets(pixels, labels, some)
            logits = self.forward(self.data.standardise(pixels), some)
            kept.append((self.goal.answers(logits, targets), targets))
            start += len(pixels)
        answers, targets = map(torch.cat, zip(*kept, strict=True))
        return answers, targets

    def save(self) -> bytes:
        """Everything that the rest of the training depends on, as safetensors."""
        with self.off_the_clock():
            return safetensors.torch.save(self.state())

    def state(self) -> dict[str, Tensor]:
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            for key, tensor in self.optimizer.state[parameter].items():
                tensors[f"optimizer.{name}.{key}"] = tensor
        if self.average:
            tensors |= {f"average.{name}": tensor for name, tensor in self.average.state_dict().items()}
        tensors["losses"] = self.losses[: self.since]
        tensors["step"] = torch.tensor(self.step)
        tensors["micro_batch"] = torch.tensor(self.train_step.micro_batch)
        tensors["suspicion"] = torch.tensor(astuple(self.suspicion))
        tensors["seconds"] = torch.tensor(self.seconds, dtype=torch.float64)
        return tensors

    def restore(self, payload: bytes) -> None:
        """The state that `save` gave."""
        tensors = read_tensors(payload)
        self.model.load_state_dict(under("model.", tensors))
        if self.average:
            self.average.load_state_dict(under("average.", tensors))
        for name, parameter in self.model.named_parameters():
            state = under(f"optimizer.{name}.", tensors)
            if state:
                self.optimizer.state[parameter] = {key: t.to(self.device) for key, t in state.items()}
        self.since = len(tensors["losses"])
        self.losses[: self.since] = tensors["losses"]
        self.step, self.seconds = int(tensors["step"]), tensors["seconds"].item()
        if "micro_batch" in tensors:  # from here on not in the checkpoints of earlier versions
            self.train_step.micro_batch = min(self.train_step.micro_batch, int(tensors["micro_batch"]))
            self.suspicion = Suspicion(*tensors["suspicion"].tolist())
        self.mark = time.perf_counter()

    def weights(self) -> bytes:
        """Those that were tested, as safetensors."""
        kept = self.average or self.model
        return safetensors.torch.save({name: t.cpu() for name, t in kept.state_dict().items()})

    @contextmanager
    def off_the_clock(self) -> Iterator[None]:
        """What happens inside is not training time; what the device was given before it is."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.seconds += time.perf_counter() - self.mark
        try:
            yield
        finally:
            self.mark = time.perf_counter()

    def outcome(self, status: Status, metrics: dict[str, float], diverged_at: int | None = None) -> Outcome:
        with self.off_the_clock():
            cost = measure(self.config)
        images = self.step * self.config.batch
        speed = images / self.seconds if self.seconds else 0.0
        return Outcome(
            status,
            metrics,
            cost["params"],
            cost["flops"],
            self.step,
            images,
            self.seconds,
            speed,
            diverged_at,
            self.train_step.micro_batch if self.train_step.micro_batch < self.config.batch else 0,
            self.suspicion.refuted_step or None,
        )


def places(order: Order, batch: int, part: Places, step: int) -> Indices:
    """Where a rank's images of a step stand in the training data."""
    return order.places(step * batch, batch)[part]


def evaluation_batch(config: Config, device: torch.device) -> int:
    """How many images are evaluated at once; packs have some such batches more in memory, read ahead."""
    if device.type != "cpu":
        return EVALUATION_BATCH
    return max(1, min(EVALUATION_BATCH, EVALUATION_BYTES // (4 * config.channels * config.image_size**2)))


def evaluation_steps(config: Config) -> list[int]:
    """Where the metrics get a line: evenly spaced, the last step among them."""
    count = min(config.evaluations, config.steps)
    return [round(config.steps * (i + 1) / count) for i in range(count)]


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
