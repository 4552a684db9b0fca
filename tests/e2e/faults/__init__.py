"""What survives a kill: counts, not hopes. The figures are printed, and `make test-all` keeps them."""
