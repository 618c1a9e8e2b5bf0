"""The poller: long-polls the Bot API and ingests each batch in one transaction."""
