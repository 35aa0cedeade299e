"""Images that stay on disk, read by threads some batches ahead."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from vitcore.data.datasets import Indices
from vitcore.data.pack import Pack

AHEAD = 4  # batches, and threads that read them
CPU = torch.device("cpu")
CHUNK = 512  # images read at a time where all are wanted


@dataclass(frozen=True)
class Stored:
    """The images at `places` (n,) of a pack, read on demand as bytes (n, C, S, S) on `device`, channels-last."""

    pack: Pack
    places: Indices
    device: torch.device = CPU

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, chosen: slice | Indices) -> Stored:
        """Return a subset, still unread."""
        return replace(self, places=self.places[chosen])

    @property
    def nbytes(self) -> int:
        """Bytes once read."""
        return len(self) * math.prod(self.pack.shape)

    def to(self, device: torch.device) -> Stored:
        return replace(self, device=device)

    def read(self) -> Tensor:
        """Read all of them. Raises ValueError naming a damaged shard."""
        return self.begin().end()

    def begin(self) -> Reading:
        """Read, and start copying to the device in a stream of its own; from any thread."""
        on_gpu = self.device.type == "cuda"
        host = torch.empty((len(self), *self.pack.shape), dtype=torch.uint8, pin_memory=on_gpu)
        self.pack.read(self.places, host.numpy())
        if not on_gpu:
            return Reading(channels_first(host), None)
        with torch.cuda.stream(side_stream(self.device)):
            there = host.to(self.device, non_blocking=True)
            return Reading(channels_first(there), torch.cuda.current_stream(self.device).record_event())

    def resident(self, device: torch.device) -> Tensor:
        """Read all of them in chunks, so that the host holds only a few."""
        whole = channels_first(torch.empty((len(self), *self.pack.shape), dtype=torch.uint8, device=device))
        chunks = -(-len(self) // CHUNK)
        reader = Ahead(lambda number: self.to(device)[number * CHUNK : (number + 1) * CHUNK], chunks)
        for number in range(chunks):
            some = reader(number)
            whole[number * CHUNK : number * CHUNK + len(some)] = some
        return whole


def channels_first(images: Tensor) -> Tensor:
    """Stored images (n, S, S, C) viewed as (n, C, S, S)."""
    return images.permute(0, 3, 1, 2)


class Reading(NamedTuple):
    """Images that may still be on their way to the device."""

    images: Tensor
    copied: torch.cuda.Event | None

    def end(self) -> Tensor:
        """Let the calling thread's current stream wait for the copy; the thread itself does not wait."""
        if self.copied is not None:
            stream = torch.cuda.current_stream(self.images.device)
            stream.wait_event(self.copied)
            self.images.record_stream(stream)
        return self.images


class Ahead:
    """Batches, each begun `AHEAD` batches before it is asked for; in another order they are not prefetched.

    batches: batch number -> its images. What is read never depends on timing.
    """

    def __init__(self, batches: Callable[[int], Stored], count: int) -> None:
        self.batches, self.count = batches, count
        self.begun: dict[int, Future[Reading]] = {}

    def __call__(self, number: int) -> Tensor:
        if number not in self.begun:
            for future in self.begun.values():
                future.cancel()
            self.begun = {}
        for following in range(number, min(number + AHEAD, self.count)):
            if following not in self.begun:
                self.begun[following] = readers().submit(self.batches(following).begin)
        return self.begun.pop(number).result().end()


@cache
def readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(AHEAD, "reads ahead")


@cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch leaves it unannotated
