"""Speed, proved as ratios measured in one run. `make benchmark` runs all and prints a table."""
