"""The chat page, used in a real browser."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from support.sandbox import Sandbox

ANN, TEAM = 5000000001, -4000000001
PATIENCE = 15
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1100,760",
)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        reason = "chromium is not installed: apt-get install -y chromium chromium-driver"
        if "CI" in os.environ:
            pytest.fail(reason)
        pytest.skip(reason)
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    for argument in (*OPTIONS, f"--user-data-dir={tmp_path}"):
        options.add_argument(argument)
    # The driver is named: without that, selenium looks for one on the internet.
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def page(browser: webdriver.Chrome, sandbox: Sandbox) -> "Page":
    browser.get(sandbox.url + "/")
    page = Page(browser)
    page.wait_until_live()
    return page


class Page:
    """What a person sees and does."""

    def __init__(self, browser: webdriver.Chrome) -> None:
        self.browser = browser

    def wait_for(self, selector: str, text: str) -> None:
        """Wait until an element that matches shows exactly this text."""

        def shown(browser: webdriver.Chrome) -> bool:
            script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
            return text in browser.execute_script(script, selector)

        WebDriverWait(self.browser, PATIENCE, 0.05).until(shown, f"{text!r} in {selector}")

    def wait_until_live(self) -> None:
        self.wait_for("#line", "live")

    def type(self, *keys: str) -> None:
        self.browser.find_element(By.ID, "text").send_keys(*keys)

    def choose(self, chat: str) -> None:
        self.browser.find_element(By.XPATH, f"//nav//button[contains(., '{chat}')]").click()
        self.wait_for("#title", chat)

    def _log(self, name: str) -> list[dict[str, str]]:
        get_log = cast("Callable[[str], list[dict[str, str]]]", self.browser.get_log)
        return get_log(name)

    def complaints(self) -> list[str]:
        """Return what the browser's console complains about, blocked content included."""
        return [entry["message"] for entry in self._log("browser")]

    def requested(self) -> list[str]:
        """Return every URL that the page had asked for."""
        events = (json.loads(e["message"])["message"] for e in self._log("performance"))
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]


def test_a_person_writes_and_the_bot_answers_live(page: Page, sandbox: Sandbox) -> None:
    page.type("h\u00e9 <b>you</b>", Keys.SHIFT, Keys.ENTER, Keys.SHIFT, "second line", Keys.ENTER)
    page.wait_for("#messages .own .text", "h\u00e9 <b>you</b>\nsecond line")

    _, answer = sandbox.call("getUpdates")
    (update,) = answer["result"]
    assert update["message"]["text"] == "h\u00e9 <b>you</b>\nsecond line"
    assert update["message"]["from"]["id"] == ANN
    sandbox.call("sendMessage", chat_id=ANN, text="<img src=x onerror=alert(1)>")
    page.wait_for("#messages .bot .text", "<img src=x onerror=alert(1)>")
    assert page.browser.find_elements(By.CSS_SELECTOR, "#messages img") == []


def test_nothing_leaves_the_sandbox_and_nothing_is_blocked(page: Page, sandbox: Sandbox) -> None:
    page.type("hi", Keys.ENTER)
    page.wait_for("#messages .own .text", "hi")

    requested = page.requested()
    assert sandbox.url + "/sandbox/messages" in requested
    # The browser's own empty tab, before the page, is made of chrome:// addresses.
    outside = [
        url
        for url in requested
        if not url.startswith((sandbox.url + "/", "data:", "chrome:", "chrome-untrusted:"))
    ]
    assert outside == []
    assert page.complaints() == []


def test_in_a_group_one_picks_who_speaks(page: Page, sandbox: Sandbox) -> None:
    page.choose("Team")
    page.browser.find_element(By.ID, "speaker").send_keys("Bob Example")
    page.type("hello")
    page.browser.find_element(By.XPATH, "//button[text()='Send']").click()
    page.wait_for("#messages .own .text", "hello")

    _, answer = sandbox.call("getUpdates")
    message = answer["result"][0]["message"]
    assert (message["chat"]["id"], message["from"]["first_name"]) == (TEAM, "Bob")


def test_an_answer_in_another_chat_is_counted_until_one_looks(page: Page, sandbox: Sandbox) -> None:
    sandbox.call("sendMessage", chat_id=TEAM, text="news")
    page.wait_for("nav .badge", "1 unread")
    page.choose("Team")

    page.wait_for("#messages .bot .text", "news")
    assert page.browser.find_elements(By.CSS_SELECTOR, "nav .badge") == []


def test_a_poll_without_news_moves_nothing(page: Page, sandbox: Sandbox) -> None:
    """Whoever has scrolled up to read is not taken down again every 25 seconds."""
    sandbox.call("sendMessage", chat_id=ANN, text="\n".join(["line"] * 100))
    sandbox.call("sendMessage", chat_id=ANN, text="last")
    page.wait_for("#messages .bot .text", "last")
    page.browser.execute_script("document.getElementById('messages').scrollTop = 7")

    poll = "listen(0).then(() => arguments[0](document.getElementById('messages').scrollTop))"
    assert page.browser.execute_async_script(poll) == 7


def test_a_new_chat_appears_and_a_reset_clears_the_page(page: Page, sandbox: Sandbox) -> None:
    sandbox.add_chat(-99, "group", "Fresh")
    sandbox.say(-99, "first")
    page.wait_for("nav .name", "Fresh")
    page.choose("Fresh")
    page.wait_for("#messages .own .text", "first")
    sandbox.reset()

    page.wait_for("#title", "Ann Example")
    assert page.browser.find_elements(By.CSS_SELECTOR, "#messages .own") == []


def test_a_lost_sandbox_is_told_and_found_again(browser: webdriver.Chrome) -> None:
    with Sandbox.start() as sandbox:
        browser.get(sandbox.url + "/")
        page = Page(browser)
        page.wait_until_live()
        port = int(sandbox.url.rpartition(":")[2])
    page.wait_for("#line", "no connection, trying again")
    page.type("kept", Keys.ENTER)
    page.wait_for("#complaint", "Not sent: Failed to fetch")

    with Sandbox.start(port=port) as sandbox:
        page.wait_until_live()
        sandbox.call("sendMessage", chat_id=ANN, text="back")
        page.wait_for("#messages .bot .text", "back")
        page.type(Keys.ENTER)
        page.wait_for("#messages .own .text", "kept")
