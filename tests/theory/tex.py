"""Formulas of the articles as programs: TeX becomes Python, which a test compares with the code.

A formula stands in an article as `$$ .. $$ (label)`. Names are single letters and commands; `X_j`
is the entry `X[j]`, except of the names in `functions`: `U_g(A)` is `U(A, g)`, `P(X_j > x)` is
`P(lambda X, S, alpha: X[j] > x)`, `P_{sparse}(..)` is `P_sparse`. `sum_j` runs over `J`, and
`sum_{j \\in g}` over `members[g]`. A name with a bar ends in `_bar`; lambda is `lambda_`.
"""

import re
from collections.abc import Collection
from fractions import Fraction
from math import ceil, floor

from cca_lab.files import repository

TOKEN = re.compile(r"\\[A-Za-z]+|\\[{},;!]|\d+(?:\.\d+)?|[A-Za-z]|\S")
SPACING = {r"\,", r"\;", r"\!", r"\left", r"\right", r"\big", r"\Big", r"\bigl", r"\bigr", "&"}
RELATIONS = {r"\ge": ">=", r"\le": "<=", "<": "<", ">": ">", "=": "=="}
ROUNDED = {r"\lceil": (r"\rceil", "ceil"), r"\lfloor": (r"\rfloor", "floor")}
KNOWN = {"ceil": ceil, "floor": floor, "Fraction": Fraction}
CLOSING = {")", "}", "]", ",", r"\rceil", r"\rfloor", "+", "-", "/", *RELATIONS}


def text(article: str) -> str:
    """Return docs/claims/`article`.md with its paragraphs on one line."""
    page = (repository() / "docs" / "claims" / f"{article}.md").read_text(encoding="utf-8")
    return " ".join(page.split())


def formula(article: str, label: str) -> str:
    """Return the TeX that has this label in docs/claims/`article`.md."""
    found = re.findall(rf"\$\$((?:(?!\$\$).)*)\$\$ \({re.escape(label)}\)", text(article))
    if len(found) != 1:
        raise ValueError(f"{label}: {len(found)} formulas of {article}.md have it, wanted 1")
    return found[0].partition(r"\quad")[0].strip().rstrip(".,")


def plain(text: str) -> str:
    """Return the TeX of the ledger's formula in plain letters, which ends at a semicolon."""
    text = re.sub(r"\b(rho|alpha|lambda|gamma|sum|max)(?=_|\b)", r"\\\1", text.partition(";")[0])
    text = re.sub(r"\b([Hv])bar\b|\b([Hv])bar(?=_)", r"\\bar{\1\2}", text)
    text = re.sub(r"ceil(\((?:[^()]|\([^()]*\))*\))", r"\\lceil\1\\rceil", text)
    for sign, command in ((">=", r"\ge "), ("<=", r"\le "), ("} in ", "} ")):
        text = text.replace(sign, command)
    return text.replace("P_sparse", "P_{sparse}(L)").replace(" in g}", r" \in g}")


def sides(tex: str, functions: Collection[str] = ("P", "U")) -> list[str]:
    """Return the sides of a chain of relations, each as a Python expression."""
    return chain(tex, functions)[::2]


def chain(tex: str, functions: Collection[str] = ("P", "U")) -> list[str]:
    """Return the sides of a chain of relations, and between them the relations, in Python."""
    parser = _Parser(tex, functions)
    found = [parser.sum()]
    while parser.next in RELATIONS:
        found += [RELATIONS[parser.take()], parser.sum()]
    if parser.next:
        raise ValueError(f"{tex!r}: cannot read from {parser.next!r} on")
    return found


def value(tex: str, functions: Collection[str] = ("P", "U"), side: int = -1, **names):
    """Return the value of one side of a formula, by default the last, for these names."""
    return eval(sides(tex, functions)[side], KNOWN | names)


def holds(tex: str, functions: Collection[str] = ("P", "U"), **names) -> bool:
    """Return whether a chain of relations holds for these names."""
    return bool(eval(" ".join(chain(tex, functions)), KNOWN | names))


