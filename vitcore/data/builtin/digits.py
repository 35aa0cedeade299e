"""Scikit-learn's handwritten digits (UCI, Alpaydin and Kaynak 1998)."""

import gzip
import hashlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from vitcore.data.dataset import About, Raw

SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"  # of the images, then the labels


class Digits:
    """The 1,797 digits (M, 1, 8, 8) of scikit-learn. They have no test set, so each data seed tests a fold."""

    about = About(
        image_size=8,
        channels=1,
        classes=10,
        train_size=1437,
        test_size=360,
        fingerprint={"name": "digits", "images": 1797, "sha256": SHA256},
        folds=5,
        mean=(4.884165,),  # over all images, whose intensities are 0 to 16
        std=(6.016788,),
        levels=17,
    )

    def read(self, data_dir: Path | None) -> Raw:
        """Read scikit-learn's images; raise ValueError if it is not installed or the images have changed."""
        package = find_spec("sklearn")  # importing it is slow
        if package is None or not package.submodule_search_locations:
            raise ValueError("data=digits: they are part of scikit-learn, which is not installed")
        with gzip.open(Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")) as file:
            rows = np.loadtxt(file, delimiter=",", dtype=np.uint8)  # (1797, 64 + 1)
        images, labels = rows[:, :-1].reshape(-1, 1, 8, 8), rows[:, -1].astype(np.int64)
        found = hashlib.sha256(images.tobytes() + labels.astype(np.uint8).tobytes()).hexdigest()
        if found != SHA256:
            raise ValueError(f"data=digits: these are not the images that results are filed under (sha256 {found})")
        return Raw(images, labels, train=np.arange(len(images)), test=np.empty(0, np.int64))
