"""What models read: the corpus, the questions, and the n-gram baseline."""
