"""Built-in data sets downloaded, and packs written, repaired and verified, as `ablate data` does."""

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commonfloor.messages import spelling_hint
from vitcore.data.builtin import downloadable_dataset
from vitcore.data.formats import TABLES
from vitcore.data.lookup import searched_folders
from vitcore.data.pack import MANIFEST, find_pack, manifest, pack_names
from vitcore.data.pack import verify as damaged_files
from vitcore.data.pack_sources import TIMM, Source, find_source
from vitcore.data.pack_writer import complete_options, enlargement_warning, pack, repair, shards_to_rewrite

Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]  # (what, total) -> yields advance


def downloader(name: str) -> Callable[[Path], None]:
    return downloadable_dataset(name).download


def write_pack(
    name: str,
    origin: str,
    home: Path,
    anywhere: bool,
    asked: Mapping[str, Any],
    threads: int,
    progress: Progress,
    tests_alone: bool = False,
    labels: Path | None = None,
) -> str:
    """Write a pack, or continue or repair it, and return a line about it.

    origin: see vitcore/data/pack_sources.py. home: the folder of new packs. anywhere: whether a pack elsewhere is
    repaired. asked: options that are not the default. labels: a file, as of `Source.with_label_sets`.
    """
    folder = (find_pack(name) if anywhere else None) or home / name
    source = find_source(origin, home, tests_alone)
    if labels:
        if origin.startswith((*TABLES, TIMM)):
            raise ValueError(f"--labels {labels}: {origin} has no file names, by which the labels are sorted")
        source = source.with_label_sets(labels)
    sides = source.shorter_sides()
    options = complete_options(name, folder, asked, sides)
    if (folder / MANIFEST).is_file():
        return repair_pack(name, folder, source, threads, progress)
    warning = enlargement_warning(sides, options.size)
    if warning:
        print(f"ablate: {warning}", file=sys.stderr)
    with progress("images", len(source.labels)) as advance:
        return str(pack(name, source, home, options, threads, advance))


def repair_pack(name: str, folder: Path, source: Source, threads: int, progress: Progress) -> str:
    """Rewrite the damaged files of a pack from its source. Prints what was damaged, and returns a summary."""
    content = manifest(folder, name)
    if source.label_sets != content.label_sets:
        raise ValueError(f"{folder}: was packed with other --labels: give the same ones, or another NAME")
    with progress("bytes", content.bytes) as advance:
        damaged = damaged_files(folder, content, advance)
    for line in damaged.values():
        print(line, file=sys.stderr)
    with progress("images", sum(shard.images for shard in shards_to_rewrite(content, damaged))) as advance:
        repair(folder, content, source, damaged, threads, advance)
    done = f"written again: {', '.join(damaged)}" if damaged else "is packed already, and nothing is damaged"
    return f"{folder}: {done}"


@dataclass(frozen=True)
class PackReport:
    pack: str  # its folder
    images: int
    bytes: int
    damaged: dict[str, str]


def verify(name: str, progress: Progress) -> PackReport:
    """Read a whole pack. Raises ValueError if there is none, or if its manifest is damaged."""
    folder = find_pack(name)
    if folder is None:
        raise ValueError(f"no pack '{name}' ({searched_folders(name)}){spelling_hint(name, pack_names())}")
    content = manifest(folder, name)
    with progress("bytes", content.bytes) as advance:
        return PackReport(str(folder), content.images, content.bytes, damaged_files(folder, content, advance))
