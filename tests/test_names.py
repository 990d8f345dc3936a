"""The public surface: its page names all of it, its examples run, and a name loads no more."""

import inspect
import re
import subprocess
import sys

import pytest

import cca_lab
from cca_lab import files

PAGE = (files.repository() / "docs" / "use" / "names.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_names_everything_and_nothing_else():
    named = {name
             for cell in re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))
             for name in re.findall(r"^\w+", cell)}
    others = {"loops", "attention", "effective", "represented", "select", "causal_scope",
              "exact_when", "cache_entries", "generate", "help", "from"}
    assert named - others == set(cca_lab.__all__)


def test_every_name_is_there_and_listed():
    assert set(cca_lab.__all__) <= set(dir(cca_lab))
    for name in cca_lab.__all__:
        assert getattr(cca_lab, name) is not None
    with pytest.raises(AttributeError,
                       match="'cca_lab' has no attribute 'attend'; its public names are AShape"):
        cca_lab.attend  # noqa: B018


def test_the_examples_run():
    assert len(EXAMPLES) == 2
    names: dict = {}
    for example in EXAMPLES:
        exec(compile(example, "docs/use/names.md", "exec"), names)
    assert names["text"].shape == (1, 24)


def test_help_explains_every_option_of_a_mechanism():
    for mechanism in cca_lab.MECHANISMS.values():
        named = re.findall(r"^    ([\w, ]+):", inspect.getdoc(mechanism), re.MULTILINE)
        assert set(mechanism().option_names()) <= set(", ".join(named).split(", ")), mechanism


def test_a_mechanism_loads_neither_transformers_nor_the_compiler():
    program = ("import sys\nfrom cca_lab import CCA, interval_attention\n"
               "assert not {'transformers', 'torch._dynamo', 'triton'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", program], check=True)
