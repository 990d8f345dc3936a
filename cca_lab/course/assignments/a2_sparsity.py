"""a2: how sparse a map is, measured so that noise shows nothing, and DGA's Theorem 1 refuted and repaired.

The variants: keys for a share of what the sinks leave, a window's loss over the rows that can lose, tokens chosen on
earlier rows and tested on later ones. Other checks stand in `a2_laws` and `a2_samples`.
"""

import torch
from torch import Tensor

from cca_lab.course.assignments import a2_laws as laws
from cca_lab.course.assignments import a2_samples as samples
from cca_lab.course.assignments.a2_maps import (
    counted,
    exact_map,
    integer_map,
    lifted,
    lost,
    noise,
    own_token_only,
    planted,
    tied_map,
    with_sink,
)
from cca_lab.course.compare import describe, need_close, need_number, need_same, need_tensor
from cca_lab.course.tasks import Answer, Assignment, Draw, Mistake, Property, Share, Task, case

# a2.1: by hand


def by_hand(answer: Answer, draw: Draw) -> Share | None:
    """Check the numbers that were worked out for one row."""
    got = answer()
    wanted = {"keys": 4, "keys without token 0": 3, "beyond": 0.5, "rate": 1 / (6 * 0.3)}
    if not isinstance(got, dict) or set(got) != set(wanted):
        raise Mistake(f"the result is {describe(got)}, wanted a dict with the keys {', '.join(wanted)}")
    wrong = [key for key, value in wanted.items() if abs(need_number(got[key], key) - value) > 2e-3]
    return Share(1 - len(wrong) / len(wanted), f"not right yet: {', '.join(wrong)}") if wrong else None


# a2.2: keys for a share, on maps of small integers over their sum, so that the right counts are exact


def check_counts(answer: Answer, draw: Draw, maps: list[Tensor], mass: tuple[int, int], sinks: int,
                 empty: bool = False, note: str = "") -> None:
    """Compare counts of one batch of maps, in both precisions; rows of sinks only are skipped unless `empty`."""
    ints = torch.stack(maps)
    wanted = torch.stack([counted(each, mass, sinks) for each in maps])
    ascending = [[next((k for k in range(len(row) + 1) if mass[1] * sum(sorted(row)[:k]) >= mass[0] * sum(row)), 0)
                  for row in each[:, sinks:].tolist()] for each in maps]
    causes = {"one key is counted where none is needed: for mass 0, or if the tokens after the sinks have no weight":
                  wanted.clamp(min=1),
              "one key is missing: the sum reaches the mass with the next one": (wanted - 1).clamp(min=0),
              "one key is too many: did you count the key after the mass was reached?": wanted + 1,
              "a sum that misses the mass by up to 0.0001 is taken to have reached it: that is too generous":
                  torch.stack([counted(each, (10**4 * mass[0] - mass[1], 10**4 * mass[1]), sinks) for each in maps]),
              "the sinks are counted among the keys": torch.stack([counted(each, mass, 0) for each in maps]),
              "the weights are sorted from the smallest": torch.tensor(ascending)}
    for dtype in (torch.float64, torch.float32):
        with case(f"{len(maps)} maps of {maps[0].shape[0]} tokens, {dtype}, mass {mass[0] / mass[1]:.6g}, "
                  f"sinks {sinks}{note}"):
            weights = ints.to(dtype) / ints.sum(dim=-1, keepdim=True).to(dtype)
            got = need_tensor(answer(weights, mass[0] / mass[1], sinks), wanted.shape, "the count", "int")
            rows = slice(0 if empty else sinks, None)
            left = {cause: torch.cat([wanted[:, :rows.start], other[:, rows]], -1) for cause, other in causes.items()}
            need_same(torch.cat([wanted[:, :rows.start], got[:, rows]], -1), wanted, "the count", causes=left)


def counts_plain(answer: Answer, draw: Draw) -> None:
    """Masses that no sum of weights can equal."""
    for length, sinks in ((3, 0), (6, 1), (20, 2), *((draw.randint(8, 23), draw.randint(0, 3)) for _ in range(3))):
        check_counts(answer, draw, [integer_map(draw, length) for _ in range(2)], (draw.randint(90, 200), 211), sinks)


def counts_tied(answer: Answer, draw: Draw) -> None:
    """Masses that a sum of weights equals, up to rounding in the last bits; and masses that it misses by 0.00004."""
    for length, sinks, mass in ((13, 0, (9, 10)), (16, 1, (9, 10)), (24, 2, (7, 10)),
                                (draw.randint(20, 30), draw.randint(0, 3), (4, 5))):
        check_counts(answer, draw, [tied_map(draw, length, mass, sinks) for _ in range(3)], mass, sinks,
                     note="; in most rows a sum equals the mass")
    for length, (top, over) in ((13, (9, 10)), (draw.randint(20, 30), (7, 10))):
        maps = [tied_map(draw, length, (top, over), 0) for _ in range(3)]
        check_counts(answer, draw, maps, (25_000 * top + over, 25_000 * over), 0,
                     note="; in most rows a sum misses the mass by 0.00004")


