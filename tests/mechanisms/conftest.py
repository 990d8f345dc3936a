"""The caches of the tests are small: they lie in buffers as large ones do, unless a test asks."""

import pytest

from cca_lab.mechanisms.caching import state


@pytest.fixture(autouse=True)
def buffers_of_any_size(monkeypatch):
    monkeypatch.setattr(state, "FEW", 0)
