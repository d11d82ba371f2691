"""Real game servers, built from docs/examples/games and played over their own protocols."""
