"""The images that a bench trains on: the config's own, or random ones of their size where those are not at hand."""

from pathlib import Path

import numpy as np
import torch

from vitcore.config import Config
from vitcore.data import Data, Images, load
from vitcore.device import device_of

BATCHES = 4  # of random images


def images(config: Config, data_dir: Path | None, random: bool) -> Data:
    """On the device of `config`."""
    data = drawn(config) if random else load(config, data_dir)
    return data.to(torch.device(device_of(config)))


def drawn(config: Config) -> Data:
    """BATCHES of random bytes with random labels: a step takes as long as with any others."""
    generator = torch.Generator().manual_seed(0)
    count = BATCHES * config.batch
    pixels = torch.randint(
        256, (count, config.channels, config.image_size, config.image_size), generator=generator, dtype=torch.uint8
    )
    labels = torch.randint(config.classes, (count,), generator=generator)
    some = Images(pixels, labels, np.arange(count))
    statistics = [torch.full((1, config.channels, 1, 1), value) for value in (127.5, 74.0)]
    return Data(some, some, some, *statistics)
