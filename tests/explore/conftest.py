"""The browser of the tests in this folder."""

from tests.explore.browser import browser

__all__ = ["browser"]