class _Parser:
    """A parser by recursive descent; each method returns Python."""

    def __init__(self, tex: str, functions: Collection[str]) -> None:
        self.tokens = [token for token in TOKEN.findall(tex) if token not in SPACING]
        self.functions = functions

    @property
    def next(self) -> str:
        """The next token, or nothing."""
        return self.tokens[0] if self.tokens else ""

    def take(self, wanted: str | None = None) -> str:
        """Remove the next token and return it."""
        if not self.tokens or (wanted and self.next != wanted):
            raise ValueError(f"wanted {wanted or 'a token'}, got {self.next!r}")
        return self.tokens.pop(0)

    def sum(self) -> str:
        """Read terms with signs between them."""
        python = "-" + self.term() if self.next == "-" and self.take() else self.term()
        while self.next in ("+", "-"):
            python += f" {self.take()} {self.term()}"
        return python

    def term(self) -> str:
        """Read factors side by side, or with a stroke or a dot between them."""
        python = self.factor()
        while self.next and self.next not in CLOSING - {"/"}:
            if self.next == "/":
                self.take()
                python = f"{python} / {self.factor()}"
            elif self.next in (r"\cdot", r"\times"):
                self.take()
            else:
                python = f"{python} * {self.factor()}"
        return python

    def factor(self) -> str:
        """Read an atom and its exponent."""
        python = self.atom()
        if self.next == "^":
            self.take()
            python = f"({python}) ** ({self.group()})"
        return python

    def group(self) -> str:
        """Read a sum in braces, or a single atom."""
        if self.next != "{":
            return self.atom(bare=True)
        return self.between("{", "}")

    def between(self, opening: str, closing: str) -> str:
        """Read a sum between two brackets."""
        self.take(opening)
        python = self.sum()
        self.take(closing)
        return python

    def atom(self, bare: bool = False) -> str:
        """Read a number, a bracket, a fraction, a sum, a rounded number, or a name."""
        if self.next in ("(", "[", "{"):
            return f"({self.between(self.next, {'(': ')', '[': ']', '{': '}'}[self.next])})"
        if self.next in ROUNDED:
            closing, name = ROUNDED[self.next]
            return f"{name}({self.between(self.next, closing)})"
        token = self.take()
        if token == r"\frac":
            return f"(({self.group()}) / ({self.group()}))"
        if token == r"\sum":
            return self.total()
        if token in (r"\max", r"\min"):
            if self.next == "_":
                self.take()
                self.group()
                return f"{token[1:]}({self.take()}{self.skip_index()})"
            return f"{token[1:]}({self.arguments()})"
        if token in (r"\operatorname", r"\text"):
            return self.named(self.word(), bare)
        if token == r"\bar":
            return self.named(f"{self.group()}_bar", bare)
        if not re.fullmatch(r"\\?[A-Za-z]+", token):
            return f"Fraction('{token}')" if "." in token else token
        name = token.removeprefix("\\")
        return self.named({"lambda": "lambda_"}.get(name, name), bare)

    def word(self) -> str:
        """Read the letters of a word in braces."""
        self.take("{")
        word = ""
        while self.next != "}":
            word += self.take()
        self.take("}")
        return word

    def skip_index(self) -> str:
        """Drop an index: the maximum over j of X_j is that of X."""
        if self.next == "_":
            self.take()
            self.group()
        return ""

    def total(self) -> str:
        """Read the index and the term of a sum."""
        self.take("_")
        if self.next == "{":
            self.take()
            index = self.take()
            over = index.upper()
            if self.next == r"\in":
                self.take()
                over = f"members[{self.take()}]"
            self.take("}")
        else:
            index = self.take()
            over = index.upper()
        return f"sum({self.term()} for {index} in {over})"

    def named(self, name: str, bare: bool) -> str:
        """Read what follows a name: an index, and the arguments of a function."""
        index = ""
        if self.next == "_" and not bare:
            self.take()
            if name in ("P", "Var") and self.next == "{":
                name = f"{name}_{self.word()}"
                if self.next == "(":
                    self.arguments()
                return name
            index = self.group()
        if name in self.functions and self.next == "(":
            if name == "P":
                return f"P(lambda X, S, alpha: {self.event()})"
            return f"{name}({self.arguments()}{', ' + index if index else ''})"
        return f"{name}[{index}]" if index else name

    def arguments(self) -> str:
        """Read sums in brackets with commas between them."""
        self.take("(")
        python = self.sum()
        while self.next == ",":
            python += f"{self.take()} {self.sum()}"
        self.take(")")
        return python

    def event(self) -> str:
        """Read the relation between two sums in the brackets of a probability."""
        self.take("(")
        left = self.sum()
        python = f"{left} {RELATIONS[self.take()]} {self.sum()}"
        self.take(")")
        return python
