"""JSON texts are cut at the right places, and nowhere else."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telegrammer.telegram import slices

# Any JSON value, lone surrogates and huge numbers included.
TEXTS = st.text(st.characters(exclude_categories=[]), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=20
)
SPACE = st.text(" \t\r\n", max_size=3)


@st.composite
def spelled(draw: st.DrawFn, value: object) -> str:
    """Return one of the many JSON texts of a value."""
    ascii_only = draw(st.booleans())
    comma, colon = (draw(SPACE) + sign + draw(SPACE) for sign in ",:")
    return json.dumps(
        value,
        ensure_ascii=ascii_only,
        separators=(comma, colon),
        indent=draw(st.none() | st.integers(0, 2)),
    )


def elements(text: str) -> list[str]:
    return slices.elements(text, 100)


@given(st.data(), st.lists(VALUES, max_size=6))
def test_an_array_comes_apart_into_its_elements_own_texts(
    data: st.DataObject, values: list[object]
) -> None:
    texts = [data.draw(spelled(value)) for value in values]
    space = data.draw(SPACE)
    array = space + "[" + ",".join(space + text + space for text in texts) + space + "]" + space

    assert elements(array) == texts


@given(st.data(), st.dictionaries(TEXTS, VALUES, max_size=6))
def test_an_object_comes_apart_into_its_members_own_texts(
    data: st.DataObject, values: dict[str, object]
) -> None:
    texts = {name: data.draw(spelled(value)) for name, value in values.items()}
    space = data.draw(SPACE)
    members = [
        space + data.draw(spelled(name)) + space + ":" + space + text + space
        for name, text in texts.items()
    ]

    assert slices.members("{" + ",".join(members) + "}") == texts


@given(st.text('[]{}":,\\ 1au', max_size=30))
def test_what_is_cut_into_valid_parts_is_valid(text: str) -> None:
    """A text that is no JSON value is refused, by the cut or in one of its parts."""
    for cut in (elements, slices.members):
        try:
            parts = cut(text)
            values = [slices.load(part) for part in parts]
        except ValueError:
            continue
        whole = json.loads(text)
        assert values == (whole if isinstance(whole, list) else list(whole.values()))


@given(st.text() | st.text('[]{}":,\\ \n1.e-+', max_size=40))
def test_no_text_is_a_surprise(text: str) -> None:
    """Whatever comes, it is a value or a ``ValueError``."""
    for read in (elements, slices.members, slices.load):
        with contextlib.suppress(ValueError):
            read(text)


def test_the_last_of_duplicate_names_counts_however_it_is_spelled() -> None:
    assert slices.members(r'{"a":1,"\u0061":2}') == {"a": "2"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1]]",
        "[1] 2",
        '["]',
        r'["\"]',
        "\ufeff[]",
        "[[1]",
        "\xa0[]",
    ],
)
def test_a_broken_array_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not"):
        elements(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"a"',
        '{"a":',
        '{"a":1',
        '{"a":1,',
        '{"a":1,}',
        '{"a" 1}',
        "{a:1}",
        "{1:1}",
        "{[]:1}",
        '{"a":1}}',
        '{"a":1} 1',
        '{"a":1 "b":2}',
        '{"\x01":1}',
        r'{"\x":1}',
    ],
)
def test_a_broken_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not"):
        slices.members(text)


@pytest.mark.parametrize(
    "text", ["NaN", "-Infinity", "[Infinity]", "01", "1.", "'a'", '"\n"', "1 2"]
)
def test_what_python_reads_and_json_does_not_have_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^not valid JSON$"):
        slices.load(text)


def test_depth_does_not_matter_to_a_cut_and_is_an_error_to_a_reader() -> None:
    deep = "[" * 100_000 + "]" * 100_000

    assert elements(f"[{deep},1]") == [deep, "1"]
    assert slices.members(f'{{"a":{deep}}}') == {"a": deep}
    with pytest.raises(ValueError, match=r"^nested too deeply$"):
        slices.load(deep)


def test_an_unclosed_string_is_refused_in_linear_time() -> None:
    """A regular expression that tried again would take years."""
    text = '["' + "a\\\\" * 500_000
    with pytest.raises(ValueError, match=r"^not valid JSON$"):
        elements(text)


def test_a_number_of_5000_digits_is_no_integer_and_no_error() -> None:
    assert isinstance(slices.load("1" * 5000), float)
    assert isinstance(slices.load("-" + "1" * 5000), float)
    assert slices.load("-9223372036854775808") == -(2**63)


def test_more_elements_than_can_be_are_not_looked_at() -> None:
    assert slices.elements("[1,2,3]", 3) == ["1", "2", "3"]
    with pytest.raises(ValueError, match="too many"):
        slices.elements("[1,2,3,", 3)
