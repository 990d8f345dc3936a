"""Index statements proved for all integers with z3, from the functions that the lab runs.

How to prove something (the solver is imported by the first call; without it that is a `ModuleNotFoundError`):

    from cca_lab.theory.forall.core import Obligation, integers, prove, where

    i, g = integers("i g")                                   # symbolic integers; Python's operators work on them
    prove([Obligation("a group begins before its tokens", [g >= 1, i >= 0], i // g * g <= i)])    # -> Outcome

  * A comparison is a `Truth`: join them with `&`, `|`, `~`, `.implies(...)`, `.iff(...)`, or `every(a, b, ...)` and
    `some(a, b, ...)`. `where(truth, a, b)`, `least(a, b)` and `most(a, b)` choose without a branch.
  * `//`, `%` and `divmod` are Python's for a positive divisor; the hypotheses must say that it is (`g >= 1`), or
    `prove` raises ValueError.
  * `demand(name, hypotheses, statement)` runs a function on symbolic integers and yields one obligation for each way
    through its branches (`if`, `max`, `min`), so the lab's own functions can be called inside of `statement`:

        demand("cores are complete", sizes(length=length, g=g, s=s), lambda: g * core_count(length, g, s) <= length)

    `statement` returns a `Truth`, or a dict of names to truths. For functions of torch tensors see `grid.py`: inside of
    `demand`, `torch.arange(length)`, `stack`, `clamp`, `div`, ... return symbolic tensors where a size is symbolic.
  * Products of variables are hard for a solver. `prove` first replaces each product by a variable that is monotone in
    both factors, which suffices for most index arithmetic. Where it does not, name what was missing in
    `Obligation(..., lemmas=[truth, ...])`, or by `lemma(truth)` inside of `demand`: it is proved first, then used.
  * `prove(obligations, seconds=20)` holds if every negation is unsatisfiable. Otherwise the evidence names the
    obligation that fails at the smallest numbers (least sum of absolute values, ties in the order of names), and these;
    `numbers` has them too. The text has no times: `report.py` measures.
"""
