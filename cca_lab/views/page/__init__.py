"""The model in a page.

One HTML file with weights, tokenizer and attention, which needs no server and no network.
"""
