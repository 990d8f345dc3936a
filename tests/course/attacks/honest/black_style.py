# name: lines that begin with an operator
def intervals(length, sinks, group, window):
    rows = []
    last = max(0, (length - sinks - window) // group)
    for row in range(length):
        behind = row + 1 - sinks - window
        rest = (
            behind
            % group
        )
        n = max(0, (behind - rest) // group)
        if (
            n
            != 0
        ):
            assert behind >= group
        rows.append(
            [
                [0, n],
                [last, last + min(sinks, row + 1)],
                [last + min(row + 1, sinks + group * n), last + row + 1],
            ]
        )
    return torch.tensor(rows)
