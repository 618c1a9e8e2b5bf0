"""The peers: other queues that do the standard job, each as its users would set it up.

``services`` starts Redis and PostgreSQL, ``setup`` installs the peers beside the
repository, ``contestants`` says how each is filled and run; one script for each peer
runs in the peers' own environment.
"""
