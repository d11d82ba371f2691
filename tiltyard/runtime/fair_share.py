"""The share that one account may hold of something that all accounts use. Pure."""


def exceeds_share(held: float, asked: float, taken: float, total: float) -> bool:
    """Return whether an account that holds `held` of `total` exceeds its share with `asked` more.

    An account may hold at most as much as is free: half while it is alone, less while others hold
    some. So no account can take everything that is free, and one that holds nothing is refused
    only if nothing is left.
    """
    return held + asked > total - taken
