import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.checks.engine import evaluate
from fepflow.checks.semantic_similarity import _SIMILARITIES, SemanticSimilarityCheck
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import Output, TestCase

EMBEDDINGS = {
    "east": [1.0, 0.0],
    "north": [0.0, 1.0],
    "north-east": [1.0, 1.0],
    "west": [-1.0, 0.0],
    "far east": [5, 0],
    "3d": [1.0, 0.0, 0.0],
    "zero": [0.0, 0.0],
    "nothing": [],
    "nan": [math.nan, 0.0],
    "huge": [1e308, 1e308],
    "text": "abc",
    "words": ["a", "b"],
    "number": 5,
}


async def embed(text):
    return EMBEDDINGS[text]


def similar(text, reference="east", function=embed, **more):
    check = SemanticSimilarityCheck(text="$.output.value", reference=reference, embedding_function=function, **more)
    return evaluate([TestCase(id="a", input="?")], [Output(value=text)], [check]).results[0].check_results[0]


def test_the_score_is_clamped_to_0_to_1_and_the_raw_one_reported():
    for text, metric, score, raw in [
        ("east", "cosine", 1.0, 1.0),
        ("far east", "cosine", 1.0, 1.0),
        ("north", "cosine", 0.0, 0.0),
        ("north-east", "cosine", math.sqrt(0.5), math.sqrt(0.5)),
        ("west", "cosine", 0.0, -1.0),
        ("far east", "dot", 1.0, 5.0),
        ("west", "dot", 0.0, -1.0),
        ("east", "euclidean", 1.0, 1.0),
        ("west", "euclidean", 1 / 3, 1 / 3),
        ("huge", "cosine", math.sqrt(0.5), math.sqrt(0.5)),
    ]:
        results = similar(text, similarity_metric=metric).results
        assert results["response"] == {"score": pytest.approx(score)}
        assert results["metadata"] == {"similarity_metric": metric, "raw_score": pytest.approx(raw), "dimensions": 2}


def test_it_passes_or_fails_only_with_a_threshold():
    for text, threshold, passes in [
        ("north-east", {"min_value": 0.7}, True),
        ("north-east", {"min_value": 0.8}, False),
        ("east", {"min_value": 1.0}, True),
        ("east", {"min_value": 1.0, "min_inclusive": False}, False),
        ("east", {"max_value": 1.0, "max_inclusive": False}, False),
        ("north-east", {"min_value": 0.5, "max_value": 0.9}, True),
        ("north-east", {"min_value": 0.8, "negate": True}, True),
        ("west", {"max_value": 0}, True),
    ]:
        assert similar(text, threshold=threshold).results["response"]["passed"] is passes
        assert "passed" not in similar(text).results["response"]


def test_an_invalid_threshold_is_refused(refused):
    for threshold, why in [
        ({}, "give min_value, max_value, or both"),
        ({"min_value": 2}, "must be at most 1"),
        ({"min_value": -0.5}, "must be at least 0"),
        ({"min_value": "high"}, "must be a number"),
        ({"minimum": 0.5, "min_value": 0.5}, "minimum is not known here"),
        (0.8, "threshold: must be a mapping"),
    ]:
        message = refused("semantic_similarity", text="a", reference="b", threshold=threshold, embedding_function=embed)
        assert why in message


def test_a_bound_may_be_a_path_in_both_forms():
    threshold = {"min_value": "$.output.metadata.least"}
    typed = SemanticSimilarityCheck(text="east", reference="east", threshold=threshold, embedding_function=embed)
    for check in (typed, typed.to_check()):
        output = Output(value="", metadata={"least": 0.5})
        result = evaluate([TestCase(id="a", input="?")], [output], [check]).results[0].check_results[0]
        assert result.results["response"] == {"score": 1.0, "passed": True}
        assert result.resolved_arguments["threshold"] == {"value": {"min_value": 0.5}}


def test_an_invalid_embedding_is_an_error_and_not_a_score_of_0():
    for text, why in [
        ("3d", "3 and 2 dimensions"),
        ("zero", "no direction"),
        ("nothing", "at least one"),
        ("nan", "finite numbers"),
        ("text", "a list of numbers"),
        ("words", "a list of numbers"),
        ("number", "a list of numbers"),
    ]:
        result = similar(text)
        assert (result.results, result.error.type) == ({}, "validation_error")
        assert why in result.error.message


def test_numbers_that_overflow_are_an_error():
    assert "too large" in similar("huge", "huge", similarity_metric="dot").error.message


def test_a_function_that_is_not_async_will_do():
    assert similar("east", function=EMBEDDINGS.__getitem__).results["response"]["score"] == 1.0


@pytest.mark.parametrize("metric", ["manhattan", "", None, 5])
def test_an_unknown_metric_is_refused_with_the_known_ones(refused, metric):
    message = refused(
        "semantic_similarity", text="a", reference="b", similarity_metric=metric, embedding_function=embed
    )
    assert "must be one of 'cosine', 'dot' or 'euclidean'" in message


@pytest.mark.parametrize("text", [None, 5, ["east"]])
def test_a_value_that_is_not_a_text_is_refused(text):
    assert "text: must be a text" in similar(text).error.message


def test_without_a_function_or_model_the_error_says_that_one_is_needed():
    check = Check(type="semantic_similarity", arguments={"text": "a", "reference": "b"})
    result = evaluate([TestCase(id="a", input="?")], [Output(value="")], [check]).results[0].check_results[0]
    assert result.error.type == "validation_error"
    assert "semantic_similarity needs a model: name one in model_config" in result.error.message


numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda number: round(number, 3))
vectors = st.lists(numbers, min_size=3, max_size=3).filter(lambda vector: any(vector))


@given(vectors, vectors, st.floats(0.01, 100))
def test_the_cosine_is_that_of_the_angle(left, right, factor):
    cosine = _SIMILARITIES["cosine"]
    assert cosine(left, left) == 1.0
    assert -1.000001 <= cosine(left, right) <= 1.000001
    assert cosine(left, right) == pytest.approx(cosine(right, [number * factor for number in left]), abs=1e-9)
