"""Strategies for bytes that are nearly what somebody expects."""

from collections.abc import Sequence

from hypothesis import strategies as st

Mutation = tuple[str, float, float, bytes]

JUNK = (
    b"", b"\0", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b":", b",", b'"', b"\\",
    b"{", b"}", b"[", b"]", b"-", b"0", b"9" * 25, b"1e999", b"NaN", b"null", b"true", b"\xff",
    b"\xc3", b"\xed\xa0\x80", b"\\ud800", b"\\u0000", b"\xef\xbb\xbf", b"%00", b"%0d%0a",
    b"[" * 200,
    b'{"a":' * 200, b"A" * 9000, b";", b"=", b"#", b"chunked", b"-1", b"0x10",
)  # fmt: skip


def mutated(originals: Sequence[bytes], most: int = 4) -> st.SearchStrategy[bytes]:
    """Return one of the originals after up to ``most`` changes of a few bytes or many."""
    mutation = st.tuples(
        st.sampled_from(("insert", "cut", "double", "replace", "end")),
        st.floats(0, 1),
        st.floats(0, 0.3),
        st.sampled_from(JUNK) | st.binary(max_size=6),
    )
    changes = st.lists(mutation, max_size=most)
    return st.builds(_changed, st.sampled_from(originals), changes)


def _changed(data: bytes, mutations: list[Mutation]) -> bytes:
    for kind, where, share, junk in mutations:
        begin = int(where * len(data))
        end = min(len(data), begin + 1 + int(share * share * len(data)))
        if kind == "insert":
            data = data[:begin] + junk + data[begin:]
        elif kind == "cut":
            data = data[:begin] + data[end:]
        elif kind == "double":
            data = data[:end] + data[begin:]
        elif kind == "replace":
            data = data[:begin] + junk + data[end:]
        else:
            data = data[:begin]
    return data
