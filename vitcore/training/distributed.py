"""Training in several processes, each on a part of every batch: `gpus=N`, using DistributedDataParallel.

All ranks hold the same model, optimizer and average, and take the same steps. Rank 0 alone reads and writes, and
decides wherever a clock or a signal matters. `Alone` implements the interface for one process, `Several` for many.
NCCL carries tensors on GPUs, gloo those on the host.
"""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import TCPStore as TCPStore  # for mypy it is exported nowhere else
from torch.nn.parallel import DistributedDataParallel

from vitcore.model.build import Model, build, ties_images
from vitcore.options import ConfigError
from vitcore.runtime.memory import OutOfMemory, out_of_memory, shrinking

if TYPE_CHECKING:
    from vitcore.config import Config

Batch = TypeVar("Batch")
Result = TypeVar("Result")
Places = slice | np.ndarray[Any, np.dtype[np.int64]]
WAIT = timedelta(minutes=10)  # for a rank that says nothing; longer than a full disk is waited for
EVERY = slice(None)
EXCHANGE = re.compile(r"\bgloo\b|\bNCCL\b|[Cc]onnection (reset|refused|closed|was)|Broken pipe|timed out", re.ASCII)


class Alone:
    """The interface for a single process, which has all of every batch."""

    rank, count = 0, 1

    def prepared(self, model: Model) -> Model:
        """Return the model with the layers that several ranks need."""
        return model

    def replica(self, model: Model) -> Replica[Any]:
        """Return the object that computes a model's gradients."""
        return Replica()

    def part(self, batch: int) -> Places:
        """Return the indices of a batch that belong to this rank, in ascending order."""
        return EVERY

    def largest_part(self, batch: int) -> int:
        """Return the number of images in the largest part of a batch, the same on every rank."""
        return batch % 2 + 2 * math.ceil(batch // 2 / self.count)

    def share(self, images: int) -> slice:
        """Return the images that this rank evaluates."""
        return EVERY

    def gathered(self, mine: Tensor, images: int) -> Tensor:
        """Return the shares (some, D) of all ranks, concatenated (images, D)."""
        return mine

    def mean(self, tensor: Tensor) -> Tensor:
        """Return the mean over the ranks."""
        return tensor

    def agreed(self, decide: Callable[[], bool]) -> bool:
        """Return the decision of rank 0, at the same step of all ranks."""
        return decide()

    def told(self, read: Callable[[], bytes | None]) -> bytes | None:
        """Call `read` on rank 0 and return its value on all ranks."""
        return read()


class Replica(Generic[Batch]):
    """The model of one process, as it computes the loss of a batch."""

    def fitting(self, work: Callable[[int], Result], size: int, indivisible: str) -> tuple[Result, int]:
        """Run `work(size)` and return the size that fits into memory; see vitcore.runtime.memory."""
        return shrinking(work, size, indivisible)

    def loss(self, objective: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
        return objective(batch)

    def each(self, pieces: Iterable[Batch]) -> Iterable[Batch]:
        """Return the micro-batches of a step, each followed by a backward pass."""
        return pieces


ALONE = Alone()


class Several(Alone):
    """One of `count` connected processes."""

    def __init__(self, rank: int, count: int, device: torch.device) -> None:
        self.rank, self.count, self.device = rank, count, device

    def prepared(self, model: Model) -> Model:
        gc.collect()  # DistributedDataParallel refers to itself: with it goes the model of a training given up
        if not ties_images(model):
            return model
        from timm.layers.norm_act import convert_sync_batchnorm  # late: takes seconds; knows timm's own layers too

        refuse_tied(self.count, self.device.type)
        return convert_sync_batchnorm(model)  # type: ignore[no-any-return, no-untyped-call]  # timm's

    def replica(self, model: Model) -> Replica[Any]:
        return Distributed(self, model)

    def part(self, batch: int) -> Places:
        """Return the indices of this rank: pairs of mirrored places, so that both images that mixup mixes are here."""
        half = batch // 2
        first, after = (half * rank // self.count for rank in (self.rank, self.rank + 1))
        middle = [half] if batch % 2 and after == half else []
        return np.concatenate([np.arange(first, after), middle, np.arange(batch - after, batch - first)]).astype(int)

    def share(self, images: int) -> slice:
        """Return the images that this rank evaluates; all of them if there are fewer images than ranks."""
        if images < self.count:
            return EVERY
        return slice(images * self.rank // self.count, images * (self.rank + 1) // self.count)

    def gathered(self, mine: Tensor, images: int) -> Tensor:
        if len(mine) == images:
            return mine
        whole = mine.new_zeros(images, *mine.shape[1:])
        whole[self.share(images)] = mine
        dist.all_reduce(whole)  # to each number only zeros are added
        return whole

    def mean(self, tensor: Tensor) -> Tensor:
        dist.all_reduce(tensor)
        return tensor / self.count

    def agreed(self, decide: Callable[[], bool]) -> bool:
        return bool(self.first_says(int(self.rank == 0 and decide())))

    def told(self, read: Callable[[], bytes | None]) -> bytes | None:
        payload = read() if self.rank == 0 else None
        if (size := self.first_says(-1 if payload is None else len(payload))) < 0:
            return None
        content = torch.empty(size, dtype=torch.uint8)
        if payload is not None:
            content.copy_(torch.frombuffer(bytearray(payload), dtype=torch.uint8))
        dist.broadcast(content, 0)
        return content.numpy().tobytes()

    def first_says(self, number: int) -> int:
        """Broadcast rank 0's value over the host, without waiting for a GPU."""
        said = torch.tensor(number)
        dist.broadcast(said, 0)
        return int(said)

    def least(self, number: int) -> int:
        """Return the minimum over the ranks."""
        said = torch.tensor(number)
        dist.all_reduce(said, dist.ReduceOp.MIN)
        return int(said)


class Distributed(Replica[Batch]):
    """A replica whose gradients are averaged over the ranks during the last backward pass.

    All ranks must fit into memory, since they wait for each other. So the first step is tried without communication
    until all fit; later steps have the same size. This also shows which parameters the loss does not use.
    """

    def __init__(self, ranks: Several, model: Model) -> None:
        self.ranks, self.model = ranks, model
        self.parallel: DistributedDataParallel | None = None

    def fitting(self, work: Callable[[int], Result], size: int, indivisible: str) -> tuple[Result, int]:
        if self.parallel is None:
            size = size if indivisible else self.tried(work, size)
            self.parallel = self.wrapped(not indivisible and any(p.grad is None for p in self.model.parameters()))
        try:
            return work(size), size
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise OutOfMemory(f"out of memory at a micro-batch of {size}: {indivisible or 'it had fitted'}") from error

    def tried(self, work: Callable[[int], Result], size: int) -> int:
        """Return the largest size, `size` halved repeatedly, that fits on every rank."""
        while (fitting := self.ranks.least(largest(work, size))) < size:
            size = fitting
        return size

    def wrapped(self, some_unused: bool) -> DistributedDataParallel:
        device = self.ranks.device
        return DistributedDataParallel(
            Objective(self.model),
            device_ids=[device] if device.type == "cuda" else None,
            find_unused_parameters=some_unused,
        )

    def loss(self, objective: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
        return self.parallel(objective, batch) if self.parallel else objective(batch)

    def each(self, pieces: Iterable[Batch]) -> Iterator[Batch]:
        if self.parallel is None:
            yield from pieces
            return
        *before, last = pieces
        with self.parallel.no_sync():
            yield from before
        yield last


def largest(work: Callable[[int], object], size: int) -> int:
    return shrinking(work, size)[1]


class Objective(nn.Module):
    """The module that DistributedDataParallel wraps: its `forward` prepares the gradient exchange."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, objective: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
        return objective(batch)


@contextmanager
def joined(store: TCPStore, rank: int, count: int, device: torch.device) -> Iterator[Several]:
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
        yield Several(rank, count, device)
        dist.barrier()
    except BaseException:
        if cuda:
            with suppress(RuntimeError):  # what led here is what is told
                dist.group.WORLD.abort()  # type: ignore[union-attr]  # there is one: it was just made
        raise
    finally:
        dist.destroy_process_group()


def check_ranks(config: Config) -> None:
    """Raise ConfigError if so many ranks cannot share a batch. Allocates nothing."""
    if config.gpus == 1:
        return
    if config.batch < 2 * config.gpus:
        fits, there = max(1, config.batch // 2), torch.cuda.device_count()
        here = "" if config.device == "cpu" or there >= config.gpus else f"here there are {there}, and "
        raise ConfigError(f"gpus={config.gpus}: {here}batch={config.batch} has no two images for each: at most {fits}")
    if config.device == "cpu":
        with torch.device("meta"):
            tied = ties_images(build(config))
        if tied:
            refuse_tied(config.gpus, "cpu")


def refuse_tied(count: int, device: str) -> None:
    """Raise ConfigError for batch norm, which PyTorch synchronizes on GPUs only."""
    if device == "cpu":
        raise ConfigError(f"gpus={count}: batch norm ties the images of a batch together: on CPUs gpus=1")


def exchange_failed(error: BaseException) -> bool:
    """Tell whether an exception means that another rank is gone or hangs."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and bool(EXCHANGE.search(str(error))))
