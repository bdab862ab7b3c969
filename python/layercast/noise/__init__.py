"""The noise that versions carry, for engines to add to their norms."""
