"""The browser of the tests in this folder."""

from tests.views.explorer.browser import browser

__all__ = ["browser"]
