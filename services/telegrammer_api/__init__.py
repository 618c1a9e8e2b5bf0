"""The API process: a Falcon application behind a front of gunicorn and our own worker."""
