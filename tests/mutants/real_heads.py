"""Wrong measurements of attention in models; tests/studies/test_real_heads.py catches them."""


def at_the_bar(largest, lengths, rho):
    """Counts a weight equal to the bar as over it."""
    return (largest.double() * lengths * rho >= 1).double().mean(dim=0)


def bar_without_length(largest, lengths, rho):
    """Compares the weight with 1/rho of the longest row's even share."""
    return (largest.double() * lengths.max() * rho > 1).double().mean(dim=0)


def spread_over_unread_tokens(maps, lengths):
    """Takes the variance over all columns, future and underflown ones too, at a tiny weight."""
    rows = maps[..., lengths - 1, :].double()
    return rows.clamp_min(1e-30).log().var(dim=-1, correction=0)