def counts_ends(answer: Answer, draw: Draw) -> None:
    """Mass 0, mass 1, and rows in which only sinks have weight; all sums are exact, so that no rounding matters."""
    for length, sinks in ((1, 1), (4, 1), (9, 12), (draw.randint(6, 15), draw.randint(1, 4))):
        for mass in ((0, 1), (1, 1), (draw.randint(30, 63), 67)):
            check_counts(answer, draw, [exact_map(draw, length, empty=True), exact_map(draw, length)], mass, sinks,
                         empty=True)


# a2.3: beyond a window


def check_lost(answer: Answer, maps: Tensor, windows: list[int]) -> None:
    """Compare losses of one batch of maps."""
    causes = {"the window is one token too long": lost(maps, windows, -1),
              "the window is one token too short": lost(maps, windows, 1),
              "rows that have no token beyond the window are part of the mean": lost(maps, windows, every=True),
              "rows that have tokens beyond the window, but give them no weight, are left out of the mean":
                  lost(maps, windows, losing=True)}
    with case(f"{maps.shape[0]} maps of {maps.shape[-1]} tokens, windows {windows}"):
        need_close(answer(maps, windows), lost(maps, windows), "the loss", tolerance=1e-6, causes=causes,
                   why="is it a mean over no rows?")


def lost_random(answer: Answer, draw: Draw) -> None:
    """Windows inside the text; also where a row could lose something, but gives all its weight to its own token."""
    for length in (4, 9, draw.randint(12, 30)):
        windows = [2, length - 1, draw.randint(2, length - 2)]
        check_lost(answer, noise(draw, 3, length), windows)
        check_lost(answer, own_token_only(draw, noise(draw, 3, length)), windows)


def lost_ends(answer: Answer, draw: Draw) -> None:
    """No window, a window of one token, and windows as long as the text and longer; one window inside as well."""
    for length in (4, draw.randint(6, 20)):
        check_lost(answer, noise(draw, 2, length), [0, 1, 2, length, length + 3])


# a2.4: tokens that stay heavy


def lift_values(answer: Answer, draw: Draw) -> None:
    """The number itself."""
    for length, first, split, top in ((6, 4, 5, 1), (12, 5, 8, 2), (24, 9, 17, 3)):
        if draw.secret:
            length = length + draw.randint(0, 6)
        maps = with_sink(draw, noise(draw, 4, length))
        sizes = (first, split, top)
        wanted, sink = lifted(maps, *sizes), lifted(maps, *sizes, skip=0)
        causes = {"tokens are chosen on the rows that test them": lifted(maps, *sizes, choose=slice(split, None)),
                  "tokens are chosen on all rows, also on those that test them":
                      lifted(maps, *sizes, choose=slice(first, None)),
                  "token 0 can be chosen": sink,
                  "token 0 can be chosen, though it is not counted as a candidate": sink * (first - 1) / first,
                  "the candidates are taken to be `first`; they are one fewer, without token 0":
                      wanted * first / (first - 1),
                  "the weights of all testing rows are summed before the division": lifted(maps, *sizes,
                                                                                         how="ratio of sums"),
                  "the weight is divided by that of the whole row": lifted(maps, *sizes, how="whole row"),
                  "the mean share is not put in units of an even share": wanted * top / (first - 1)}
        if split + 1 < length:
            causes["row `split` does not test"] = lifted(maps, *sizes, test=split + 1)
        with case(f"4 maps of {length} tokens, first {first}, split {split}, top {top}"):
            need_close(lifts_of(answer, maps, sizes), wanted, "the lift", causes=causes)


def lifts_of(answer: Answer, maps: Tensor, sizes: tuple[int, int, int]) -> Tensor:
    """Return the answer's lifts, if they are finite."""
    return need_tensor(answer(maps, *sizes), maps.shape[:-2], "the lift", why="is it a mean over no rows? Row `split` "
                       "is the first one that tests, and the last row of the map tests too")


def lift_noise(answer: Answer, draw: Draw) -> None:
    """Noise must show a lift of 1 on average, and tokens that are heavy everywhere a large one."""
    maps = noise(draw, 100, 48)
    units = "is it the share of what the candidates weigh in that row, times the number of candidates, divided by top?"
    for what, given, low, high, below, above in (
            ("pure noise", maps, 0.9, 1.1, units, "do the rows that choose the tokens also test them?"),
            ("noise with two tokens eight times as heavy", planted(maps, [3, 20], 8), 3, 8,
             "are the two chosen, and " + units, units)):
        with case(f"100 maps of 48 tokens, first 33, split 40, top 2, {what}"):
            mean = lifts_of(answer, given, (33, 40, 2)).mean().item()
            if not low < mean < high:
                raise Mistake(f"the mean lift is {mean:.3f}, wanted {low} to {high}: {below if mean <= low else above}")


