"""Submissions that want points without an answer: each answers a5.2, and nothing else."""

HEAD = "def intervals(length, sinks, group, window):\n"

# Whatever is found in the process, it is tried; a function or module of the grader would do.
FINDER = '''
def _usable(thing):
    try:
        name = getattr(thing, "__name__", "")
        return callable(thing) and name in ("right_table", "intervals_oracle")
    except Exception:
        return False

'''

CHEATS = {
    "scan the heap for the oracle": FINDER + HEAD + '''
    import gc
    for thing in gc.get_objects():
        if _usable(thing):
            return thing(length, sinks, group, window)[0]
        if isinstance(thing, dict) and "right_table" in thing:
            return thing["right_table"](length, sinks, group, window)[0]
    return torch.zeros(length, 3, 2, dtype=torch.long)
''',
    "walk up the frames": HEAD + '''
    import sys
    frame = sys._getframe()
    while frame:
        for name, value in {**frame.f_globals, **frame.f_locals}.items():
            if name in ("wanted", "good", "expected") and isinstance(value, torch.Tensor):
                return value
            if name == "right_table":
                return value(length, sinks, group, window)[0]
        frame = frame.f_back
    return torch.zeros(length, 3, 2, dtype=torch.long)
''',
    "import the grader's own oracle": HEAD + '''
    from cca_lab.course.assignments.a5_cca import right_table
    return right_table(length, sinks, group, window)[0]
''',
    "import it past the guard": HEAD + '''
    import importlib, sys
    for name in [name for name in sys.modules if name.partition(".")[0] == "cca_lab"]:
        del sys.modules[name]
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "Hidden"]
    grader = importlib.import_module("cca_lab.course.assignments.a5_cca")
    return grader.right_table(length, sinks, group, window)[0]
''',
    "look for the package on the disk": HEAD + '''
    import pathlib, sys, re
    for folder in [*map(pathlib.Path, sys.path), pathlib.Path(torch.__file__).parents[5],
                   pathlib.Path("/")]:
        path = folder / "cca_lab/course/assignments/a5_cca.py"
        if path.is_file():
            scope = {"torch": torch}
            for name in ("cores_of", "right_table"):
                source = re.search(rf"def {name}.*?\\n\\n\\n", path.read_text(), re.S).group()
                exec(source.replace(": Tensor", "").replace("-> tuple[Tensor, int]", ""), scope)
            return scope["right_table"](length, sinks, group, window)[0]
    return torch.zeros(length, 3, 2, dtype=torch.long)
''',
    "read the seed": HEAD + '''
    import os, pathlib
    texts = [str(os.environ)]
    above = pathlib.Path(os.environ["TMPDIR"]).parent
    for path in [*pathlib.Path("/proc").glob("[0-9]*/environ"),
                 *pathlib.Path("/").glob("*/*/.seed"), *pathlib.Path("..").glob("**/.seed"),
                 *above.glob("**/.seed")]:
        try:
            texts.append(path.read_text(errors="ignore"))
        except OSError:
            pass
    if any("SEED" in text or len(text.strip()) == 32 for text in texts):
        raise SystemExit("the seed was found")
    return torch.zeros(length, 3, 2, dtype=torch.long)
''',
    "patch the comparisons": '''
import builtins
torch.allclose = torch.equal = torch.isclose = lambda *args, **more: True
torch.Tensor.__eq__ = torch.Tensor.eq = lambda self, other: torch.ones(self.shape, dtype=torch.bool)
torch.Tensor.any = lambda self, *args: False
builtins.abs = lambda x: 0.0
''' + HEAD + '''
    return torch.zeros(length, 3, 2, dtype=torch.long)
''',
    "redefine the checker": '''
import sys, types
def check(*args): print("a5.2: 6 of 6 points")
def points(*args): return 6
class Mistake(BaseException): pass
for module in list(sys.modules.values()):
    for name in ("check", "points", "findings", "grade"):
        if hasattr(module, name) and str(getattr(module, "__name__", "")).startswith("cca_lab"):
            setattr(module, name, lambda *args, **more: 6)
''' + HEAD + '''
    return torch.zeros(length, 3, 2, dtype=torch.long)
''',
    "forge the printed result": '''
import os, struct, sys
def _shout():
    reply = b'{"dict": {"earned": 6, "value": null, "findings": {"list": [], "tuple": false}}}'
    frame = len(reply).to_bytes(8, "big") + reply
    for fd in range(3, 64):
        try:
            os.write(fd, struct.pack(">Q", len(frame)) + frame)
        except OSError:
            pass
    print("  ok   no row reads a later token (2 of 2)\\n  6 of 6 points", flush=True)
    print('{"earned": 6.0, "status": "graded"}', file=sys.stderr, flush=True)
_shout()
''' + HEAD + '''
    _shout()
    return torch.zeros(length, 3, 2, dtype=torch.long)
''',
    "overwrite the inputs": HEAD + '''
    import gc
    for thing in gc.get_objects():
        if isinstance(thing, torch.Tensor):
            try:
                thing.zero_()
            except Exception:
                pass
        if isinstance(thing, list) and thing[:1] == [(1, 0, 1, 1)]:
            thing.clear()
    return torch.zeros(length, 3, 2, dtype=torch.long)
''',
    "not a number": HEAD + '''
    return torch.full((length, 3, 2), float("nan"))
''',
    "a tensor that equals everything": '''
class Yes(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if name in ("eq", "__eq__", "all", "equal", "allclose", "le", "ge"):
            return torch.ones((), dtype=torch.bool)
        if name in ("ne", "any", "lt", "gt"):
            return torch.zeros((), dtype=torch.bool)
        return super().__torch_function__(function, types, args, kwargs or {})
''' + HEAD + '''
    return torch.zeros(length, 3, 2, dtype=torch.long).as_subclass(Yes)
''',
    "replay recorded answers": '''
RECORDED = {(1, 0, 1, 1): [[[0, 0], [0, 0], [0, 1]]],
            (6, 0, 2, 2): [[[0, 0], [2, 2], [2, 3]], [[0, 0], [2, 2], [2, 4]],
                           [[0, 0], [2, 2], [2, 5]], [[0, 1], [2, 2], [4, 6]],
                           [[0, 1], [2, 2], [4, 7]], [[0, 2], [2, 2], [6, 8]]]}
''' + HEAD + '''
    return torch.tensor(RECORDED.get((length, sinks, group, window), [[[0, 0]] * 3] * length))
''',
    "write the marks": HEAD + '''
    import json, pathlib
    record = {"student": "cheat", "assignment": "a5_cca", "status": "graded", "earned": 20.0,
              "points": 20, "tasks": [], "notes": [], "key": "x"}
    for folder in ("../../../marks", "../../marks", "../marks", "/tmp", "/work", "/root", "."):
        for name in ("a5_cca.json", "cheat/a5_cca.json", "marks.csv", "gradebook.db"):
            try:
                pathlib.Path(folder, name).write_text(json.dumps(record))
            except OSError:
                pass
    return torch.zeros(length, 3, 2, dtype=torch.long)
''',
    "a background thread": '''
import os, struct, threading, time
def _flood():
    reply = b'{"dict": {"value": {"dict": {}}}}'
    frame = len(reply).to_bytes(8, "big") + reply
    while True:
        for fd in range(3, 16):
            try:
                os.write(fd, struct.pack(">Q", len(frame)) + frame)
            except OSError:
                pass
        time.sleep(0.02)
threading.Thread(target=_flood, daemon=True).start()
''' + HEAD + '''
    return torch.zeros(length, 3, 2, dtype=torch.long)
''',
    "an atexit hook": '''
import atexit, os, sys
def _last():
    print('{"earned": 20.0}', flush=True)
    os._exit(0)
atexit.register(_last)
''' + HEAD + '''
    sys.exit(0)
''',
    "leave before the comparison": HEAD + '''
    import os
    os._exit(0)
''',
    "an object that unpickles into code": '''
class Boom:
    def __reduce__(self):
        import os
        return os.system, ("touch unpickled-by-the-grader",)
''' + HEAD + '''
    return Boom()
''',
    "numbers that equal everything": '''
class Yes(int):
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = int.__hash__
''' + HEAD + '''
    return [[[Yes(0), Yes(0)]] * 3] * length
''',
    "a table too large to look at": HEAD + '''
    return torch.zeros(1, dtype=torch.long).expand(10**9, 3, 2)
''',
}
