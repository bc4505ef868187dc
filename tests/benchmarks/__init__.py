"""What posting costs. Run it with `python -m tests.benchmarks`."""
