"""The reader's own module: what is kept, in whose name, and that a model attends with it."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from cca_lab import CCA, MECHANISMS, swap_attention
from cca_lab.course import library
from cca_lab.mechanisms.examine import examine

ROOT = str(Path(__file__).resolve().parents[2])
HALF = 0.5
LARGE, SIZES = math.inf, [2, 3]
TENSOR, PAIR = torch.ones(2), (1, torch.ones(2))


@pytest.fixture(autouse=True)
def registry(tmp_path, monkeypatch):
    """Work in a new folder, and forget the mechanisms that the module registers in the process."""
    monkeypatch.chdir(tmp_path)
    before = dict(MECHANISMS)
    yield
    MECHANISMS.clear()
    MECHANISMS.update(before)


def core_token(queries, keys, values, scale):
    """A core, with a helper that stands elsewhere."""
    weights = weights_of(keys, queries[-1], scale)
    return weights @ keys, weights @ values


def weights_of(keys, judge, scale):
    """Helpers that call each other, and an object that cannot be written as source."""
    if not len(keys):
        return again() @ TENSOR * PAIR[1] - LARGE * SIZES[0]
    return torch.softmax(2 * HALF * scale * (keys @ judge), dim=0)


def again():
    return weights_of


CELL = '''import itertools
from cca_lab import swap_attention

print("an experiment")
def core_token(queries, keys, values, scale):
    """A core."""
    weights = weights_of(keys, queries[-1], scale)  # mine
    return weights @ keys, weights @ values

your_turn("03.2", core_token)
'''


def test_what_passed_is_kept_with_its_helpers(tmp_path, monkeypatch):
    for name in (core_token, weights_of, again):
        monkeypatch.setattr(name, "__module__", "__main__")
    library.keep("03.2", core_token, CELL)
    text = (tmp_path / library.FILE).read_text()
    part = text[text.index("# ---- 03.2"):text.index("# ---- 03.3")]
    assert part.startswith("# ---- 03.2 core_token: yours\n")
    assert part.count("def weights_of") == 1 == part.count("def again")
    assert "TENSOR =" not in part and "PAIR =" not in part
    assert "HALF = 0.5" in part and "# mine" in part
    assert "import swap_attention" in part  # the head names it in its text alone
    assert 'LARGE = float("inf")' in part and "SIZES = [2, 3]" in part
    assert "experiment" not in part
    assert not any(word in text for word in ("Hint:", "Lost:", "SOLUTION", "your_turn"))
    assert "# ---- 03.3 row_reads: from the solutions\n" in text
    module = library.my_attention()
    q, k, v = torch.randn(3, 21, 16, dtype=torch.float64).unbind()
    wanted = CCA(group=3, window=5).loops(*(x[None, None] for x in (q, k, v)))[0, 0]
    assert torch.allclose(module.cca_loop(q, k, v, 3, 5, 0.25), wanted, rtol=0, atol=1e-12)


def test_an_edit_stays_and_a_copy_is_no_work_of_the_reader(tmp_path):
    library.my_attention()
    path = tmp_path / library.FILE
    path.write_text(path.read_text().replace("    rows = []", "    rows = []  # edited", 1)
                    .replace("03.6 cca_loop: from the solutions", "03.99 cca_loop: yours")
                    .replace("import math\n", "import math\nimport string\n", 1)
                    + "\nMINE = string.digits\n")
    library.keep("03.3", library.my_attention().row_reads,
                 "def row_reads(row, group, window):\n    return 0, row\n", copied=True)
    text = path.read_text()
    assert library.my_attention().MINE == "0123456789"
    assert "03.6 cca_loop: yours" in text  # whatever its number was
    assert "# edited" in text and "# ---- 03.3 row_reads: from the solutions\ndef row_reads(row, " \
        "group, window):\n    return 0, row\n" in text


def test_another_module_of_this_name_is_not_replaced():
    Path(library.FILE).write_text("MINE = 1\n")
    with pytest.raises(ValueError, match="it is another module; rename it"):
        library.my_attention()
    assert Path(library.FILE).read_text() == "MINE = 1\n"


def test_the_module_passes_the_bench_and_a_saved_model_finds_it(tmp_path):
    module = library.my_attention()
    examine(module.MyDGA(group=3, gamma=0.2))  # it declares that it looks ahead
    examine(module.MyH2O(heavy=2, recent=3))  # it has no columns, and no rungs but the loops
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=64, n_embd=32, n_layer=2,
                                       n_head=2, bos_token_id=1, eos_token_id=None)).eval()
    ids = torch.arange(40)[None] % 32
    wanted = swap_attention(model, CCA(group=3, window=5))(ids).logits
    mine = swap_attention(model, module.MyCCA(group=3, window=5))(ids).logits
    assert (mine - wanted).abs().max() < 1e-4
    model.save_pretrained(tmp_path / "model")
    script = ("import my_attention\n"
              "from transformers import GPT2LMHeadModel\n"
              "my_attention.test_my_cca(); my_attention.test_my_streaming()\n"
              "print(GPT2LMHeadModel.from_pretrained('model').config.cca_lab_attention)\n")
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True,
                          text=True, check=True, env=os.environ | {"PYTHONPATH": ROOT})
    assert "'name': 'my_cca'" in done.stdout


def test_the_card_says_what_passes_and_where_a_function_is_used_again(tmp_path, capsys):
    module = library.my_attention()
    path = tmp_path / library.FILE
    path.write_text(path.read_text().replace("window_table(len(q), self.sinks",
                                             "window_table(len(q), 1 + self.sinks"))
    library.card({"answers": "82 %"})
    said = " ".join(capsys.readouterr().out.split())
    assert "03.9 by_mask from the solutions MyCCA, MyDGA, MyStreaming" in said
    assert "14.2 two_losses from the solutions train, 14" in said
    assert "my CCA-Attention: passes 6 of the bench's 6 tests" in said
    assert "my StreamingLLM: passes 5 of the bench's 6 tests" in said and "answers: 82 %" in said
    used = library.used_again(module)
    assert "14" in used["train"] and "cca_loop" not in used["cca_loop"]
    assert all(used.values())  # nothing is written and not used
