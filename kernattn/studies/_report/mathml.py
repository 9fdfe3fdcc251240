"""Formulas of a page that loads nothing: the TeX that formulas of presets are written in, as MathML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from kernattn._runtime.checks import shown
from kernattn.errors import ParameterError

TOKEN = re.compile(r"\s*(\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|[A-Za-z]|\S)")
GREEK = ("phi", "omega", "lambda", "Delta", "delta", "epsilon", "sigma", "gamma", "pi", "rho", "eta")
LETTERS = dict(zip(GREEK, "φωλΔδεσγπρη", strict=True))
OPERATORS = dict(
    pair.split(" ")
    for pair in (
        *("approx ≈", "le ≤", "ge ≥", "cdot ·", "times ×", "sum ∑", "max max", "ldots …", "pm ±", "in ∈", "sim ∼"),
        *("preceq ⪯", "infty ∞", "to →", "| ‖", ", \u2009", "top ⊤"),
    )
)
WORDS = ("exp", "log", "cos", "sin", "Var")


def mathml(tex: str) -> str:
    r"""Return a formula as MathML: letters, numbers, ``^ _ {}``, \frac, \sqrt, \hat, \mathrm, \operatorname, \quad."""
    tokens = iter([*TOKEN.findall(tex), ""])
    return f'<math display="block"><mrow>{_row(tokens, "", tex)}</mrow></math>'


def _row(tokens: Iterator[str], end: str, tex: str) -> str:
    """Return what stands before `end`."""
    found: list[str] = []
    for token in tokens:
        if token == end:
            return "".join(found)
        if token in ("^", "_"):
            if not found:
                raise ParameterError(f"{token} follows nothing in {shown(tex)}")
            found[-1] = _script(found[-1], token, _argument(tokens, tex))
        elif token in ("", "}"):
            break
        else:
            found.append(_atom(token, tokens, tex))
    raise ParameterError(f"braces do not match in {shown(tex)}")


def _argument(tokens: Iterator[str], tex: str) -> str:
    return _atom(next(tokens), tokens, tex)


def _script(base: str, which: str, script: str) -> str:
    """Return a base with one more script, above or below."""
    if which == "^" and base.startswith("<msub>"):
        return f"<msubsup>{base.removeprefix('<msub>').removesuffix('</msub>')}{script}</msubsup>"
    tag = "msup" if which == "^" else "msub"
    return f"<{tag}>{base}{script}</{tag}>"


def _atom(token: str, tokens: Iterator[str], tex: str) -> str:
    name = token.removeprefix("\\")
    if token == "{":
        return f"<mrow>{_row(tokens, '}', tex)}</mrow>"
    if token in ("\\frac", "\\sqrt", "\\hat"):
        first = _argument(tokens, tex)
        if name == "frac":
            return f"<mfrac>{first}{_argument(tokens, tex)}</mfrac>"
        return f"<msqrt>{first}</msqrt>" if name == "sqrt" else f'<mover accent="true">{first}<mo>^</mo></mover>'
    if token in ("\\mathrm", "\\operatorname"):
        letters = re.sub(r"<[^>]*>", "", _argument(tokens, tex))
        return f"<mi>{letters}</mi>" if len(letters) > 1 else f'<mi mathvariant="normal">{letters}</mi>'
    if token == "\\quad":
        return '<mspace width="1em"/>'
    if token.startswith("\\"):
        if name in LETTERS or name in WORDS:
            return f"<mi>{LETTERS.get(name, name)}</mi>"
        if name not in OPERATORS:
            raise ParameterError(f"{token} is no command of the formulas here; got {shown(tex)}")
        return f"<mo>{OPERATORS[name]}</mo>"
    if token[:1].isdigit():
        return f"<mn>{token}</mn>"
    if token.isalpha():
        return f"<mi>{token}</mi>"
    return f"<mo>{escape({'-': '−'}.get(token, token))}</mo>"
