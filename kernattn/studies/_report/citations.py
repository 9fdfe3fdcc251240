"""BibTeX of kernattn and of the works that a claim names, from the one list of references."""

import re
from functools import cache
from typing import NamedTuple

from kernattn._version import __version__
from kernattn.studies._report.assets import read_asset

ENTRY = re.compile(r"^- ([^(]+) \((\d{4})\)\. (\*.+?\*|.+?)\. (\*.+|[A-Za-z].+)\.$")  # authors, year, title, venue
CONFERENCES = {
    "AISTATS": "International Conference on Artificial Intelligence and Statistics",
    "ICLR": "International Conference on Learning Representations",
    "ICML": "International Conference on Machine Learning",
    "KDD": "ACM SIGKDD International Conference on Knowledge Discovery and Data Mining",
    "NIPS": "Advances in Neural Information Processing Systems",
    "NeurIPS": "Advances in Neural Information Processing Systems",
    "SODA": "ACM-SIAM Symposium on Discrete Algorithms",
    "UAI": "Conference on Uncertainty in Artificial Intelligence",
}


class Work(NamedTuple):
    """An entry of references.txt; authors are written as BibTeX has them."""

    authors: str
    year: int
    title: str
    venue: str

    @property
    def surname(self) -> str:
        """Of the first author."""
        return re.split(",| and ", self.authors)[0]

    def bibtex(self) -> str:
        """Return the entry: a paper of a conference where the venue is the abbreviation of one, else an article."""
        letters = re.sub(r"[^a-z]", "", self.surname.lower())
        word = next(word for word in re.findall(r"[a-z]+", self.title.lower()) if len(word) > 3)
        venue = re.sub(r"\*(.*?)\*.*", r"\1", self.venue)
        short = venue.split()[0]
        kind, where = ("inproceedings", "booktitle") if short in CONFERENCES else ("article", "journal")
        return (
            f"@{kind}{{{letters}{self.year}{word},\n  author = {{{self.authors}}},\n  title = {{{{{self.title}}}}},\n"
            f"  {where} = {{{CONFERENCES.get(short, venue)}}},\n  year = {{{self.year}}}\n}}"
        )


@cache
def read_works() -> tuple[Work, ...]:
    """Read every work of references.txt."""
    lines = read_asset("references.txt").splitlines()
    entries = (ENTRY.match(line) for line in lines if line.startswith("- "))
    return tuple(Work(each[1], int(each[2]), each[3], each[4]) for each in entries if each)


def cited_works(claim: str) -> list[Work]:
    """Return the works that a text names by their first author and year."""
    return [work for work in read_works() if re.search(rf"{work.surname}[^0-9]{{0,60}}\b{work.year}", claim)]


def bibtex(claims: str) -> str:
    """Return the entries of kernattn and of the works that a text names."""
    own = (
        "@software{kernattn,\n  author = {{kernattn developers}},\n  title = {{kernattn: random-feature kernels and "
        f"linear attention on any array library}}}},\n  version = {{{__version__}}}\n}}"
    )
    return "\n\n".join([own, *(work.bibtex() for work in cited_works(claims))])
