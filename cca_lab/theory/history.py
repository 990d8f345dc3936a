"""What changed in the ledger: verdicts that were another, and ids that were retired and are never used again."""

from dataclasses import dataclass

from cca_lab.theory.claim import Verdict


@dataclass(frozen=True)
class Change:
    """One change of the ledger.

    Attributes:
        date: year, month and day, ISO 8601.
        id: of the claim.
        before: the verdict until then.
        after: the verdict since; "" where the claim was retired.
        why: in one line.
    """

    date: str
    id: str
    before: str
    after: str
    why: str


HOLDS, IF, DEPENDS, BOTH, FALSE = (one.value for one in (
    Verdict.HOLDS, Verdict.HOLDS_IF, Verdict.DEPENDS, Verdict.INCONSISTENT, Verdict.FALSE))
READ = "2026-11-23"  # the whole ledger was read again against the papers by a referee, and every point settled
CHANGES: tuple[Change, ...] = (
    Change(READ, "CCA.speedups", HOLDS, FALSE, "All 16 quotients are judged now, and 15 agree; before, the one that "
           "does not was left out."),
    Change(READ, "CCA.memory", FALSE, HOLDS, "One rule for all rows: a printed number may be rounded or cut at its "
           "last digit."),
    Change(READ, "CCA.minference", FALSE, BOTH, "44.50 s in Section 4.4 and 20.18 s in Table 3 contradict each other; "
           "which is wrong cannot be told."),
    Change(READ, "CCA.best-4k", FALSE, IF, "It holds among the efficient methods that its paragraph lists."),
    Change(READ, "CCA.default", FALSE, BOTH, "Two tables print two latencies of one setting; nothing was claimed."),
    Change(READ, "LC.twice", FALSE, BOTH, "Tables print two numbers for one setting; nothing was claimed."),
    Change(READ, "T2.lemma1", FALSE, IF, "The printed remainder is right along every ray with noise on the logit "
           "itself, which is almost every Gaussian draw."),
    Change(READ, "T2.shared", FALSE, IF, "The paper claims only the order sigma^2 / m^2, which holds for two groups or "
           "more."),
    Change(READ, "T2.eq10", FALSE, BOTH, "Definition and constraint take a mean weight, the objective a mass; each is "
           "consistent, and Eq. 10 joins them."),
    Change(READ, "T2.sigma4", IF, "", "Eq. 23 claims the order only, which T2.eq23 judges."),
    Change(READ, "T2.open", FALSE, "", "Writing min for inf is no claim."),
    Change(READ, "T3.tangent", IF, "", "It joined a hypothesis of the lemmas to a conclusion that nobody wrote; what "
           "is true of it stands in the proof of T3."),
    Change(READ, "T3.sizes", IF, "", "Theorem 3 prints equal sizes."),
    Change(READ, "T1.balance", FALSE, "", "The paper does not say that the best x is a balance; T1.bounded judges what "
           "it says of the product."),
    Change(READ, "T1.range", FALSE, "", "The range of a measurement is no claim."),
    Change(READ, "T1.artefact", FALSE, DEPENDS, "If sparsity names P_sparse itself, it holds by definition."),
    Change(READ, "P1.window", IF, HOLDS, "With the clipping that Eq. 4 prints, k >= 1, it holds for every row."),
    Change(READ, "D1.eq14", IF, DEPENDS, "With token indices it fails; with positions among the focal tokens, K', it "
           "holds."),
    Change(READ, "D1.eq15", IF, HOLDS, "Step 4 of Algorithm 2 makes the groups consecutive."),
    Change(READ, "LC.eq7", FALSE, IF, "Signed weights that sum to 1 are allowed; only 0/0 is a defect."),
    Change(READ, "D1.pairs", HOLDS, IF, "Line 1 of Algorithm 1 was left out: choosing by Eq. 16 costs L^2/2 pairs."),
    Change(READ, "D1.keys", IF, HOLDS, "The paper prints the hypothesis: m and r are constant."),
    Change(READ, "LC.evict", HOLDS, DEPENDS, "It holds if C may read accumulated scores; Eq. 3 gives C the entries "
           "alone."),
    Change(READ, "LC.memory", DEPENDS, IF, "Quoted from another place: the old sentence was about state-space models."),
    Change(READ, "LC.chunk", HOLDS, "", "It was an algebraic identity, which no case could refute."),
)


def of(name: str) -> tuple[Change, ...]:
    """Return the changes of one claim, the oldest first."""
    return tuple(change for change in CHANGES if change.id == name)


def retired() -> dict[str, Change]:
    """Return the ids that are no longer in the ledger, each with its last change."""
    return {change.id: change for change in CHANGES if not change.after}
