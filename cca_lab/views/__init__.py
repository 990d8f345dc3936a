"""What one looks at: figures, explorer, page and tools of the notebooks; walkthrough and site."""
