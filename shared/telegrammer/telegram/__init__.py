"""The only room that speaks the Bot API.

* ``client``   its methods, and what its answers mean
* ``parsing``  what stands in its answers
* ``slices``   JSON texts cut into the texts of their parts
"""
