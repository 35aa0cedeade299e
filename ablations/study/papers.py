"""The papers whose tables the packaged studies ask again. A new paper is a line here."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ablations.study.study import Study

ARXIV = re.compile(r"\b\d{4}\.\d{5}\b")


@dataclass(frozen=True)
class Paper:
    """A paper by its arXiv id, and what the field calls it."""

    arxiv: str
    name: str

    @property
    def year(self) -> int:
        return 2000 + int(self.arxiv[:2])

    @property
    def title(self) -> str:
        return f"{self.name} (arXiv {self.arxiv}, {self.year})"


PAPERS = (
    Paper("2010.11929", "ViT"),
    Paper("2012.12877", "DeiT"),
    Paper("2106.10270", "AugReg"),
    Paper("2106.14881", "Early convolutions"),
    Paper("2111.06377", "MAE"),
    Paper("2203.09795", "Three things"),
    Paper("2204.07118", "DeiT III"),
    Paper("2205.01580", "Better plain ViT"),
    Paper("2208.07220", "PatchDropout"),
    Paper("2212.08013", "FlexiViT"),
    Paper("2305.13035", "SoViT"),
    Paper("2309.16588", "Registers"),
    Paper("2403.13298", "RoPE-ViT"),
    Paper("2602.08071", "ViT-5"),
    Paper("2605.24770", "Muon in ViTs"),
)
OWN = "Our own questions"  # the title of the studies that no such paper asked


def paper_of(study: Study) -> Paper | None:
    """Return the first paper of PAPERS that a study's source names, or None."""
    known = {paper.arxiv: paper for paper in PAPERS}
    for arxiv in ARXIV.findall(study.source):
        if arxiv in known:
            return known[arxiv]
    return None


def by_paper(studies: Iterable[Study]) -> dict[Paper | None, list[Study]]:
    """Return the studies of each paper in the order of PAPERS, then under None those of no paper."""
    groups: dict[Paper | None, list[Study]] = {}
    for study in studies:
        groups.setdefault(paper_of(study), []).append(study)
    return {paper: groups[paper] for paper in (*PAPERS, None) if paper in groups}
