"""The model in a page: one HTML file with weights, tokenizer and attention, which needs no server and no network."""
