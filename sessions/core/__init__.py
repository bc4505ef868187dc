"""The domain, free of Django and of I/O: what an update, an event and a log mean."""
