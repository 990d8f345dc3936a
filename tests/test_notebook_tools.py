"""Running kernels in a notebook: the switch comes before Triton, and what is shown compiled is what is compiled."""

import subprocess
import sys

import pytest

from cca_lab.attention.fused import installed
from cca_lab.attention.kernels.compiled import DTYPES, Compiled, compiled, instructions_of
from cca_lab.paths import repository


def run(program: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=repository(), capture_output=True, text=True, check=False)


@pytest.mark.skipif(not installed(), reason="triton exists for Linux only")
def test_kernels_are_interpreted_after_the_call():
    done = run("from cca_lab.notebook_tools import interpret_kernels\n"
               "assert interpret_kernels() and interpret_kernels()\n"
               "import torch\n"
               "from cca_lab.mechanisms import full\n"
               "x = torch.randn(1, 1, 5, 4)\n"
               "error = (full.attention(x, x, x, backend='triton') - full.attention(x, x, x)).abs().max()\n"
               "assert error < 1e-6, error")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not installed(), reason="triton exists for Linux only")
def test_a_call_that_comes_too_late_says_so():
    done = run("import triton\nfrom cca_lab.notebook_tools import interpret_kernels\ninterpret_kernels()")
    assert done.returncode != 0 and "restart the notebook's kernel" in done.stderr


def test_without_triton_it_says_so_and_goes_on():
    done = run("from importlib import util\nfind = util.find_spec\n"
               "util.find_spec = lambda name, *rest: None if name == 'triton' else find(name, *rest)\n"
               "from cca_lab.notebook_tools import interpret_kernels\nassert interpret_kernels() is False")
    assert done.returncode == 0, done.stderr
    assert "Linux only" in done.stdout


PTX = """.version 8.7
.target sm_90a
.visible .entry kernel(
{
\t.reg .pred \t%p<3>;
\t.loc\t1 20 30                         // somewhere.py:20:30
$L__BB0_1:
\tsetp.lt.s32 \t%p1, %r1, 12;
\t// begin inline asm
\t@%p1 ld.global.b32 { %r5 }, [ %rd1 + 0 ];
\t@%p2 ld.global.b32 { %r6 }, [ %rd1 + 4 ];
\twgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, %rd4, %rd5, p, 1, 1, 0, 1;
\tret;
}
\t.file\t1 "somewhere.py"
"""


def test_instructions_are_told_from_everything_else():
    lines = instructions_of(PTX)
    assert [line.split()[0] for line in lines] == \
        ["setp.lt.s32", "@%p1", "@%p2", "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", "ret;"]
    assert "{%r1, ..., %r8}" in lines[3] and not any("somewhere" in line for line in lines)
    code = Compiled("kernel", "sm_90", "float32", 1, 0, 0, {}, tuple(lines))
    assert code.excerpt("ld.global", before=1) == "\n".join(lines[:2])
    assert code.excerpt("wgmma", after=1) == "\n".join(lines[3:]) and code.excerpt("mma.sync") == ""


def test_an_unknown_kernel_is_refused():
    with pytest.raises(ValueError, match="kernel: got 'flash', wanted one of causal_softmax"):
        compiled("flash")


@pytest.mark.skipif(not installed(), reason="triton exists for Linux only")
@pytest.mark.parametrize("kernel", DTYPES)
def test_each_kernel_that_notebooks_show_compiles_without_spills(kernel):
    code = compiled(kernel)
    assert code.kernel == kernel and code.registers > 0 and code.spilled == 0
    assert bool(code.matrix_instructions) == (kernel in ("online_softmax", "interval_forward"))
    assert code.excerpt("ld.global").startswith("@%p")  # a masked load
    assert "/" not in "".join(code.instructions).replace("//", "")
