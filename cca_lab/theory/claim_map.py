"""The map of the claims: what uses what, on what evidence, and what falls with what is false.

The edges are data, with their sources, in `cca_lab/theory/claims/uses.toml`.
"""

import hashlib
import io
import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx  # type: ignore[import-untyped]

from cca_lab.extras import need
from cca_lab.theory.claim import Strength, Verdict

DATA = tomllib.loads(
    Path(__file__).with_name("claims").joinpath("uses.toml").read_text(encoding="utf-8"))
WORDS, ALONE = DATA.pop("words"), DATA.pop("alone")  # what is left: panel -> user -> used -> source
LAYERS = {  # what one must trust beside our reading; docs/claims/trust.md says more of each
    "C": "Coq", "Z": "z3", "B": "ball arithmetic", "E": "exact cases",
    "N": "printed numbers, copied by hand", "W": "a proof in words and a finite check",
    "M": "random draws", "†": "text extracted from a PDF"}
BEHIND = {Strength.SMT: "Z", Strength.ENCLOSURE: "B", Strength.COUNTEREXAMPLE: "E",
          Strength.ARITHMETIC: "N", Strength.PROOF: "W", Strength.MONTE_CARLO: "M"}
PROGRAMS = {"coq": "C", "z3": "Z"}
FILLS = dict(zip("CZBENWM", ("#b7d7f0", "#bfe5d2", "#d9e8a8", "#f7e9a8", "#eeeeee", "#ffffff",
                             "#f3cfe3"), strict=True))
MARKS = {Verdict.HOLDS: "", Verdict.FALSE: "✗ ", Verdict.INCONSISTENT: "✗ ",
         Verdict.HOLDS_IF: "? ", Verdict.DEPENDS: "? "}


def graph(records: Sequence[Mapping[str, Any]]) -> nx.DiGraph:
    """Return the map of claims: an edge from each statement to each that it uses, with its source.

    Edges of claims that are not among the records are left out. A node has what it says, its
    verdict (None for words and the lab's programs), and the letter of its evidence, Coq's where a
    theorem of proofs/ states it.

    Raises:
        ValueError: if arrows lead round in a circle.
    """
    map_ = nx.DiGraph()
    for record in records:
        map_.add_node(record["id"], says=record["reading"], verdict=Verdict(record["verdict"]),
                      letter=BEHIND[Strength(record["strength"])])
        if record["repair"]:
            map_.add_node(f"{record['id']}'", says=record["repair"], verdict=Verdict.HOLDS,
                          letter=BEHIND[Strength(record["repaired"])])
    for name, says in WORDS.items():
        map_.add_node(name, says=says, verdict=None, letter="")
    for name in sorted(named()):
        program, _, line = name.partition(":")
        if program in PROGRAMS:
            map_.add_node(name, says=line, verdict=Verdict.HOLDS, letter=PROGRAMS[program])
    map_.add_edges_from((user, used, {"source": source}) for users in DATA.values()
                        for user, each in users.items() for used, source in each.items()
                        if user in map_ and used in map_)
    if not nx.is_directed_acyclic_graph(map_):
        raise ValueError(f"uses.toml: {nx.find_cycle(map_)} is a circle; nothing rests on itself")
    for name in filter(in_coq, list(map_)):
        map_.nodes[name]["letter"] = "C"
    return map_


def named() -> set[str]:
    """Return all that the data name as using something, or as used."""
    return {name for users in DATA.values() for user, used in users.items()
            for name in (user, *used)}


def uses(name: str) -> dict[str, str]:
    """Return what a statement uses, each with the place where one sees it."""
    return {used: source for users in DATA.values()
            for used, source in users.get(name, {}).items()}


def in_coq(name: str) -> bool:
    """Return whether a theorem of proofs/ makes a statement, not only a part of it."""
    return any(used.startswith("coq:") and source.startswith("the same statement")
               for used, source in uses(name).items())


def fall(map_: nx.DiGraph, lost: str) -> dict[str, list[str]]:
    """Return what loses its argument with a statement, in three lists of ids.

    "falls": it has no other; "keeps": the ledger has evidence of its own; "again": the repaired
    statement carries it, since it uses that too. Only what falls takes others with it.
    """
    found: dict[str, list[str]] = {"falls": [], "keeps": [], "again": []}
    left = [lost]
    while left:
        used = left.pop(0)
        for user in sorted(map_.predecessors(used)):
            kind = ("again" if map_.has_edge(user, f"{used}'") else
                    "keeps" if map_.nodes[user]["verdict"] is Verdict.HOLDS else "falls")
            if user not in found[kind]:
                found[kind].append(user)
                left += [user] if kind == "falls" else []
    return found


