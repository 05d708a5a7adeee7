from typing import Any

from fepflow.json.values import is_small


def test_nodes_are_counted():
    for value, nodes in [
        (None, 1),
        ("text", 1),
        ([], 1),
        ([1, 2], 3),
        ({"a": 1}, 2),
        ({"a": [1, {"b": 2}], "c": []}, 6),
    ]:
        assert is_small(value, nodes)
        assert not is_small(value, nodes - 1)


def test_characters_are_counted_on_request():
    assert is_small(["a" * 50, {"key": "b" * 50}], 10)
    assert is_small(["a" * 50, {"key": "b" * 50}], 10, 103)
    assert not is_small(["a" * 50, {"key": "b" * 50}], 10, 102)
    assert not is_small({"name" * 50: 0}, 10, 100)


def test_a_value_that_contains_itself_is_large():
    endless: list[Any] = []
    endless.append(endless)
    assert not is_small(endless, 1_000)


def test_no_more_is_looked_at_than_needed():
    class Watched(list[int]):
        def __iter__(self):
            raise AssertionError("it was looked at")

    assert not is_small(Watched(range(1_000)), 100)
