"""The papers whose tables the packaged studies ask again. A new paper is a line here."""

import re
from collections.abc import Iterable

from ablations.study.study import Study

ARXIV = re.compile(r"\b\d{4}\.\d{5}\b")
PAPERS = {  # arXiv id -> what the field calls the paper
    "2010.11929": "ViT",
    "2012.12877": "DeiT",
    "2106.10270": "AugReg",
    "2106.14881": "Early convolutions",
    "2111.06377": "MAE",
    "2203.09795": "Three things",
    "2204.07118": "DeiT III",
    "2205.01580": "Better plain ViT",
    "2208.07220": "PatchDropout",
    "2212.08013": "FlexiViT",
    "2305.13035": "SoViT",
    "2309.16588": "Registers",
    "2403.13298": "RoPE-ViT",
    "2602.08071": "ViT-5",
    "2605.24770": "Muon in ViTs",
}
OWN = "Our own questions"  # the title of the studies that no such paper asked


def year(arxiv: str) -> int:
    return 2000 + int(arxiv[:2])


def title(arxiv: str) -> str:
    if not arxiv:
        return OWN
    return f"{PAPERS[arxiv]} (arXiv {arxiv}, {year(arxiv)})"


def paper_of(study: Study) -> str:
    """Return the arXiv id of the first paper of PAPERS that a study's source names, or ""."""
    return next((arxiv for arxiv in ARXIV.findall(study.source) if arxiv in PAPERS), "")


def by_paper(studies: Iterable[Study]) -> dict[str, list[Study]]:
    """Return the studies of each paper in the order of PAPERS, then under "" those of no paper."""
    groups: dict[str, list[Study]] = {}
    for study in studies:
        groups.setdefault(paper_of(study), []).append(study)
    return {arxiv: groups[arxiv] for arxiv in (*PAPERS, "") if arxiv in groups}
