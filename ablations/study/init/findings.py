"""What a survey says about images and classes that decides how results are to be read."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from results.units import amount_text
from vitcore.data.decode import Look

LEAST_CUT = 0.1  # share of the median image outside the middle square from which on it is reported
LEAST_RATIO = 3  # of the largest and the smallest class
FEW_TESTS = 10  # test images of a class


def image_notes(looks: Mapping[str, Look]) -> Iterator[str]:
    """Yield a line on mixed colors, orientation, alpha channels and shapes, each if there are any. looks: by name."""
    gray = [name for name, look in looks.items() if look.gray]
    turned = [name for name, look in looks.items() if look.orientation != 1]
    alpha = [name for name, look in looks.items() if look.alpha]
    if 0 < len(gray) < len(looks):
        yield f"mixed    {len(gray):,} of {len(looks):,} images are gray, such as {gray[0]}: gray becomes RGB"
    if turned:
        many = amount_text(len(turned), "image")
        yield f"turned   {many} with an EXIF orientation, such as {turned[0]}: turned upright"
    if alpha:
        many = amount_text(len(alpha), "image")
        yield f"alpha    {many} with an alpha channel, such as {alpha[0]}: transparent pixels become white"
    yield from shape_notes(looks)


def shape_notes(looks: Mapping[str, Look]) -> Iterator[str]:
    cuts = {name: 1 - min(look.size) / max(look.size) for name, look in looks.items()}
    median = float(np.median(list(cuts.values())))
    halved = [name for name, cut in cuts.items() if cut > 0.5]
    if median < LEAST_CUT and not halved:
        return
    line = f"shape    the middle square leaves out {median:.0%} of the median image"
    if halved:
        width, height = looks[halved[0]].size
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
            "accuracy speaks mostly of the large classes"
        )
    few = [place for place, count in enumerate(test) if count < FEW_TESTS]
    if few:
        least = min(few, key=lambda place: test[place])
        have = "class has" if len(few) == 1 else "classes have"
        yield (
            f"tests    {len(few):,} {have} fewer than {FEW_TESTS} test images, such as '{classes[least]}' with "
            f"{test[least]}: their share of the accuracy is coarse"
        )
