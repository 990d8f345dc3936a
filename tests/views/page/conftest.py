"""What the page knows, made once from the shipped models."""

from typing import Any

import pytest

from cca_lab.views.page.data import page_data

SHIPPED = ("data/models/gpt2-mini", "data/models/gpt2-mini-cca")


@pytest.fixture(scope="session")
def data() -> dict[str, Any]:
    """The data of the page with the shipped models."""
    return page_data(SHIPPED)
