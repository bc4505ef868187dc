"""Strict JSON refuses what a careless parser would change, and says where."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.core import strict_json
from sessions.core.reducer import same_json
from sessions.core.strict_json import HugeInteger, Shape, StrictJSONError

REFUSED = [
    ('{"a":1,"a":2}', "duplicate_key", 1, 8, "/a"),
    ('{"a":[1,\n {"b":2,"b":3}]}', "duplicate_key", 2, 9, "/a/1/b"),
    ('{"\\u0061":1,"a":2}', "duplicate_key", 1, 13, "/a"),
    ("NaN", "number", 1, 1, ""),
    ("[-Infinity]", "number", 1, 2, "/0"),
    ("[1, 1e999]", "number", 1, 5, "/1"),
    ("-1e400", "number", 1, 1, ""),
    ("[" * 65 + "]" * 65, "depth", 1, 65, None),
    ('{"a":' * 65 + "1" + "}" * 65, "depth", 1, None, None),
    ("[1] [2]", "trailing_data", 1, 5, ""),
    ("", "truncated", 1, 1, ""),
    ("[1,", "truncated", 1, 4, "/1"),
    ('{"a"', "syntax", 1, 5, "/a"),
    ('"a\x00b"', "string", 1, 3, ""),
    ('"a\nb"', "string", 1, 3, ""),
    ("'a'", "syntax", 1, 1, ""),
    ("[1,]", "syntax", 1, 4, "/1"),
    ("{,}", "syntax", 1, 2, ""),
    ("01", "trailing_data", 1, 2, ""),
    ("+1", "syntax", 1, 1, ""),
    (".5", "syntax", 1, 1, ""),
    ("1.", "trailing_data", 1, 2, ""),
    ("truE", "syntax", 1, 1, ""),
    ("\u00a01", "syntax", 1, 1, ""),
    ("[١]", "syntax", 1, 2, "/0"),
]


@pytest.mark.parametrize(("text", "rule", "line", "column", "path"), REFUSED)
def test_refused_with_its_place(text, rule, line, column, path):
    with pytest.raises(StrictJSONError) as error:
        strict_json.loads(text)
    assert error.value.rule == rule
    assert error.value.line == line
    assert column is None or error.value.column == column
    assert path is None or error.value.path.rstrip("/") == path


@pytest.mark.parametrize("body", [b'"\xff"', b'"\xc3"', b"\xff\xfe1\x00", b'"\xed\xa0\x80"'])
def test_bytes_that_are_no_utf8_are_refused(body):
    with pytest.raises(StrictJSONError) as error:
        strict_json.decode(body)
    assert error.value.rule == "utf8"


def test_a_byte_order_mark_is_refused():
    with pytest.raises(StrictJSONError) as error:
        strict_json.decode(b"\xef\xbb\xbf{}")
    assert error.value.rule == "byte_order_mark"


def test_nesting_of_sixty_four_is_taken():
    assert strict_json.loads("[" * 64 + "]" * 64)


def test_brackets_inside_text_are_no_nesting():
    text = json.dumps(["[" * 200 + '\\"{' * 100])
    assert strict_json.loads(text) == json.loads(text)


@pytest.mark.parametrize("digits", [1, 20, 4299, 4300, 5000, 200_000])
def test_integers_of_any_size_survive(digits):
    text = "-" + "7" * digits
    assert strict_json.dumps(strict_json.loads(text)) == text
    assert strict_json.dumps({"a": [strict_json.loads(text)]}) == f'{{"a":[{text}]}}'


def test_huge_integers_compare_by_their_digits():
    assert strict_json.loads("1" * 5000) == HugeInteger("1" * 5000)
    assert not same_json(strict_json.loads("1" * 5000), strict_json.loads("1" * 5001))


def test_a_decimal_becomes_the_nearest_double():
    assert strict_json.loads("0.1000000000000000055511151231257827") == 0.1
    assert strict_json.loads("123456789012345678901234567890.5") == 1.2345678901234568e29


def test_negative_zero_stays_negative():
    assert strict_json.dumps(strict_json.loads("-0.0")) == "-0.0"


def test_nul_and_lone_surrogates_go_through_as_escapes():
    text = '{"a\\u0000":"\\ud800x","b":"\\udfff"}'
    assert strict_json.dumps(strict_json.loads(text)) == text
    assert strict_json.dumps_compact(strict_json.loads(text)) == text


def test_visible_text_can_be_stored_anywhere():
    shown = strict_json.visible("a\x00b\ud800")
    assert shown == "a\\u0000b\\ud800"
    assert strict_json.storable(shown)
    assert not strict_json.storable("a\x00")
    assert not strict_json.storable("\udc00")


def test_parts_keep_their_text_as_received():
    text = ' {"operations" : [ ["set", "k" ,  1.10 ], {"op":"delete","key":"k"} ] , "id":"x"}'
    node = strict_json.read(text, Shape(members={"operations": Shape(item=Shape(members={}))}))
    part = node.parts["operations"]
    assert text[part.start : part.end] == '[ ["set", "k" ,  1.10 ], {"op":"delete","key":"k"} ]'
    value = part.parts[0].parts[2]
    assert text[value.start : value.end] == "1.10"
    assert node.value == json.loads(text)


@pytest.mark.parametrize(
    "text",
    ["[" + "1," * 1_000_000 + "1e999]", "[" + "[1,2]," * 300_000 + '{"a":1,"a":2}]',
     '{"a":[' + '"x",' * 500_000 + "NaN]}", "[" * 65 + "1," * 400_000],
    ids=["numbers", "lists", "texts", "deep"],
)  # fmt: skip
def test_a_huge_refused_document_is_explained_in_a_bounded_number_of_steps(text, monkeypatch):
    steps = []
    original = strict_json._Walker.next_part
    monkeypatch.setattr(
        strict_json._Walker, "next_part", lambda walker: (steps.append(1), original(walker))[1]
    )
    with pytest.raises(StrictJSONError) as error:
        strict_json.loads(text)
    assert error.value.column > 1
    assert len(steps) <= strict_json._MOST_STEPS + 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(JSON, st.booleans(), st.sampled_from([None, 1]))
def test_what_goes_out_comes_in_again(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert same_json(strict_json.loads(text), value)
    assert same_json(strict_json.loads(strict_json.dumps(value)), value)
    assert same_json(strict_json.loads(strict_json.dumps_compact(value)), value)


@given(JSON)
def test_a_shape_changes_no_value(value):
    text = json.dumps(value)
    shape = Shape(item=Shape(item=Shape(members={})), members={"a": Shape(members={})})
    assert same_json(strict_json.read(text, shape).value, value)


@given(st.text(alphabet='[]{},:"\\ \n0123456789.eE+-truefalsn\x00é', max_size=40))
def test_any_text_is_read_as_the_standard_library_reads_it_or_refused_with_a_place(text):
    try:
        value = strict_json.loads(text)
    except StrictJSONError as error:
        place = (error.line, error.column)
    else:
        assert same_json(value, json.loads(text))
        return
    assert min(place) >= 1


def test_the_interpreter_keeps_its_own_limit_on_digits():
    assert sys.get_int_max_str_digits() == 4300
