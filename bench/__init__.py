"""Benchmarks: ``make bench``, or ``python -m bench --help`` for a part of them.

* ``dispatcher``  the standard job, ours against bare limits and peers
* ``growth``      claims at depth, and after a million jobs
* ``ingestion``   updates and jobs per second by fan-out; the capacity check
* ``latency``     Bot API answer to byte at the receiver, idle cost
* ``api``         ``POST /send``: added latency, rate, slow clients

Every contestant of a benchmark is measured in the same run, repeats interleaved; what
is quoted is the median, and what counts are the ratios. None of them is a test.
"""
