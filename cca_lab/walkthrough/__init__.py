"""`cca-lab walkthrough`: run the notebooks in order, and leave pages and a summary behind."""
