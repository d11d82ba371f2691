"""How much of a host's slots one account may take. Pure."""


def exceeds_share(held: float, asked: float, taken: float, total: float) -> bool:
    """Return whether an account that holds `held` of `total` asks for more than its share.

    It may have as much as then is left for all others: half of everything while it is alone, less
    while others hold some. So what is free can never be taken by one account, and an account that
    holds nothing is refused only where nothing is left.
    """
    return held + asked > total - taken
