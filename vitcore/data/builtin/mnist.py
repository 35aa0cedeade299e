"""MNIST (LeCun 1998) and Fashion-MNIST (Xiao 2017), read by torchvision."""

import os
from pathlib import Path
from typing import Any

from vitcore.data.builtin.base import Downloaded, Part


class Mnist(Downloaded):
    """60,000 training and 10,000 test images (M, 1, 28, 28) of ten classes. kind: name of torchvision's class."""

    def __init__(self, name: str, kind: str, md5: str, mean: float, std: float) -> None:
        super().__init__(name, f"{kind}/raw/*.gz", 28, 10, 60_000, md5, (mean,), (std,))
        self.kind = kind

    def read_parts(self, data_dir: Path) -> tuple[Part, Part]:
        """Return (training part, test part) from the unpacked files. Archives in their folder must be intact."""
        from torchvision.datasets.utils import check_md5

        try:
            train, test = (self.load(data_dir, train) for train in (True, False))
        except (AssertionError, LookupError, TypeError, ValueError):  # what torchvision raises for wrong headers
            raise ValueError(f"data={self.name}: the files in {data_dir / self.kind} are damaged") from None
        for archive, md5 in train.resources:
            path = os.path.join(train.raw_folder, archive)
            if os.path.exists(path) and not check_md5(path, md5):
                raise ValueError(f"{path}: damaged (its md5 sum is not {md5})")
        return part(train), part(test)

    def fetch(self, data_dir: Path) -> None:
        self.load(data_dir, train=True, download=True)

    def load(self, data_dir: Path, train: bool, download: bool = False) -> Any:
        import torchvision.datasets  # late: takes seconds to import

        return getattr(torchvision.datasets, self.kind)(data_dir, train=train, download=download)


def part(images: Any) -> Part:
    return images.data.numpy()[:, None], images.targets.tolist()
