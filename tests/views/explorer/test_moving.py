"""The view that moves row by row is the explorer's, with a picture where no script runs."""

import re

import pytest
import torch

from cca_lab import CCA, DGA, StreamingLLM
from cca_lab.views.explorer.moving import moving


@pytest.mark.parametrize("mechanism", [CCA(group=2, window=2), DGA(group=2, gamma=0.25),
                                       StreamingLLM(sinks=2, recent=3)], ids=lambda one: one.name)
def test_a_row_shows_what_the_mechanism_represents(mechanism):
    generator = torch.Generator().manual_seed(3)
    q, k = torch.randn(2, 1, 1, 16, 8, dtype=torch.float64, generator=generator)
    state = moving(mechanism, 16, seed=3).explorer.state(rows=True)
    for row, shown in zip(mechanism.represented(q, k)[0, 0], state.rows, strict=True):
        read = {token for column in shown.seen for token in state.columns[column].tokens.tolist()}
        assert read == set(row.nonzero().flatten().tolist())


def test_the_html_holds_the_picture_and_the_view():
    bundle = moving(CCA(group=2, window=2), words=["a", "</script>", "c"])._repr_mimebundle_()
    assert bundle["text/html"].count("</script>") == 1
    (said,) = re.findall('<img alt="([^"]+)" src="data:image/png;base64,', bundle["text/html"])
    assert "cca, group 2" in said


@pytest.mark.parametrize("length", [0, 129])
def test_lengths_that_cannot_be_shown(length):
    with pytest.raises(ValueError, match="length"):
        moving(CCA(), length)
