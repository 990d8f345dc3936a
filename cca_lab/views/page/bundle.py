"""ES modules joined to one script, so that a page needs no server: each becomes a function that returns its exports."""

import re
from pathlib import Path

IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?function\*?|class|const|let) (\w+)", re.MULTILINE)
NOTHING = re.compile(r"^export \{\};\n?", re.MULTILINE)  # what makes a file without exports a module
LEFT = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)


def bundle(entry: Path, *others: Path) -> str:
    """Return modules and all that they import as one script, in which `modules[FILE NAME]` holds the exports of each.

    Args:
        entry, others: files of JavaScript, which import by relative path and export what they declare.

    Raises:
        ValueError: for a module that is missing, two of one file name, an import in a circle, or another form of them.
    """
    found: dict[Path, str] = {}
    for path in (entry, *others):
        _add(path.resolve(), found, ())
    names = [path.name for path in found]
    if len(set(names)) < len(names):
        raise ValueError(f"modules: two files of {', '.join(names)} have one name, wanted different ones; rename one")
    return "\n".join(['"use strict";', "const modules = {};", *found.values()])


def _add(path: Path, found: dict[Path, str], above: tuple[Path, ...]) -> None:
    """Add a module after those that it imports."""
    if path in found:
        return
    if path in above:
        raise ValueError(f"{path.name}: imports itself through {above[-1].name}, wanted no circle; move what both need")
    if not path.is_file():
        raise ValueError(f"{path.name}: there is no {path}, wanted a module; install the package again")
    source = path.read_text(encoding="utf-8")
    for match in IMPORT.finditer(source):
        _add((path.parent / match[2]).resolve(), found, (*above, path))
    found[path] = _wrapped(path.name, source)


def _wrapped(name: str, source: str) -> str:
    exports = [match[2] for match in EXPORT.finditer(source)]
    body = IMPORT.sub(lambda match: f'const {{{match[1].replace(" as ", ": ")}}} = '
                                    f'modules["{match[2].rsplit("/", 1)[-1]}"];', source)
    body = NOTHING.sub("", EXPORT.sub(r"\1 \2", body))
    if left := LEFT.search(body):
        raise ValueError(f"{name}: {left[0]!r} cannot be bundled, wanted `import {{ a }} from \"./file.js\";` and "
                         "`export function a`; write it so")
    return f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {", ".join(exports)} }};\n}})();'
