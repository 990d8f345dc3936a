"""What one looks at: figures, the explorer of one head, the model in a page, and the tools of the notebooks."""
