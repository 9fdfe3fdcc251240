"""BibTeX of kernattn and of the papers whose claims are studied."""

from __future__ import annotations

import re
from typing import NamedTuple

from kernattn._version import __version__


class Paper(NamedTuple):
    """A paper: authors as BibTeX has them, the venue as journal or as book title."""

    authors: str
    title: str
    venue: str
    year: int
    journal: bool = False

    @property
    def surname(self) -> str:
        """Of the first author."""
        return self.authors.partition(",")[0]

    def bibtex(self) -> str:
        """Return the entry."""
        kind, where = ("article", "journal") if self.journal else ("inproceedings", "booktitle")
        letters = re.sub(r"[^a-z]", "", self.surname.lower())
        word = next(word for word in re.findall(r"[a-z]+", self.title.lower()) if len(word) > 3)
        return (
            f"@{kind}{{{letters}{self.year}{word},\n  author = {{{self.authors}}},\n  title = {{{{{self.title}}}}},\n"
            f"  {where} = {{{self.venue}}},\n  year = {{{self.year}}}\n}}"
        )


ICLR = "International Conference on Learning Representations"
ICML = "International Conference on Machine Learning"
NEURIPS = "Advances in Neural Information Processing Systems"
CHEFS = (
    "Likhosherstov, Valerii and Choromanski, Krzysztof and Dubey, Avinava and Liu, Frederick and Sarlos, Tamas and "
    "Weller, Adrian"
)

