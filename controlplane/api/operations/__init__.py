"""What the calls of the API have in common: how one is declared, its body, query and answer."""
