"""LoCoCo's memory: its convolution, what it keeps and what it costs."""
