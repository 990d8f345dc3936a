"""What happens to a ledger in which a field of a claim is exchanged for its neighbour's.

All exchanges are seen as a changed statement, which `cca-lab verify` writes only with `--restate`.
How many are also refused on their merits, by a rule, a check or a text, is published per field.
"""

import json
from collections import Counter
from dataclasses import replace

import networkx as nx

from cca_lab.files import repository
from cca_lab.theory import claim_map, ledger, quotes
from cca_lab.theory.claim import Claim, Judgement, Outcome, Verdict, contradictions
from tests.theory.test_claims import CLAIMS, unknown_decimals

STORED = {record["id"]: record for record in ledger.stored()}
MAP = claim_map.graph(list(STORED.values()))
DIGESTS = json.loads(ledger.paths()["found"].read_text(encoding="utf-8"))


def agreed(changed: Claim) -> Judgement:
    """Return what the checks of a claim found, as the record and label in the ledger have it."""
    claim = CLAIMS[changed.id]

    def outcome(holds: bool) -> Outcome:
        return Outcome(holds, "", error=STORED[claim.id]["error"])

    inside, outside = (outcome(True), outcome(False)) if claim.hypothesis else (None, None)
    return Judgement(outcome(claim.verdict is Verdict.HOLDS),
                     None if claim.corrected is None else outcome(True), inside, outside,
                     {name: outcome(accepted) for name, (_, accepted)
                      in zip(changed.models, claim.models.values(), strict=True)},
                     {name: outcome(True) for name in changed.sides},
                     outcome(True) if claim.machine else None)


def refused(name: str, field: str, value) -> bool:
    """Whether a claim with another value of a field is refused on its merits."""
    facts = ledger.words()[name] | {field: value}
    try:
        changed = ledger.joined(name, facts, ledger.subjects()[name])
        ledger.check_roots(CLAIMS | {name: changed})
    except ValueError:
        return True
    return (changed.root and not nx.has_path(MAP, name, changed.root)
            or any(contradictions(changed, agreed(changed)))
            or quotes.fingerprint(changed) != DIGESTS[name]  # written where the texts have it
            or unknown_decimals(changed, STORED[name]) > unknown_decimals(CLAIMS[name],
                                                                          STORED[name]))


def exchanges():
    """Yield each claim and field with the value of the next claim that has another one."""
    known = ledger.words()
    names = list(known)
    for place, name in enumerate(names):
        for field, value in known[name].items():
            others = (known[other][field] for other in names[place + 1:] + names[:place]
                      if field in known[other])
            other = next((other for other in others if other != value), None)
            if other is not None:
                yield name, field, other


def seen(name: str, field: str, value) -> bool:
    """Whether the exchange is seen as a changed statement, if it makes a claim at all."""
    try:
        changed = ledger.joined(name, ledger.words()[name] | {field: value},
                                ledger.subjects()[name])
    except ValueError:
        return True
    claims = [ledger.record(claim, agreed(claim)) for claim in (CLAIMS[name], changed)]
    return bool(ledger.restated(claims[1:], claims[:1]))


def test_no_exchange_passes_in_silence():
    """Mutant: a field that is left out of the record."""
    assert [each for each in exchanges() if not seen(*each)] == []
    assert not refused("T2", "reading", ledger.words()["T2"]["reading"])
    without = replace(CLAIMS["T2"], reading="another")
    records = [ledger.record(claim, agreed(claim)) for claim in (CLAIMS["T2"], without)]
    for record in records:
        del record["reading"]
    assert not ledger.restated(records[1:], records[:1])


def shares() -> dict[str, tuple[int, int]]:
    """Return by field how many exchanges are refused on their merits, and of how many."""
    every, lost = Counter(), Counter()
    for name, field, value in exchanges():
        every[field] += 1
        lost[field] += refused(name, field, value)
    return {field: (lost[field], every[field]) for field in every}


def test_what_is_refused_on_its_merits_is_published():
    """The page has the numbers; what can be looked up in a text is always refused."""
    found = shares()
    assert all(found[field][0] == found[field][1] for field in ("paper", "place", "quote"))
    rows = [f"| {field} | {lost} of {every} |" for field, (lost, every) in found.items()]
    page = (repository() / "docs" / "claims" / "trust.md").read_text(encoding="utf-8")
    assert "\n".join(rows) in page, "docs/claims/trust.md should have\n" + "\n".join(rows)
    lost, every = (sum(numbers) for numbers in zip(*found.values(), strict=True))
    assert f"{lost} of the {every} exchanges" in " ".join(page.split()), (lost, every)
