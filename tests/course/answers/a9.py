"""a9: other right tests, and a wrong one; others stand in the tables of the exercises."""

from tests.course import matrix

RIGHT = {
    "asserts, and one call with everything": {
        "a9.1": '''
def merge_is_right(merge):
    for shift in (-90000.0, -900.0, 0.0, 900.0, -900000.0):
        scores, values = 10 * normal(30, 4, seed=5) + shift, normal(4, 2, seed=6)
        scores[10:20] = scores[10:20].sign() * 8 + shift
        scores[20:23, :2], scores[22:25, 2:] = float("-inf"), float("-inf")
        got = merge(part_of(scores[:, :2], values[:2]), part_of(scores[:, 2:], values[2:]))
        for mine, theirs in zip(part_of(scores, values), got):
            torch.testing.assert_close(theirs, mine, rtol=1e-10, atol=1e-10)
    return True
''',
        "a9.3": '''
def intervals_are_right(intervals):
    for length in (3, 17, 48):
        for group in (1, 2, 3, 5):
            for window in (1, 2, 4, 60):
                table = intervals(length, group, window)
                cores = max(0, (length - window) // group)
                assert table.shape == (length, 2, 2)
                assert 0 <= table.min() and table.max() <= cores + length
                column = torch.arange(cores + length)
                seen = ((column >= table[..., :1]) & (column < table[..., 1:])).sum(1)
                tokens = torch.cat([seen[:, :cores].repeat_interleave(group, dim=1),
                                    torch.zeros(length, length)],
                                   dim=1)[:, :length] + seen[:, cores:]
                assert torch.equal(tokens, torch.ones(length, length).tril())
                for row, spans in enumerate(table.tolist()):
                    raw = spans[1][1] - spans[1][0]
                    assert min(row + 1, window) <= raw < window + group
                    assert spans[0][0] == spans[0][1] or spans[0][0] < cores
    return True
'''},
}

WRONG = {
    "puts empty intervals elsewhere": {"a9.3": matrix.solved("a9")["a9-3-answer"].replace(
        "if [list(range(*span)) for span in spans] != [list(range(n)), "
        "list(range(last + n * group, last + row + 1))]:",
        "if spans != [[0, n], [last + n * group, last + row + 1]]:")},
}
