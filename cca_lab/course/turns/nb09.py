"""What the reader writes in notebook 09: operations a byte, pairs in blocks, Amdahl's law."""

from cca_lab.course.compare import need_equal
from cca_lab.course.tasks import Answer, CourseTask, Draw, Property, case


# 09.3: operations a byte
def intensity(answer: Answer, draw: Draw) -> None:
    """The last rows of a text, one to all; the first size tells the usual mistakes apart."""
    sizes = [(3, 7, 5, 2), (1, 1024, 64, 4), (1024, 1024, 64, 4)]
    sizes += [(draw.randint(2, 9), draw.randint(10, 40), draw.randint(3, 70), draw.choice((1, 4)))
              for _ in range(6)]
    for rows, length, head_dim, itemsize in sizes:
        pairs = sum(range(length - rows + 1, length + 1))
        operations, numbers = 4 * head_dim * pairs, 2 * head_dim * (rows + length)
        moved = itemsize * numbers
        causes = {
            "a pair counts 2 D operations; score and value are 2 D each, a multiplication and an "
            "addition a feature": operations / 2 / moved,
            "every row reads the whole text; row i of a causal text reads i tokens":
                4 * head_dim * rows * length / moved,
            "the rows are the first of the text; they are its last":
                4 * head_dim * rows * (rows + 1) / 2 / moved,
            "a row does not read its own token": 4 * head_dim * (pairs - rows) / moved,
            "numbers are counted; a number has `itemsize` bytes": operations / numbers,
            "the values are not read": operations / (moved - itemsize * head_dim * length),
            "the output is not written": operations / (moved - itemsize * head_dim * rows),
            "keys and values are those of the rows only; the rows read the whole text":
                operations / (4 * itemsize * head_dim * rows),
            "a query, a key, a value and an output are moved for every pair": 1 / itemsize,
            "it is bytes over operations, upside down": moved / operations,
        }
        with case(f"{rows} rows of {length} tokens, {head_dim} features of {itemsize} bytes"):
            need_equal(answer(rows, length, head_dim, itemsize), operations / moved,
                       "operations a byte", tolerance=1e-9, causes=causes)


# 09.4: what blocks compute
def _tiles(length: int, block: int) -> list[tuple[range, range]]:
    """Return the rows and columns of all tiles."""
    edges = [range(first, min(first + block, length)) for first in range(0, length, block)]
    return [(rows, columns) for rows in edges for columns in edges]


def _sees(row: int, column: int, window: int) -> bool:
    return row - window < column <= row


def computed(answer: Answer, draw: Draw) -> None:
    """Against going through all tiles, pair by pair."""
    sizes = [(4, 2, 2), (11, 4, 3), (10, 7, 4), (5, 9, 5), (6, 1, 4), (13, 13, 5)]
    sizes += draw.sizes(8, (14, 40), (2, 20), (2, 7))
    for length, window, block in sizes:
        tiles = _tiles(length, block)
        area = {(rows, columns): len(rows) * len(columns) for rows, columns in tiles}
        seen = {(rows, columns): sum(_sees(i, t, window) for i in rows for t in columns)
                for rows, columns in tiles}
        wanted = sum(area[tile] for tile in tiles if seen[tile])
        causes: dict[str, float] = {
            "only the visible pairs are counted; a tile is computed whole": sum(seen.values()),
            "only the tiles that are visible whole are computed":
                sum(area[tile] for tile in tiles if seen[tile] == area[tile]),
            "the window is forgotten: tiles far to the left of it are computed":
                sum(area[rows, columns] for rows, columns in tiles if columns[0] <= rows[-1]),
            "every tile is computed, those of the future too": length * length,
            "the last tiles count as whole blocks, though the text ends inside them":
                sum(block * block for tile in tiles if seen[tile]),
            "a block's last row decides which tiles are needed; its first row reaches further back":
                sum(area[rows, columns] for rows, columns in tiles
                    if any(_sees(rows[-1], t, window) for t in columns)),
            "the window begins one token early: a window of w holds the row's own token":
                sum(area[rows, columns] for rows, columns in tiles
                    if any(_sees(i, t, window + 1) for i in rows for t in columns)),
            "tiles are cut at the first column that the block reads; they begin at multiples of "
            "the block":
                sum(len(rows) * (rows[-1] + 1 - max(0, rows[0] - window + 1))
                    for rows, columns in tiles if columns[0] == 0),
        }
        with case(f"length {length}, window {window}, block {block}"):
            need_equal(answer(length, window, block), wanted, "computed pairs", causes=causes)


# 09.9: Amdahl's law, backwards
def share(answer: Answer, draw: Draw) -> None:
    """From the law forwards: a share and a gain, and the speed-up that they give."""
    known = [(0.5, 2.0), (0.9, 10.0), (0.25, 4.0)]
    drawn = [(draw.uniform(0.1, 0.95), draw.uniform(1.5, 40)) for _ in range(6)]
    for wanted, gain in known + drawn:
        whole = 1 / (1 - wanted + wanted / gain)
        causes = {
            "the speed-ups are divided; only time can be divided, so write the law for times":
                whole / gain,
            "the part becomes free; it still takes 1/part of its time": 1 - 1 / whole,
            "the speed-ups minus one are divided; the law is about times, which are 1 / speed-up":
                (whole - 1) / (gain - 1),
            "it is the share that stays as it was; the other share is asked for": 1 - wanted,
            "it is the part's share of the time afterwards, not before": wanted / gain * whole,
        }
        with case(f"whole {whole:.4g}, part {gain:.4g}"):
            need_equal(answer(whole, gain), wanted, "the share", tolerance=1e-6, causes=causes)


TURNS: tuple[CourseTask, ...] = (
    CourseTask("09.3", "operations_a_byte", "Operations for each byte", 6, 2, 5, (
        Property("equal to counting pairs and numbers", 1, intensity),)),
    CourseTask("09.4", "computed_pairs", "Pairs that blocks compute", 8, 3, 4, (
        Property("equal to going through all tiles", 1, computed),)),
    CourseTask("09.9", "needed_share", "The share that a speed-up needs", 5, 2, 5, (
        Property("Amdahl's law, backwards", 1, share),)),
)