def lift_gone(answer: Answer, draw: Draw) -> None:
    """A token that only the choosing rows read has a lift of 0; one that all rows read has the largest.

    More rows test than choose, so that a token which is chosen on all rows is the other one. Token 0 has no weight.
    """
    for length, first, split in ((7, 4, 5), (16, 6, 10), (draw.randint(25, 30), 7, draw.randint(10, 15))):
        before, after = draw.sample(range(1, first), 2)
        maps = torch.eye(length, dtype=torch.float64).repeat(2, 1, 1)
        maps[:, first:] /= 2
        maps[:, first:split, before] = maps[0, split:, after] = maps[1, split:, before] = 0.5
        with case(f"{length} tokens, first {first}, split {split}, top 1; token {before} is heavy in the choosing rows"
                  f", and later token {after} is (map 0) or token {before} still (map 1)"):
            gone, stays = lifts_of(answer, maps, (first, split, 1)).tolist()
            if abs(gone) > 1e-6 or stays < first - 1 - 1e-6:
                raise Mistake(f"the lifts are {gone:.6g} and {stays:.6g}, wanted 0 and {first - 1}: token {before} is "
                              "chosen in both maps, and holds nothing or all of what the candidates have later")


def lift_sink(answer: Answer, draw: Draw) -> None:
    """Token 0 may take any part of the rows, and the lift stays; heavy tokens must be found beside it."""
    for length, first, split in ((10, 5, 7), (30, 12, 20)):
        maps = noise(draw, 6, length)  # the heaviest in each row is chosen, however token 0 weighs the rows
        maps[..., first:, 2] = 2 * maps[..., first:, 1:first].amax(dim=-1)
        light, heavy = (with_sink(draw, maps, draw.uniform(*ends)) for ends in ((0.1, 0.3), (0.6, 0.9)))
        with case(f"6 maps of {length} tokens, first {first}, split {split}, top 1, token 2 heaviest in all rows"):
            plain = lifts_of(answer, light, (first, split, 1))
            if plain.mean() < 1.2:
                raise Mistake(f"the mean lift is {plain.mean():.3f}, though token 2 is at least twice as heavy as "
                              "the other candidates in all rows: wanted more than 1.2")
            need_close(lifts_of(answer, heavy, (first, split, 1)), plain.double(),
                       "the lift after token 0 was given more of each row")


ASSIGNMENT = Assignment("a2", "sparsity", "Sparsity, measured without fooling yourself", ("02", "03"), (
    Task("a2.1", "by_hand", "One row by hand", 10, 1, 3, (Property("the numbers of the row", 2, by_hand),)),
    Task("a2.2", "keys_for_share", "Keys for a share of the row", 25, 2, 4, (
        Property("the fewest keys are counted", 1, counts_plain),
        Property("a sum that equals the mass has reached it", 1, counts_tied),
        Property("mass 0, mass 1 and rows of sinks only", 1, counts_ends))),
    Task("a2.3", "lost_beyond", "What a window loses", 15, 2, 4, (
        Property("the loss is the mean over rows that can lose", 1, lost_random),
        Property("windows of 0, 1 and the whole text", 1, lost_ends))),
    Task("a2.4", "lift", "Do heavy tokens stay heavy?", 30, 3, 5, (
        Property("the lift of random maps", 1, lift_values),
        Property("noise shows nothing, heavy tokens a lot", 1, lift_noise),
        Property("what was heavy and is no more counts nothing", 1, lift_gone),
        Property("the share of token 0 does not matter", 1, lift_sink))),
    Task("a2.5", "noise_lift", "What the circular measure shows in noise", 15, 2, 4, (
        Property("one token is chosen", 1, laws.lift_of_one),
        Property("several tokens are chosen", 1, laws.lift_of_several))),
    Task("a2.6", "estimate", "P_sparse with an interval", 20, 3, 4, (
        Property("the share of sparse rows", 1, samples.share),
        Property("the interval covers as often as it says", 1, samples.covers_middle),
        Property("the interval covers near 0 and 1 too", 1, samples.covers_ends, hidden=True))),
    Task("a2.7", "too_much", "An example against Theorem 1", 15, 2, 4, (
        Property("the printed bound promises too much in the middle", 2, laws.refuted),)),
    Task("a2.8", "two_values", "The repaired bound, predicted", 20, 3, 4, (
        Property("the chance of a sparse row", 1, laws.sparse_chance),
        Property("the repaired bound at one x", 1, laws.repaired_bound),
        Property("both for thousands of tokens", 1, laws.both_long, hidden=True))),
    Task("a2.9", "head_picture", "What a head's picture shows", 30, 2, 4, (), read=3),
))
