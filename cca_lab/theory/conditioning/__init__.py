"""The condition number of the coding problem under grouping: DGA's Theorem 3."""
