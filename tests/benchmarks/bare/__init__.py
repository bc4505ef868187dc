"""The yardstick: Django and ninja, one endpoint, one table, nothing else."""
