"""The built-in datasets. Reading them checks the number of images and checksums (MNIST: only of archives, if any)."""

from vitcore.data.builtin.base import Downloaded
from vitcore.data.builtin.cifar import Cifar
from vitcore.data.builtin.digits import Digits
from vitcore.data.builtin.mnist import Mnist

BUILT_IN: dict[str, Digits | Downloaded] = {
    "digits": Digits(),
    "cifar10": Cifar(10, "c58f30108f718f92721af3b95e74349a", (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": Cifar(100, "eb9058c3a382ffc7106e4002c42a8d85", (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "mnist": Mnist("mnist", "MNIST", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 0.1307, 0.3081),
    "fashion-mnist": Mnist("fashion-mnist", "FashionMNIST", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 0.2860, 0.3530),
}


def downloadable(name: str) -> Downloaded:
    """Return the built-in dataset `name`, whose files can be downloaded.

    Raises ValueError if there is no such dataset; `digits` needs no download.
    """
    known = {each: dataset for each, dataset in BUILT_IN.items() if isinstance(dataset, Downloaded)}
    if name not in known:
        raise ValueError(f"nothing to download for '{name}': one of {', '.join(known)}")
    return known[name]
