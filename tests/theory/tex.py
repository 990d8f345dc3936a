"""Formulas of the articles as programs: TeX becomes Python, which a test compares with the code.

A formula stands in an article as `$$ .. $$ (label)`. Names are single letters and commands; `X_j`
is the entry `X[j]`, except of the names in `functions`: `U_g(A)` is `U(A, g)`, and `P(X_j > x)` is
`P(lambda X, Y, S, alpha: X[j] > x)`, Y the largest of X. `sum_j` runs over `J`, and
`sum_{j \\in g}` over `members[g]`. A name with a bar ends in `_bar`; lambda is `lambda_`.
"""

import re
from fractions import Fraction
from functools import cache
from math import ceil, floor

from cca_lab.files import repository

TOKEN = re.compile(r"\\[A-Za-z]+|\d+(?:\.\d+)?|[A-Za-z]|[^\s\\]")
SPACING = re.compile(r"\\(?:left|right)\b|\\[,;!]")
SHORT = {r"P_{sparse}(L, \rho)": "p", r"\max_j X_j": "Y", "m'": "span",
         r"\operatorname{Var}_{full} - \operatorname{Var}_{grouped}": "removed"}
RELATIONS = {r"\ge": ">=", r"\le": "<=", "<": "<", ">": ">", "=": "=="}
BRACKETS = {"(": ("", ")"), "[": ("", "]"), "{": ("", "}"), r"\lceil": ("ceil", r"\rceil"),
            r"\lfloor": ("floor", r"\rfloor")}
ENDS = {"", "+", "-", ",", *RELATIONS, *(end for _, end in BRACKETS.values())}
FUNCTIONS = ("P", "U", "lambda_")
KNOWN = {"ceil": ceil, "floor": floor, "Fraction": Fraction}


def text(article: str) -> str:
    """Return docs/claims/`article`.md with its paragraphs on one line."""
    page = (repository() / "docs" / "claims" / f"{article}.md").read_text(encoding="utf-8")
    return " ".join(page.split())


def formulas(article: str) -> dict[str, str]:
    """Return the TeX of the labelled formulas of docs/claims/`article`.md."""
    found = re.findall(r"\$\$((?:(?!\$\$).)*)\$\$ \(([\w-]+)\)", text(article))
    return {label: tex.partition(r"\quad")[0].strip().rstrip(".,") for tex, label in found}


def plain(text: str) -> str:
    """Return the TeX of the ledger's formula in plain letters, which ends at a semicolon."""
    text = re.sub(r"\b(rho|alpha|lambda|gamma|sum|max)(?=_|\b)", r"\\\1", text.partition(";")[0])
    text = re.sub(r"\b([Hv])bar\b|\b([Hv])bar(?=_)", r"\\bar{\1\2}", text)
    text = re.sub(r"ceil(\((?:[^()]|\([^()]*\))*\))", r"\\lceil\1\\rceil", text)
    for sign, command in ((">=", r"\ge "), ("<=", r"\le "), ("} in ", "} "), (" in g}", r" \in g}"),
                          ("P_sparse", r"P_{sparse}(L, \rho)")):
        text = text.replace(sign, command)
    return text


@cache
def chain(tex: str, functions: tuple[str, ...] = FUNCTIONS) -> list[str]:
    """Return the sides of a chain of relations, and between them the relations, in Python."""
    for long, short in SHORT.items():
        tex = tex.replace(long, f" {short} " if len(short) == 1 else rf"\{short} ")
    parser = _Parser(tex, functions)
    found = parser.chain()
    parser.take("")
    return found


def value(tex: str, functions: tuple[str, ...] = FUNCTIONS, side: int = -1, **names):
    """Return the value of one side of a formula, by default the last, for these names."""
    return eval(chain(tex, functions)[::2][side], KNOWN | names)


def holds(tex: str, functions: tuple[str, ...] = FUNCTIONS, **names) -> bool:
    """Return whether a chain of relations holds for these names."""
    return bool(eval(" ".join(chain(tex, functions)), KNOWN | names))


class _Parser:
    """A parser by recursive descent; each method returns Python."""

    def __init__(self, tex: str, functions: tuple[str, ...]) -> None:
        self.tokens = [*TOKEN.findall(SPACING.sub("", tex)), ""]
        self.functions = functions

    @property
    def next(self) -> str:
        return self.tokens[0]

    def take(self, wanted: str | None = None) -> str:
        """Remove the next token and return it."""
        if wanted not in (None, self.next):
            raise ValueError(f"wanted {wanted or 'the end'}, got {' '.join(self.tokens)}")
        return self.tokens.pop(0)

    def chain(self) -> list[str]:
        """Read sums with relations between them."""
        found = [self.sum()]
        while self.next in RELATIONS:
            found += [RELATIONS[self.take()], self.sum()]
        return found

    def sum(self) -> str:
        """Read terms with signs between them."""
        python = self.term()
        while self.next in ("+", "-"):
            python += f" {self.take()} {self.term()}"
        return python

    def term(self) -> str:
        """Read factors side by side, or with a stroke between them."""
        python = self.factor()
        while self.next not in ENDS:
            python += f" {self.take() if self.next == '/' else '*'} {self.factor()}"
        return python

    def factor(self) -> str:
        """Read an atom and its exponent."""
        python = self.atom()
        return f"({python}) ** ({self.group()})" if self.follows("^") else python

    def follows(self, token: str) -> bool:
        """Remove the next token if it is this one."""
        return self.next == token and bool(self.take())

    def group(self) -> str:
        """Read a sum in braces, or a single letter or digit."""
        return self.atom() if self.next == "{" else self.take().removeprefix("\\")

    def atom(self) -> str:
        """Read a number, a bracket, a fraction, a sum, or a name with what follows it."""
        token = self.take()
        if token in BRACKETS:
            name, end = BRACKETS[token]
            return f"{name}({self.sum()}{self.take(end)[:0]})"
        if token == r"\frac":
            return f"({self.group()} / {self.group()})"
        if token == r"\sum":
            return self.total()
        if token in (r"\max", r"\min"):
            return token[1:] + self.arguments()
        if token[0].isdigit():
            return f"Fraction('{token}')" if "." in token else token
        name = f"{self.group().strip('()')}_bar" if token == r"\bar" else token.removeprefix("\\")
        return self.named("lambda_" if name == "lambda" else name)

    def total(self) -> str:
        """Read the index and the term of a sum."""
        self.take("_")
        braces, index = self.follows("{"), self.take()
        over = f"members[{self.take()}]" if self.follows(r"\in") else index.upper()
        if braces:
            self.take("}")
        return f"sum({self.term()} for {index} in {over})"

    def named(self, name: str) -> str:
        """Read what follows a name: an index, and the arguments of a function."""
        index = self.group() if self.follows("_") else ""
        if name not in self.functions or self.next != "(":
            return f"{name}[{index}]" if index else name
        if name == "P":
            self.take("(")
            return f"P(lambda X, Y, S, alpha: {' '.join(self.chain())}{self.take(')')}"
        return name + self.arguments(f", {index}" if index else "")

    def arguments(self, more: str = "") -> str:
        """Read sums in brackets with commas between them; add one."""
        self.take("(")
        python = self.sum()
        while self.follows(","):
            python += f", {self.sum()}"
        self.take(")")
        return f"({python}{more})"
