"""Training in several processes, each on a part of every batch: `gpus=N`, using DistributedDataParallel.

All ranks hold equal models, optimizers and averages, and take equal steps. Rank 0 alone reads and writes, and decides
wherever a clock or a signal matters. NCCL carries tensors on GPUs, gloo tensors on the host.
"""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import TCPStore as TCPStore  # for mypy it is exported nowhere else
from torch.nn.parallel import DistributedDataParallel

from vitcore.keyed_random import Indices
from vitcore.model.build import Model, build, ties_images
from vitcore.options import ConfigError
from vitcore.runtime.memory import OutOfMemory, out_of_memory, shrinking

if TYPE_CHECKING:
    from vitcore.config import Config

Batch = TypeVar("Batch")
Result = TypeVar("Result")
WAIT = timedelta(minutes=10)  # for a rank that says nothing; longer than a full disk is waited for
EXCHANGE = re.compile(r"\bgloo\b|\bNCCL\b|[Cc]onnection (reset|refused|closed|was)|Broken pipe|timed out", re.ASCII)


class Ranks:
    """The processes of a training, seen from one of them: by default this process alone.

    device: the device of this rank, where several processes are connected.
    """

    def __init__(self, rank: int = 0, count: int = 1, device: torch.device | None = None) -> None:
        self.rank, self.count, self.device = rank, count, device

    def prepare(self, model: Model) -> Model:
        """Return the model with batch norms that the ranks compute together. Raises ConfigError on CPUs."""
        if self.device is None:
            return model
        gc.collect()  # frees the model of a training that was given up: DistributedDataParallel refers to itself
        if not ties_images(model):
            return model
        from timm.layers.norm_act import convert_sync_batchnorm  # late: takes seconds; knows timm's own layers too

        refuse_batch_norm(self.count, self.device.type)
        return convert_sync_batchnorm(model)  # type: ignore[no-any-return, no-untyped-call]  # timm's

    def part(self, batch: int) -> Indices:
        """Return this rank's indices of a batch, ascending.

        They are pairs of mirrored places, so that one rank has both images that mixup mixes.
        """
        half = batch // 2
        first, after = (half * rank // self.count for rank in (self.rank, self.rank + 1))
        middle = [half] if batch % 2 and after == half else []
        return np.concatenate([np.arange(first, after), middle, np.arange(batch - after, batch - first)]).astype(int)

    def largest_part(self, batch: int) -> int:
        """Return the number of images in the largest part of a batch, equal on all ranks."""
        return batch % 2 + 2 * math.ceil(batch // 2 / self.count)

    def share(self, images: int) -> slice:
        """Return the images that this rank evaluates; all of them if there are fewer images than ranks."""
        if images < self.count:
            return slice(None)
        return slice(images * self.rank // self.count, images * (self.rank + 1) // self.count)

    def gather(self, mine: Tensor, images: int) -> Tensor:
        """Return the shares (some, D) of all ranks, concatenated (images, D)."""
        if len(mine) == images:
            return mine
        whole = mine.new_zeros(images, *mine.shape[1:])
        whole[self.share(images)] = mine
        dist.all_reduce(whole)  # to each number only zeros are added
        return whole

    def mean(self, tensor: Tensor) -> Tensor:
        """Return the mean over the ranks."""
        if self.device is None:
            return tensor
        dist.all_reduce(tensor)
        return tensor / self.count

    def agree(self, decide: Callable[[], bool]) -> bool:
        """Return rank 0's decision on all ranks."""
        return decide() if self.device is None else bool(self.broadcast_number(int(self.rank == 0 and decide())))

    def broadcast(self, read: Callable[[], bytes | None]) -> bytes | None:
        """Call `read` on rank 0 and return its value on all ranks."""
        payload = read() if self.rank == 0 else None
        if self.device is None:
            return payload
        if (size := self.broadcast_number(-1 if payload is None else len(payload))) < 0:
            return None
        content = torch.empty(size, dtype=torch.uint8)
        if payload is not None:
            content.copy_(torch.frombuffer(bytearray(payload), dtype=torch.uint8))
        dist.broadcast(content, 0)
        return content.numpy().tobytes()

    def broadcast_number(self, number: int) -> int:
        """Return rank 0's number on all ranks. It travels between hosts, so no rank waits for a GPU."""
        tensor = torch.tensor(number)
        dist.broadcast(tensor, 0)
        return int(tensor)

    def least(self, number: int) -> int:
        """Return the minimum over the ranks."""
        tensor = torch.tensor(number)
        dist.all_reduce(tensor, dist.ReduceOp.MIN)
        return int(tensor)


ALONE = Ranks()


class Replica(Generic[Batch]):
    """The model of one rank, as it computes the loss of a batch.

    The last backward pass of a step averages the gradients over the ranks, which wait there for each other. So all
    ranks must fit into memory: the first step is tried without communication until all fit. Later steps have its size.
    The first step also shows which parameters the loss does not use.
    """

    def __init__(self, ranks: Ranks, model: Model) -> None:
        self.ranks, self.model = ranks, model
        self.parallel: DistributedDataParallel | None = None

    def fitting(self, work: Callable[[int], Result], size: int, indivisible: str) -> tuple[Result, int]:
        """Run `work(size)` and return the size that fits into memory; see vitcore.runtime.memory."""
        if self.ranks.device is None:
            return shrinking(work, size, indivisible)
        if self.parallel is None:
            size = size if indivisible else self.largest_fitting(work, size)
            unused = not indivisible and any(p.grad is None for p in self.model.parameters())
            device_ids = [self.ranks.device] if self.ranks.device.type == "cuda" else None
            self.parallel = DistributedDataParallel(
                LossModule(self.model), device_ids=device_ids, find_unused_parameters=unused
            )
        try:
            return work(size), size
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise OutOfMemory(f"out of memory at a micro-batch of {size}: {indivisible or 'it had fitted'}") from error

    def largest_fitting(self, work: Callable[[int], object], size: int) -> int:
        """Return the largest size, `size` halved repeatedly, that fits on every rank."""
        while (fitting := self.ranks.least(shrinking(work, size)[1])) < size:
            size = fitting
        return size

    def loss(self, objective: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
        """Return the loss of a batch, whose backward pass may exchange gradients."""
        return self.parallel(objective, batch) if self.parallel else objective(batch)

    def each(self, pieces: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the micro-batches of a step, each followed by a backward pass; the last exchanges gradients."""
        if self.parallel is None:
            yield from pieces
            return
        *before, last = pieces
        with self.parallel.no_sync():
            yield from before
        yield last


class LossModule(nn.Module):
    """The module that DistributedDataParallel wraps: its `forward` prepares the gradient exchange."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, objective: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
        return objective(batch)


@contextmanager
def joined(store: TCPStore, rank: int, count: int, device: torch.device) -> Iterator[Ranks]:
    """Join `count` ranks within the block; all enter and leave together.

    After an error no rank waits for the others, which may be gone.
    """
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=count, timeout=WAIT, device_id=device if cuda else None
    )
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


def check_ranks(config: Config) -> None:
    """Raise ConfigError if `config.gpus` ranks cannot share a batch. Allocates nothing."""
    if config.batch < 2 * config.gpus:
        fits, there = max(1, config.batch // 2), torch.cuda.device_count()
        here = "" if config.device == "cpu" or there >= config.gpus else f"here there are {there}, and "
        raise ConfigError(f"gpus={config.gpus}: {here}batch={config.batch} has no two images for each: at most {fits}")
    if config.device == "cpu":
        with torch.device("meta"):
            tied = ties_images(build(config))
        if tied:
            refuse_batch_norm(config.gpus, "cpu")


def refuse_batch_norm(count: int, device: str) -> None:
    """Raise ConfigError on CPUs, because PyTorch synchronizes batch norm on GPUs only."""
    if device == "cpu":
        raise ConfigError(f"gpus={count}: batch norm ties the images of a batch together: on CPUs gpus=1")


def exchange_failed(error: BaseException) -> bool:
    """Tell whether an exception means that another rank is gone or hangs."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and bool(EXCHANGE.search(str(error))))
