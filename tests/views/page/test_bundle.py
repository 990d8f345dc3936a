"""Modules are joined to one script that does what they do; what it could not join is refused."""

import subprocess

import pytest

from cca_lab.views.page.bundle import bundle
from cca_lab.views.page.write import MODULES
from tests.views.page.node import NODE, needs_node

FILES = {
    "a.js": 'import { twice as two } from "./sub/b.js";\nimport {\n  one,\n} from "./c.js";\nexport const name = "a";\n'
            "export function sum() { return two(one) + 0.5; }\n",
    "sub/b.js": 'import { one } from "../c.js";\nconst name = 2;\nexport async function later() { return one; }\n'
                "export function twice(x) { return name * x; }\nexport class Thing {}\n",
    "c.js": "export let one = 10;\nconst name = 3;\n/**\n * import words in a comment\n */\nexport {};\n",
}


@pytest.fixture
def folder(tmp_path):
    """A folder with three modules that use the same name for different things."""
    for name, source in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
    return tmp_path


@needs_node
def test_the_script_does_what_the_modules_do(folder):
    script = bundle(folder / "a.js") + '\nconsole.log(modules["a.js"].sum(), Object.keys(modules).join());'
    assert NODE is not None
    done = subprocess.run([NODE, "-e", script], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["20.5", "c.js,b.js,a.js"], done.stderr


@pytest.mark.parametrize("name, source, words", [
    ("c.js", 'import a from "./a.js";\n', "c.js: 'import a from \"./a.js\";' cannot be bundled, wanted"),
    ("c.js", "export default 1;\n", "c.js: 'export default 1;' cannot be bundled, wanted"),
    ("c.js", 'import { sum } from "./a.js";\n', "a.js: imports itself through c.js, wanted no circle"),
    ("c.js", 'import { x } from "./none.js";\n', "none.js: there is no .*none.js, wanted a module"),
    ("c.js", 'import { x } from "./d/b.js";\n', "modules: two files of .* have one name"),
])
def test_what_cannot_be_joined_is_refused(folder, name, source, words):
    (folder / "d").mkdir()
    (folder / "d" / "b.js").write_text("export const x = 1;\n")
    (folder / name).write_text(source)
    with pytest.raises(ValueError, match=f"^{words}"):
        bundle(folder / "a.js")


def test_every_module_of_the_page_is_in_the_script():
    script = bundle(MODULES / "app.js", MODULES / "engine.js")
    for path in MODULES.glob("*.js"):
        assert f'modules["{path.name}"] = ' in script
    assert "</script" not in script and "<!--" not in script, "it would end, or hide, the element that holds it"