def trusted(record: Mapping[str, Any]) -> tuple[str, str]:
    """Return the letters of `LAYERS` behind a claim's verdict, and behind its repair."""
    verdict, repair = (
        "C" * in_coq(name) + BEHIND[Strength(record[kind])] if record[kind] else ""
        for kind, name in (("strength", record["id"]), ("repaired", f"{record['id']}'")))
    return verdict + "†" * record["formula"], repair


def digest(map_: nx.DiGraph) -> str:
    """Return a digest of all that a picture shows."""
    shown = [DATA, sorted((name, *_style(map_, name)) for name in map_)]
    return hashlib.sha256(repr(shown).encode()).hexdigest()[:16]


def picture(map_: nx.DiGraph) -> str:
    """Return the map as SVG, a panel for each table of the data; boxes link to the claims' pages.

    Raises:
        ModuleNotFoundError: without matplotlib.
    """
    need("matplotlib")
    import matplotlib
    from matplotlib.figure import Figure

    panels = {title: map_.edge_subgraph([(user, name) for user, used in users.items()
                                         for name in used]) for title, users in DATA.items()}
    panels = {title: panel for title, panel in panels.items() if panel}
    places = [layout(panel) for panel in panels.values()]
    heights = [2 + max(y for _, y in place.values()) for place in places]
    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "map", "font.size": 8,
                                "font.sans-serif": ["DejaVu Sans"]}):
        figure = Figure(figsize=(12, 0.28 * sum(heights)), layout="tight")
        axes = figure.subplots(len(panels), height_ratios=heights, squeeze=False)[:, 0]
        boxes: dict[Any, Any] = {}  # by title and name
        for axis, title, place in zip(axes, panels, places, strict=True):
            width, height = (max(sizes) for sizes in zip(*place.values(), strict=True))
            axis.set(xlim=(-0.4, width + 0.4), ylim=(height + 0.7, -0.7))
            axis.set_title(title, loc="left", fontweight="bold")
            axis.axis("off")
            for name, at in place.items():
                label, box = _style(map_, name)
                boxes[title, name] = text = axis.text(*at, label, ha="center", va="center",
                                                      bbox=box, gid=f"node-{name}")
                if map_.nodes[name]["verdict"] and ":" not in name:
                    text.set_url(f"{name.removesuffix(chr(39))}.html")
        figure.draw_without_rendering()  # arrows end at boxes, which have no size before
        for axis, (title, panel), place in zip(axes, panels.items(), places, strict=True):
            for user, used in sorted(panel.edges):
                axis.annotate("", place[used], place[user], zorder=0, arrowprops={
                    "arrowstyle": "->", "color": "0.35", "linewidth": 0.7,
                    "patchA": boxes[title, user].get_bbox_patch(),
                    "patchB": boxes[title, used].get_bbox_patch()})
        figure.savefig(out, format="svg", metadata={"Date": None, "Description": digest(map_)})
    return out.getvalue()


def _style(map_: nx.DiGraph, name: str) -> tuple[str, dict[str, Any]]:
    """Return a node's label and box: line and shape say the verdict, the letter its evidence."""
    node = map_.nodes[name]
    mark = MARKS.get(node["verdict"], "")
    shape = ("ellipse" if node["verdict"] is None else
             "square" if ":" in name or mark == "✗ " else "round")
    label = f"{mark}{name}" + (f" [{node['letter']}]" if node["letter"] else "")
    return label, {"boxstyle": f"{shape},pad=0.2", "facecolor": FILLS.get(node["letter"], "white"),
                   "edgecolor": "black", "linestyle": "--" if mark else "-",
                   "linewidth": 1.4 if mark == "✗ " else 0.7}


def layout(panel: nx.DiGraph) -> dict[str, tuple[float, float]]:
    """Return places: what uses others to the left of them, in an order with few crossings."""
    layers = [sorted(layer) for layer in nx.topological_generations(panel)]
    place = {name: (float(x), float(y)) for x, layer in enumerate(layers)
             for y, name in enumerate(layer)}

    def middle(name: str, near: Any) -> float:
        rows = sorted(place[other][1] for other in near(name))
        return sum(rows) / len(rows) if rows else place[name][1]

    tallest = max(map(len, layers))
    for near in (panel.predecessors, panel.successors) * 4:
        for x, layer in enumerate(layers):
            layer.sort(key=partial(middle, near=near))
            gap = tallest / len(layer)
            place |= {name: (float(x), gap * (y + 0.5) - 0.5) for y, name in enumerate(layer)}
    return place
