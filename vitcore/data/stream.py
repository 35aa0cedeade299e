"""Images that stay on disk, and threads that read them some batches ahead."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from vitcore.data.pack import Pack
from vitcore.data.shuffle import Indices

AHEAD = 4  # number of batches read ahead, and of threads that read them
CPU = torch.device("cpu")
CHUNK = 512  # images read at a time by `resident`


@dataclass(frozen=True)
class Stored:
    """Images of a pack that stay on disk until they are read to `device`. places (n,): their indices in the pack.

    Reading returns uint8 tensors (n, C, S, S), channels-last in memory, or raises the errors of `Pack.read`.
    """

    pack: Pack
    places: Indices
    device: torch.device = CPU

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, chosen: slice | Indices) -> Stored:
        """Return a subset of the images without reading them."""
        return replace(self, places=self.places[chosen])

    @property
    def shape(self) -> tuple[int, ...]:
        side, _, channels = self.pack.shape
        return len(self), channels, side, side  # (n, C, S, S)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape)

    def to(self, device: torch.device) -> Stored:
        return replace(self, device=device)

    def begin(self) -> tuple[Tensor, torch.cuda.Event | None]:
        """Return (images (n, C, S, S), the event that ends their copy to a GPU, or None). Any thread may call it."""
        on_gpu = self.device.type == "cuda"
        host = torch.empty((len(self), *self.pack.shape), dtype=torch.uint8, pin_memory=on_gpu)
        self.pack.read(self.places, host.numpy())
        if not on_gpu:
            return host.permute(0, 3, 1, 2), None
        with torch.cuda.stream(side_stream(self.device)):
            copy = host.to(self.device, non_blocking=True).permute(0, 3, 1, 2)
            return copy, torch.cuda.current_stream(self.device).record_event()

    def split(self, size: int) -> Iterator[Tensor]:
        """Yield the images in tensors (m, C, S, S) of up to `size` images. The next tensors are read ahead."""
        count = -(-len(self) // size)
        return map(Ahead(lambda number: self[number * size : (number + 1) * size], count), range(count))

    def resident(self, device: torch.device) -> Tensor:
        """Return all images (n, C, S, S) on `device`, read in chunks so that the host holds only a few at a time."""
        whole = torch.empty((len(self), *self.pack.shape), dtype=torch.uint8, device=device).permute(0, 3, 1, 2)
        for part, some in zip(torch.split(whole, CHUNK), self.to(device).split(CHUNK), strict=True):
            part.copy_(some)
        return whole


class Ahead:
    """A reader of `count` batches that reads the next ones ahead. Batches can be requested in any order."""

    def __init__(self, batches: Callable[[int], Stored], count: int) -> None:
        self.batches = batches
        self.count = count
        self.begun: dict[int, Future[tuple[Tensor, torch.cuda.Event | None]]] = {}

    def __call__(self, number: int) -> Tensor:
        """Return the images (n, C, S, S) of batch `number`."""
        for following in range(number, min(number + AHEAD, self.count)):
            if following not in self.begun:
                self.begun[following] = readers().submit(self.batches(following).begin)
        images, copied = self.begun.pop(number).result()
        if copied is not None:  # the current stream waits for the copy, but this thread does not
            stream = torch.cuda.current_stream(images.device)
            stream.wait_event(copied)
            images.record_stream(stream)
        return images


@cache
def readers() -> ThreadPoolExecutor:
    """Return the pool of reading threads, which the whole process shares."""
    return ThreadPoolExecutor(AHEAD, "reads ahead")


@cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
