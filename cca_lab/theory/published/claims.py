"""Published numbers as claims: what the papers print, and what follows from their own numbers."""

from cca_lab.theory.claim import Claim
from cca_lab.theory.published import cca, cca_costs, dga, lococo

CLAIMS: tuple[Claim, ...] = (*cca.CLAIMS, *cca_costs.CLAIMS, *dga.CLAIMS, *lococo.CLAIMS)