PAPERS = (
    Paper(
        "Choromanski, Krzysztof and Likhosherstov, Valerii and Dohan, David and Song, Xingyou and Gane, Andreea and "
        "Sarlos, Tamas and Hawkins, Peter and Davis, Jared and Mohiuddin, Afroz and Kaiser, Lukasz and Belanger, David "
        "and Colwell, Lucy and Weller, Adrian",
        "Rethinking Attention with Performers",
        ICLR,
        2021,
    ),
    Paper(
        "Peng, Hao and Pappas, Nikolaos and Yogatama, Dani and Schwartz, Roy and Smith, Noah A. and Kong, Lingpeng",
        "Random Feature Attention",
        ICLR,
        2021,
    ),
    Paper(
        "Tay, Yi and Dehghani, Mostafa and Abnar, Samira and Shen, Yikang and Bahri, Dara and Pham, Philip and Rao, "
        "Jinfeng and Yang, Liu and Ruder, Sebastian and Metzler, Donald",
        "Long Range Arena: A Benchmark for Efficient Transformers",
        ICLR,
        2021,
    ),
    Paper(
        "Yu, Felix X. and Suresh, Ananda Theertha and Choromanski, Krzysztof and Holtmann-Rice, Daniel and Kumar, "
        "Sanjiv",
        "Orthogonal Random Features",
        NEURIPS,
        2016,
    ),
    Paper(
        "Reid, Isaac and Choromanski, Krzysztof and Likhosherstov, Valerii and Weller, Adrian",
        "Simplex Random Features",
        ICML,
        2023,
    ),
    Paper(
        "Reid, Isaac and Markou, Stratis and Choromanski, Krzysztof and Turner, Richard E. and Weller, Adrian",
        "Variance-Reducing Couplings for Random Features",
        ICLR,
        2025,
    ),
    Paper(
        "Yang, Jiyan and Sindhwani, Vikas and Avron, Haim and Mahoney, Michael",
        "Quasi-Monte Carlo Feature Maps for Shift-Invariant Kernels",
        ICML,
        2014,
    ),
    Paper(
        "Rahimi, Ali and Recht, Benjamin",
        "Random Features for Large-Scale Kernel Machines",
        NEURIPS,
        2007,
    ),
    Paper(
        CHEFS,
        "FAVOR#: Sharp Attention Kernel Approximations via New Classes of Positive Random Features",
        "arXiv preprint arXiv:2302.00787",
        2023,
        journal=True,
    ),
    Paper(CHEFS, "Chefs' Random Tables: Non-Trigonometric Random Features", NEURIPS, 2022),
    Paper(
        CHEFS,
        "Dense-Exponential Random Features: Sharp Positive Estimators of the Gaussian Kernel",
        NEURIPS,
        2023,
    ),
    Paper(
        "Pham, Ninh and Pagh, Rasmus",
        "Fast and Scalable Polynomial Kernels via Explicit Feature Maps",
        "ACM SIGKDD International Conference on Knowledge Discovery and Data Mining",
        2013,
    ),
    Paper(
        "Ahle, Thomas D. and Kapralov, Michael and Knudsen, Jakob B. T. and Pagh, Rasmus and Velingker, Ameya and "
        "Woodruff, David P. and Zandieh, Amir",
        "Oblivious Sketching of High-Degree Polynomial Kernels",
        "ACM-SIAM Symposium on Discrete Algorithms",
        2020,
    ),
    Paper(
        "Kar, Purushottam and Karnick, Harish",
        "Random Feature Maps for Dot Product Kernels",
        "International Conference on Artificial Intelligence and Statistics",
        2012,
    ),
    Paper(
        "Avron, Haim and Nguyen, Huy L. and Woodruff, David P.",
        "Subspace Embeddings for the Polynomial Kernel",
        NEURIPS,
        2014,
    ),
    Paper(
        "Wacker, Jonas and Ohana, Ruben and Filippone, Maurizio",
        "Complex-to-Real Sketches for Tensor Products with Applications to the Polynomial Kernel",
        "arXiv:2202.02031",
        2022,
        journal=True,
    ),
    Paper(
        "Wacker, Jonas and Kanagawa, Motonobu and Filippone, Maurizio",
        "Improved Random Features for Dot Product Kernels",
        "arXiv:2201.08712",
        2022,
        journal=True,
    ),
    Paper(
        "Chen, Yifan and Epperly, Ethan N. and Tropp, Joel A. and Webber, Robert J.",
        "Randomly Pivoted Cholesky: Practical Approximation of a Kernel Matrix with Few Entry Evaluations",
        "Communications on Pure and Applied Mathematics",
        2025,
        journal=True,
    ),
    Paper(
        "Sutherland, Danica J. and Schneider, Jeff",
        "On the Error of Random Fourier Features",
        "Conference on Uncertainty in Artificial Intelligence",
        2015,
    ),
    Paper(
        "Sriperumbudur, Bharath K. and Szab{\\'o}, Zolt{\\'a}n",
        "Optimal Rates for Random Fourier Features",
        NEURIPS,
        2015,
    ),
    Paper(
        "Avron, Haim and Kapralov, Michael and Musco, Cameron and Musco, Christopher and Velingker, Ameya and Zandieh, "
        "Amir",
        "Random Fourier Features for Kernel Ridge Regression: Approximation Bounds and Statistical Guarantees",
        ICML,
        2017,
    ),
    Paper(
        "Musco, Cameron and Musco, Christopher",
        'Recursive Sampling for the Nystr{\\"o}m Method',
        NEURIPS,
        2017,
    ),
    Paper(
        "Zhang, Kai and Tsang, Ivor W. and Kwok, James T.",
        'Improved Nystr{\\"o}m Low-Rank Approximation and Error Analysis',
        ICML,
        2008,
    ),
    Paper(
        "Yang, Tianbao and Li, Yu-Feng and Mahdavi, Mehrdad and Jin, Rong and Zhou, Zhi-Hua",
        'Nystr{\\"o}m Method vs Random Fourier Features: A Theoretical and Empirical Comparison',
        NEURIPS,
        2012,
    ),
    Paper(
        "Williams, Christopher K. I. and Seeger, Matthias",
        'Using the Nystr{\\"o}m Method to Speed Up Kernel Machines',
        NEURIPS,
        2001,
    ),
    Paper(
        "Rudi, Alessandro and Rosasco, Lorenzo",
        "Generalization Properties of Learning with Random Features",
        NEURIPS,
        2017,
    ),
    Paper(
        "Higham, Nicholas J. and Mary, Theo",
        "A New Approach to Probabilistic Rounding Error Analysis",
        "SIAM Journal on Scientific Computing",
        2019,
        journal=True,
    ),
)


def cited(claim: str) -> list[Paper]:
    """Return the papers that a text names by their first author and year."""
    return [paper for paper in PAPERS if re.search(rf"{paper.surname}[^0-9]{{0,60}}\b{paper.year}", claim)]


def bibtex(claims: str) -> str:
    """Return the entries of kernattn and of the papers that a text names."""
    own = (
        "@software{kernattn,\n  author = {{kernattn developers}},\n  title = {{kernattn: random-feature kernels and "
        f"linear attention on any array library}}}},\n  version = {{{__version__}}}\n}}"
    )
    return "\n\n".join([own, *(paper.bibtex() for paper in cited(claims))])
