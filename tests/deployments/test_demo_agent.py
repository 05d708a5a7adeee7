"""The demo agent is what it says that it is: a stand-in, with defects and faults, and the same story each time."""

import signal
import subprocess
import sys

import httpx
import pytest

from fepflow.deployments.simulators.demo_agent import FaultSchedule

ORDER = "Can you tell me the status of order 48213, please?"
CALM = "How fast is express shipping?"


def test_it_says_that_it_is_a_stand_in(agent):
    about = httpx.get(agent.address, timeout=60).json()
    assert about["stand_in"] is True
    assert "no language model" in about["notice"]


def test_every_response_says_that_it_is_simulated(story):
    answers = [told.reply for told in story if "answer" in told.reply]
    assert {answer["metadata"]["stand_in"] for answer in answers} == {True}


def test_an_answer_has_its_intent_confidence_and_usage(agent):
    told = agent.ask("My basket is at 62 euros. What do I have to add for shipping?")
    assert told.reply.keys() == {"answer", "intent", "confidence", "usage", "metadata"}
    assert "free of charge" in told.reply["answer"]
    assert told.reply["intent"] == "shipping"
    assert told.reply["confidence"] > 0.9
    assert told.reply["usage"]["total_tokens"] > 12


def test_unknown_questions_are_handed_over(agent):
    reply = agent.ask("Who wrote the opera about the flying Dutchman?").reply
    assert reply["intent"] == "other"
    assert reply["confidence"] < 0.5
    assert "colleague" in reply["answer"]


def test_a_repeated_request_gets_the_same_response(agent, cases, story):
    assert agent.ask_all([case["input"] for case in cases]) == story


def test_another_process_with_the_same_seed_gives_the_same_responses(start_agent, cases, story):
    with start_agent(7) as other:
        assert other.ask_all([case["input"] for case in cases]) == story


def test_another_seed_has_other_faults(cases):
    questions = [case["input"] for case in cases]
    assert [FaultSchedule(7).fault(text, 1) for text in questions] != [
        FaultSchedule(8).fault(text, 1) for text in questions
    ]


def test_what_fails_at_first_answers_on_the_second_try(story):
    troubled = [told.tries for told in story if len(told.tries) > 1 and told.tries[-1] == 200]
    assert set(troubled) == {(503, 200), ("dropped", 200)}


def test_the_story_has_every_kind_of_fault(cases):
    faults = [FaultSchedule(7).fault(case["input"], 1) for case in cases]
    assert {"unavailable", "dropped", "slow", None} == set(faults)
    assert faults.count(None) > len(faults) * 0.8


def test_a_slow_answer_is_slower_than_any_other(cases):
    weather = FaultSchedule(7)
    slow = {weather.seconds(case["input"], 1) for case in cases if weather.fault(case["input"], 1) == "slow"}
    others = [weather.seconds(case["input"], 2) for case in cases]
    assert slow == {1.5}
    assert 0.1 <= min(others) < max(others) < 0.4


def test_a_question_with_an_order_number_is_never_answered(agent):
    told = agent.ask(ORDER, tries=5)
    assert told.tries == (503,) * 5
    assert "order system" in told.reply["error"]


def test_unavailable_has_retry_after(agent):
    response = httpx.post(f"{agent.address}/ask", json={"question": ORDER}, timeout=60)
    assert response.headers["Retry-After"] == "1"


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[" * 50_000, b"\xff", b"[]", b"{}", b'{"question": 7}', b'{"question": null}', b'{"question": " "}'],
)
def test_a_body_without_a_question_is_refused(agent, body):
    response = httpx.post(f"{agent.address}/ask", content=body, timeout=60)
    assert response.status_code == 400
    assert response.json()["error"]


def test_sigterm_ends_it_cleanly_though_a_client_is_still_connected(start_agent):
    with start_agent(7) as running, httpx.Client(timeout=60) as client:
        assert client.post(f"{running.address}/ask", json={"question": CALM}).status_code == 200
        running.process.send_signal(signal.SIGTERM)
        stdout, stderr = running.process.communicate(timeout=60)
        assert (running.process.returncode, stdout, stderr) == (0, "", "")


def test_a_dropped_connection_leaves_no_noise(start_agent, cases):
    dropped = next(case["input"] for case in cases if FaultSchedule(7).fault(case["input"], 1) == "dropped")
    with start_agent(7) as running:
        assert running.ask(dropped).tries == ("dropped", 200)
        running.process.terminate()
        assert running.process.communicate(timeout=60) == ("", "")


def test_a_port_in_use_is_an_error_in_one_line(agent):
    port = agent.address.rpartition(":")[2]
    command = [sys.executable, "-m", "fepflow.deployments.simulators.demo_agent", "--port", port]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "choose another --port" in done.stderr
    assert "Traceback" not in done.stderr
