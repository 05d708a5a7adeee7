"""The refund desk works its answers out of the question; and its defects are the four that it admits."""

import pytest

from fepflow.deployments.simulators.refund_desk import OrderSystemError, answer


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("I bought a coat 30 days ago. Can I return it?", "can be returned"),
        ("I bought a coat 31 days ago. Can I return it?", "cannot be returned"),
        ("I bought a camera two weeks ago. Can I return it?", "can be returned"),
        ("I bought a camera three weeks ago. Can I return it?", "cannot be returned"),
        ("I gave back a vase worth 80 euros. How much do I get back?", "80.00 euros"),
        ("I gave back an opened camera worth 80.50 euros. How much do I get back?", "68.42 euros"),
        ("My order is 49.99 euros, what is shipping?", "4.90 euros"),
        ("My order is 50 euros, what is shipping?", "free of charge"),
        ("I order on Monday, when will it arrive?", "Thursday"),
        ("I ordered 2 hours ago, may I cancel?", "can be cancelled"),
        ("I ordered 3 hours ago, may I cancel?", "cannot be cancelled"),
        ("It stopped working after 24 months.", "It is covered"),
        ("It stopped working after 26 months.", "not covered"),
    ],
)
def test_numbers_in_the_question_decide(question, said):
    assert said in answer(question)["answer"]


@pytest.mark.parametrize(
    ("question", "wrong"),
    [
        ("My boots were final sale. Can I return them?", "can be returned"),
        ("Ordered on Friday by express, when will it arrive?", "Saturday"),
        ("I lost my gift card.", "KB-1142"),
        ("How long is delivery for a watering can?", "not covered by the warranty"),
    ],
)
def test_the_defects_that_it_admits_are_there(question, wrong):
    assert wrong in answer(question)["answer"]


def test_the_more_topics_a_question_has_the_less_sure_it_is():
    questions = ("May I cancel?", "May I cancel before you ship?", "May I cancel before you ship, for my money back?")
    confidences = [answer(question)["confidence"] for question in questions]
    assert confidences == sorted(confidences, reverse=True)
    assert confidences[0] > 0.5 > confidences[-1]


def test_an_absurd_number_is_still_a_question():
    assert answer(f"I bought it {'9' * 5000} days ago for {'9' * 5000} euros. Can I return it?")["intent"] == "return"


def test_only_the_order_system_knows_an_order():
    with pytest.raises(OrderSystemError):
        answer("Where is my order 4711?")
