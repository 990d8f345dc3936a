"""Sources of cells that want points without an answer, by name; each answers a5.2 only."""

from tests.course.attacks import trap

HEAD = "def intervals(length, sinks, group, window):\n"
CHEATS = {entry.said["name"]: entry.text for entry in trap.corpus("cheats")}
