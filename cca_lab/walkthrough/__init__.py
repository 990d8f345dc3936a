"""`cca-lab walkthrough`: run the notebooks in order, and write pages and a summary."""

from cca_lab.extras import need

need("jinja2", "jupyter_client", "latex2mathml", "nbclient", "nbconvert", "nbformat", "pygments")
