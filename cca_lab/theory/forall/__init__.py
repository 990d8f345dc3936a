"""Index statements proved for all integers with z3, from the functions that the lab runs.

How to prove something (without the solver the first call raises `ModuleNotFoundError`):

    from cca_lab.theory.forall.core import demand, prove
    from cca_lab.theory.forall.terms import integers

    L, g, s = integers("L g s")                       # symbolic integers; Python's operators work
    prove(demand("the last row sees itself raw", [L >= 1, g >= 1, s >= 1],
                 lambda: g * core_count(L, g, s) < L))                                # -> Outcome

  * `demand` runs a function on symbolic integers and yields an obligation for each way through its
    branches (`if`, `max`, `min`). It returns a `Truth`, or a dict of names to truths.
  * A comparison is a `Truth`: join them by `&`, `|`, `~`, `.implies(...)`, `.iff(...)`, or
    `every(a, b, ...)` and `some(a, b, ...)`. `where(truth, a, b)` chooses without a branch.
  * `//`, `%` and `divmod` are Python's for a positive divisor; it must be assumed (`g >= 1`).
  * Products of variables are hard for a solver. Where it does not decide, say a step on the way:
    `lemma(truth)`, or `divided_by(value, divisor, quotient, rest)`, inside of `demand`.
  * `prove(obligations)` holds if every negation is unsatisfiable, and if every inequality that is
    concluded is attained: one stricter, it must fail. So no bound can be weakened in silence.
    Otherwise the evidence names what fails at the smallest numbers (least sum of absolute values,
    ties in the order of names). The text has no times: `report.py` measures.

`terms` has the symbols, `core` the proofs, `report` all statements but those of `papers`, which
claims judge.
"""
