"""What models read: the corpus and the questions."""
