"""A person labels the outputs of a run with the keyboard, in a real browser, and sees what the judge is worth."""

from __future__ import annotations

from pathlib import Path

from selenium.webdriver.common.by import By

from fepflow.store.store import Store
from tests.fepflow.analysis.test_calibration import stored
from tests.pages_process import pages_process

from .browser import browsing, chromium_and_driver
from .conftest import Stack


def test_a_draw_is_labelled_by_keys_and_the_judge_is_calibrated(stack: Stack, tmp_path: Path) -> None:
    chromium_and_driver()
    with Store.open(f"sqlite:///{tmp_path / 'fepflow.db'}") as store:
        run = stored(store, [{"passed": number % 2 == 0, "score": 1, "tone": "plain"} for number in range(8)])
        with pages_process(tmp_path, stack.warm) as address, browsing(address, tmp_path / "profile") as browser:
            browser.open(f"/runs/{run.id}")
            browser.follow("Label its outputs")
            browser.shows("Outputs to draw at random")
            (size,) = browser.all("input[name=size]")
            size.clear()
            size.send_keys("8\n")
            for done in range(8):
                browser.shows(f"{done} of 8 labelled")
                case = browser.all("input[name=case]")[0].get_attribute("value") or ""
                if not done:  # what is typed into the note is no key of the queue
                    browser.all("textarea")[0].send_keys("yes and no")
                    browser.shows("0 of 8 labelled")
                    browser.all("button")[0].send_keys("y" if int(case[1:]) % 2 == 0 else "n")
                else:
                    browser.all("body")[0].send_keys("y" if int(case[1:]) % 2 == 0 else "n")
            browser.shows("You have labelled all 8 outputs")
            browser.all("form[action$=calibrate] button")[0].click()
            browser.shows("beside people's labels", "8 labels")
            figures = {row.find_element(By.TAG_NAME, "th").text: row.text for row in browser.all("tbody tr")}
            assert figures["The same beyond chance"].startswith("The same beyond chance 1 ")
        assert {label.case_id: label.label for label in store.labels.current(run.id)} == {
            f"c{number}": number % 2 == 0 for number in range(8)
        }
        assert {label.note for label in store.labels.current(run.id)} == {"yes and no", ""}
