"""What a survey says about images and classes that decides how results are to be read."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from results.units import amount_text
from vitcore.data.decode import Facts

LEAST_CUT = 0.1  # share of the median image outside the middle square from which on it is reported
LEAST_RATIO = 3  # of the largest and the smallest class
MOST_OUTLIERS = 0.02  # largest fraction of the images that can be outliers
FEW_TESTS = 10  # test images of a class


def example(word: str, names: Sequence[str], said: str, then: str = "", noun: str = "image") -> list[str]:
    """Return a line on the number of some images, with the first as an example, or [] if there are none."""
    return [f"{word:8} {amount_text(len(names), noun)} {said}, such as {names[0]}{then}"] if names else []


def image_notes(images: Mapping[str, Facts]) -> Iterator[str]:
    """Yield a line on each of mixed colors, orientation, alpha channels, shapes and sizes. images: name -> facts."""
    gray = [name for name, image in images.items() if image.gray]
    turned = [name for name, image in images.items() if image.orientation != 1]
    alpha = [name for name, image in images.items() if image.alpha]
    if len(gray) < len(images):
        yield from example("mixed", gray, f"of {len(images):,} in gray", ": gray becomes RGB")
    yield from example("turned", turned, "with an EXIF orientation", ": turned upright")
    yield from example("alpha", alpha, "with an alpha channel", ": transparent pixels become white")
    yield from shape_notes(images)
    yield from example("odd", outliers(images), "much smaller or larger than the others")


def outliers(images: Mapping[str, Facts]) -> list[str]:
    """Return the images whose shorter side is below half or above twice the median, or [] if they are over 2%."""
    sides = {name: min(image.size) for name, image in images.items()}
    median = float(np.median(list(sides.values())))
    found = [f"{name} ({side} pixels)" for name, side in sides.items() if not median / 2 <= side <= 2 * median]
    return found if len(found) <= MOST_OUTLIERS * len(sides) else []


def shape_notes(images: Mapping[str, Facts]) -> Iterator[str]:
    cuts = {name: 1 - min(image.size) / max(image.size) for name, image in images.items()}
    median = float(np.median(list(cuts.values())))
    halved = [name for name, cut in cuts.items() if cut > 0.5]
    if median < LEAST_CUT and not halved:
        return
    line = f"shape    the middle square leaves out {median:.0%} of the median image"
    if halved:
        width, height = images[halved[0]].size
        more = f"more than half of {amount_text(len(halved), 'image')}"
        line += f", and {more}, such as {halved[0]} ({width} x {height} pixels)"
    yield line


def class_notes(classes: Sequence[str], train: Sequence[int], test: Sequence[int]) -> Iterator[str]:
    """Yield lines on the majority rate, and on unequal classes and classes of few test images if there are any.

    train, test: the number of training and test images of each class.
    """
    large, small = int(np.argmax(train)), int(np.argmin(train))
    one = "one class" if train[large] == train[small] else f"'{classes[large]}', the largest class,"
    yield f"chance   always answering {one} is right on {test[large] / sum(test):.1%} of the test images"
    ratio = train[large] / train[small]
    if ratio >= LEAST_RATIO:
        yield (
            f"balance  '{classes[large]}' has {ratio:,.0f} times as many training images as '{classes[small]}': "
            "accuracy mostly reflects the large classes"
        )
    few = [place for place, count in enumerate(test) if count < FEW_TESTS]
    if few:
        least = min(few, key=lambda place: test[place])
        have = "class has" if len(few) == 1 else "classes have"
        yield (
            f"tests    {len(few):,} {have} fewer than {FEW_TESTS} test images, such as '{classes[least]}' with "
            f"{test[least]}: accuracy on them is coarse"
        )
