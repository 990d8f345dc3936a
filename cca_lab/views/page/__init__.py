"""The model in a page: one HTML file with weights and tokenizer that needs no server or network."""
