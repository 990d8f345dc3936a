"""Wrong answers to the notebooks' "your turn" cells."""
