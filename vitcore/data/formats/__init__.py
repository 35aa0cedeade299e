"""Images in files of many: what Hugging Face's `datasets` saved, Parquet files and WebDataset's tars.

    hf:FOLDER       a DatasetDict or a Dataset, from save_to_disk
    parquet:GLOB    Parquet files with a column of encoded images, as on the Hugging Face Hub
    wds:GLOB        tar files with images (NAME.jpg) and their labels (NAME.cls or NAME.json)

A glob may have braces, as {train,test} and {000..099}; a folder stands for all of its files. `#image=COLUMN`,
`#label=COLUMN`, `#train=SPLIT` and `#test=SPLIT` at the end, separated by commas, choose among several. Files come in
the order of their names and images in the order of a file.

pyarrow and tarfile read them: webdataset unpickles and has no random access.
"""

import os

from commonfloor.options import ConfigError
from vitcore.data.formats.layout import Selection, SplitImages, expand, listing_of, splits_of
from vitcore.data.formats.tars import read_samples
from vitcore.data.imagefolder import Listing

TABLES = SAVED, PARQUET = "hf:", "parquet:"
SAMPLES = "wds:"
FORMATS = (*TABLES, SAMPLES)


def list_stored(name: str) -> Listing:
    """Return the images that `name`, in one of the forms above, stands for: training images first.

    Raises ConfigError if files are missing or damaged, or a choice is invalid or missing.
    """
    from vitcore.data.formats.tables import read_tables, saved_splits  # late: a worker needs no pyarrow

    try:
        pattern, choice = Selection.parse(os.path.expanduser(name.partition(":")[2]))
        if name.startswith(SAVED):
            splits = saved_splits(pattern)
        else:
            splits = splits_of(expand(pattern, ".parquet" if name.startswith(PARQUET) else ".tar"))
        read = read_samples if name.startswith(SAMPLES) else read_tables
        parts: dict[str, SplitImages] = {}
        for split in choice.splits(list(splits)):
            parts[split] = read(splits[split], choice)
        return listing_of(parts, f"{name}: ")
    except (OSError, OverflowError, ValueError) as error:
        raise ConfigError(f"data={name}: {error}") from None
