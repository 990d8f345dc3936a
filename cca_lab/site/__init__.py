"""`cca-lab site`: notebooks, ledger, course and documents as pages that need neither a server nor a network."""
