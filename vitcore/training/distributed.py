"""Training in several processes (ranks) with DistributedDataParallel, each on its share of every batch (`gpus=N`).

All ranks hold equal models and optimizers, and read the data. Only rank 0 saves results, reads trials' weights and
checkpoints, and decides what depends on a clock or a signal. NCCL transfers tensors on GPUs, and gloo transfers tensors
on the host.
"""

import gc
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import TCPStore as TCPStore  # for mypy it is exported nowhere else
from torch.nn.parallel import DistributedDataParallel

from commonfloor.options import ConfigError
from vitcore.keyed_random import Indices
from vitcore.model.build import Model, build, couples_images
from vitcore.runtime.memory import call_shrinking
from vitcore.settings import Settings
from vitcore.training.objectives import OBJECTIVE

Result = TypeVar("Result")
WAIT = timedelta(minutes=10)  # timeout of an exchange between ranks; longer than the wait for a full disk to clear
EXCHANGE = re.compile(r"\bgloo\b|\bNCCL\b|[Cc]onnection (reset|refused|closed|was)|Broken pipe|timed out", re.ASCII)


class Ranks:
    """The ranks of a training run, as seen by one of them. By default, this process is the only rank.

    rank: number of this process, from 0. count: number of ranks. device: this rank's device, or None if alone.

    All ranks must call `gather`, `mean`, `agree`, `broadcast` and `minimum` together. If another rank has ended or does
    not respond, these methods raise an error for which `exchange_failed` is True.
    """

    def __init__(self, rank: int = 0, count: int = 1, device: torch.device | None = None) -> None:
        self.rank, self.count, self.device = rank, count, device

    def prepare(self, model: Model) -> Model:
        """Return the model with batch norms synchronized over the ranks; raise ConfigError if PyTorch cannot do so."""
        if self.device is None:
            return model
        gc.collect()  # frees the model of an earlier attempt, because DistributedDataParallel refers to itself
        if not couples_images(model):
            return model
        from timm.layers.norm_act import convert_sync_batchnorm  # late: takes seconds; it also converts timm's layers

        refuse_batch_norm(self.count, self.device.type)
        return convert_sync_batchnorm(model)

    def part(self, batch: int) -> Indices:
        """Return the indices, in ascending order, of this rank's images in a batch of `batch` images.

        Images i and batch - 1 - i are on the same rank, because mixup mixes them.
        """
        half = batch // 2
        first = half * self.rank // self.count
        end = half * (self.rank + 1) // self.count
        middle = int(batch % 2 and end == half)  # whether it has the image that is its own partner
        return np.concatenate([np.arange(first, end + middle), np.arange(batch - end, batch - first)])

    def largest_part(self, batch: int) -> int:
        return batch % 2 + 2 * math.ceil(batch // 2 / self.count)

    def evaluated(self, images: int) -> slice:
        """Return the slice of `images` images that this rank evaluates: all if there are fewer images than ranks."""
        if images < self.count:
            return slice(None)
        return slice(images * self.rank // self.count, images * (self.rank + 1) // self.count)

    def gather(self, mine: Tensor, images: int) -> Tensor:
        """Return the rows (images, ...) of all ranks. mine: this rank's rows (n, ...), for `evaluated(images)`."""
        if len(mine) == images:
            return mine
        whole = mine.new_zeros(images, *mine.shape[1:])
        whole[self.evaluated(images)] = mine
        dist.all_reduce(whole)  # a sum with a nonzero term from one rank only
        return whole

    def mean(self, tensor: Tensor) -> Tensor:
        """Return the mean of a tensor over the ranks. With several ranks, `tensor` is overwritten."""
        if self.device is None:
            return tensor
        dist.all_reduce(tensor)
        return tensor / self.count

    def agree(self, decide: Callable[[], bool]) -> bool:
        """Return on every rank what `decide` returns on rank 0."""
        decision = torch.tensor(int(self.rank == 0 and decide()))  # on the host, so that no rank waits for a GPU
        if self.device is not None:
            dist.broadcast(decision, 0)
        return bool(decision)

    def broadcast(self, read: Callable[[], bytes | None]) -> bytes | None:
        """Return on every rank what `read` returns on rank 0."""
        payload: bytes | None = None
        size = torch.tensor(-1)  # stands for None
        if self.rank == 0:
            payload = read()
        if self.device is None:
            return payload
        if payload is not None:
            size.fill_(len(payload))
        dist.broadcast(size, 0)
        if size < 0:
            return None
        buffer = bytearray(int(size))
        if payload is not None:
            buffer[:] = payload
        content = torch.frombuffer(buffer, dtype=torch.uint8)
        dist.broadcast(content, 0)
        return content.numpy().tobytes()

    def minimum(self, number: int) -> int:
        tensor = torch.tensor(number)
        dist.all_reduce(tensor, dist.ReduceOp.MIN)
        return int(tensor)


ALONE = Ranks()


class Replica:
    """One rank's copy of the model, with the exchange of gradients between ranks.

    The last backward pass of a step averages gradients, so a rank that is out of memory would block the others. The
    first step is therefore tried without communication, until its micro-batches fit on all ranks. The attempt also
    shows whether the loss uses all parameters.
    """

    def __init__(self, ranks: Ranks, model: Model) -> None:
        self.ranks, self.model = ranks, model
        self.parallel: DistributedDataParallel | None = None

    def call_fitting(self, work: Callable[[int], Result], size: int, indivisible: str) -> tuple[Result, int]:
        """Return (`work(size)`, size) for a micro-batch size that fits. With several ranks, the first step finds it."""
        if self.ranks.device is None:
            return call_shrinking(work, size, indivisible)
        if self.parallel is None:
            size = self.prepare(work, size, indivisible)
        return call_shrinking(work, size, indivisible or "a micro-batch of this size had fitted")

    def prepare(self, work: Callable[[int], Result], size: int, indivisible: str) -> int:
        """Prepare to exchange gradients, and return the micro-batch size, at most `size`, that fits on all ranks."""
        assert self.ranks.device is not None
        unused = False
        if not indivisible:
            fitting = self.ranks.minimum(call_shrinking(work, size)[1])
            while fitting < size:
                size = fitting
                fitting = self.ranks.minimum(call_shrinking(work, size)[1])
            unused = any(weight.requires_grad and weight.grad is None for weight in self.model.parameters())
        device_ids = [self.ranks.device] if self.ranks.device.type == "cuda" else None
        module = LossModule(self.model)
        self.parallel = DistributedDataParallel(module, device_ids=device_ids, find_unused_parameters=unused)
        return size

    def loss(self, objective: Callable[[Any], Tensor], batch: Any) -> Tensor:
        if self.parallel is None:
            return objective(batch)
        return self.parallel(objective, batch)

    def micro_batches(self, pieces: Iterable[Any]) -> Iterator[Any]:
        """Yield the micro-batches of one step. Only the last backward pass exchanges gradients."""
        if self.parallel is None:
            yield from pieces
            return
        *before, last = pieces
        with self.parallel.no_sync():
            yield from before
        yield last


class LossModule(nn.Module):
    """A module whose `forward` computes a loss, so that DistributedDataParallel can prepare to exchange gradients."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, objective: Callable[[Any], Tensor], batch: Any) -> Tensor:
        return objective(batch)


@contextmanager
def join(store: TCPStore, rank: int, count: int, device: torch.device) -> Iterator[Ranks]:
    """Connect this process to the other ranks during the block, and yield its Ranks. store: for the rendezvous.

    All ranks leave the block together. After an error, a rank leaves at once, because the others may have ended. If
    another rank is missing, raises an error for which `exchange_failed` is True.
    """
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.set_device(device)
        backend: dict[str, Any] = {"backend": "cpu:gloo,cuda:nccl", "device_id": device}
    else:
        backend = {"backend": "gloo"}
    dist.init_process_group(**backend, store=store, rank=rank, world_size=count, timeout=WAIT)
    try:
        yield Ranks(rank, count, device)
        dist.barrier()
    except BaseException:
        if cuda:
            with suppress(RuntimeError):  # the error that led here is the one to raise
                dist.group.WORLD.abort()  # type: ignore[union-attr]  # there is one: it was just made
        raise
    finally:
        dist.destroy_process_group()


def check_ranks(config: Settings) -> None:
    """Raise ConfigError if one of several ranks would have fewer than two images, or use batch norm on a CPU."""
    if config.batch < 2 * config.gpus:
        fitting = max(1, config.batch // 2)
        count = torch.cuda.device_count()
        missing = f"only {count} here, and " if config.device != "cpu" and count < config.gpus else ""
        limit = f"batch={config.batch} has fewer than two images for each: at most {fitting}"
        raise ConfigError(f"gpus={config.gpus}: {missing}{limit}")
    if OBJECTIVE[config.objective].compares:
        raise ConfigError(f"gpus={config.gpus}: objective={config.objective} compares the images of a batch: must be 1")
    if config.device == "cpu":
        with torch.device("meta"):
            tied = couples_images(build(config))
        if tied:
            refuse_batch_norm(config.gpus, "cpu")


def refuse_batch_norm(count: int, device: str) -> None:
    if device == "cpu":  # PyTorch synchronizes batch norm only on GPUs
        raise ConfigError(f"gpus={count}: PyTorch synchronizes batch norm only on GPUs: must be 1 on a CPU")


def exchange_failed(error: BaseException) -> bool:
    """Return whether an error means that another rank has ended or does not respond."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and bool(EXCHANGE.search(str(error))))
