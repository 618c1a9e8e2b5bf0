"""The dispatcher: callbacks, retries, dead letters, purge."""
