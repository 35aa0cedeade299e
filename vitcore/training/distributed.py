"""One training in several processes, each on a part of every batch: `gpus=N`, by PyTorch's DistributedDataParallel.

All hold the same model, optimiser and average, and take the same steps. The first one alone reads and writes, and its
word counts where a clock or a signal decides. What `vitcore.train` asks of its ranks is what `Alone` answers for one
process; `Several` answers for many. NCCL carries what is on GPUs, gloo what is on the host.
"""

from __future__ import annotations

import gc
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
    """One process, which has all of every batch."""

    rank, count = 0, 1

    def prepared(self, model: Model) -> Model:
        """The model as its layers have to be among so many ranks."""
        return model

    def replica(self, model: Model) -> Replica[Any]:
        """What takes the gradients of the model."""
        return Replica()

    def part(self, batch: int) -> Places:
        """Which places of a batch are this rank's, in ascending order."""
        return EVERY

    def share(self, images: int) -> slice:
        """Which of so many images this rank evaluates."""
        return EVERY

    def gathered(self, mine: Tensor, images: int) -> Tensor:
        """What each rank has (some, D) of its share, together (images, D)."""
        return mine

    def mean(self, tensor: Tensor) -> Tensor:
        """Over the ranks."""
        return tensor

    def agreed(self, decide: Callable[[], bool]) -> bool:
        """What the first rank decides, at the same step of all."""
        return decide()

    def told(self, read: Callable[[], bytes | None]) -> bytes | None:
        """What the first rank reads."""
        return read()


class Replica(Generic[Batch]):
    """The model of one process, as it computes the loss of a batch."""

    def fitting(self, work: Callable[[int], Result], size: int, indivisible: str) -> tuple[Result, int]:
        """`work(size)`, and the size at which it fitted into memory: see vitcore.runtime.memory."""
        return shrinking(work, size, indivisible)

    def loss(self, objective: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
        return objective(batch)

    def each(self, pieces: Iterable[Batch]) -> Iterable[Batch]:
        """The micro-batches of a step: a backward pass follows each."""
        return pieces


ALONE = Alone()


class Several(Alone):
    """One of `count` processes, which have found each other."""

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
        """Pairs of a place and its mirror image, so that both of a pair that mixup or cutmix mixes are here."""
        half = batch // 2
        first, after = (half * rank // self.count for rank in (self.rank, self.rank + 1))
        middle = [half] if batch % 2 and after == half else []
        return np.concatenate([np.arange(first, after), middle, np.arange(batch - after, batch - first)]).astype(int)

    def share(self, images: int) -> slice:
        """Of fewer images than ranks, all: each rank evaluates them."""
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
        """On the host: no GPU is waited for."""
        said = torch.tensor(number)
        dist.broadcast(said, 0)
        return int(said)

    def least(self, number: int) -> int:
        """Of what the ranks say."""
        said = torch.tensor(number)
        dist.all_reduce(said, dist.ReduceOp.MIN)
        return int(said)


class Distributed(Replica[Batch]):
    """One of the equal models of several ranks: the gradients of a step are their mean, exchanged during the last
    backward pass.

    Ranks that wait for each other must all fit into memory. So the first step is tried before, without an exchange,
    until all do: later ones are of the same size. This also shows which parameters the loss does not use.
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
        """The largest halving of `size` that fits everywhere."""
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
    """What DistributedDataParallel wraps: its `forward` prepares the exchange, whatever the loss calls of the model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, objective: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
        return objective(batch)


@contextmanager
def joined(store: TCPStore, rank: int, count: int, device: torch.device) -> Iterator[Several]:
    """One of `count` ranks, inside; all of them come and go together.

    After an error nobody waits for the others, who may be gone.
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
    """Raises ConfigError where so many ranks cannot share a batch; nothing is allocated."""
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
    """PyTorch has batch norm over several processes for GPUs only. Raises ConfigError."""
    if device == "cpu":
        raise ConfigError(f"gpus={count}: batch norm ties the images of a batch together: on CPUs gpus=1")


def exchange_failed(error: BaseException) -> bool:
    """Whether it says that another rank is gone, or hangs."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and bool(EXCHANGE.search(str(error))))
