"""Debian's Chromium, driven by playwright: opens an inspection's page and reads what is drawn there."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from insight.inspection.made_figures import Figures, embedded

from bertsmith.insight.page import render

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

OURS = "willReadFrequently"  # a hint for those who read pixels, as only the tests do


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def launched(program: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


class Shown:
    """A page in the browser, with what it asked for, said on the console and tried to run."""

    def __init__(self, browser: Any, path: Path, width: int = 1100, scheme: str = "light") -> None:
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.requests: list[str] = []
        self.trouble: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: OURS in message.text or self.trouble.append(message.text))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.trouble.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.goto(path.as_uri())
        self.settle()

    def settle(self) -> None:
        """Until nothing is left to draw, and the frame has been shown."""
        frames = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        for _ in range(2):
            self.page.evaluate(frames)
            self.page.wait_for_selector("body[data-settled]", state="attached")

    def close(self) -> None:
        self.page.close()
        assert self.trouble == [], self.trouble
        assert [url.split(":")[0] for url in self.requests] == ["file"], self.requests

    def text(self, selector: str) -> str:
        return " ".join(self.page.locator(selector).first.inner_text().split())

    def texts(self, selector: str) -> list[str]:
        return [" ".join(text.split()) for text in self.page.locator(selector).all_inner_texts()]

    def click(self, selector: str, index: int = 0) -> None:
        self.page.locator(selector).nth(index).click()
        self.settle()

    def choose(self, selector: str, label: str) -> None:
        self.page.locator(selector).select_option(label=label)
        self.settle()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
        self.settle()

    def pixel(self, selector: str, x: float, y: float) -> list[int]:
        """Red, green, blue and alpha of a canvas at a place in CSS pixels."""
        read = """(canvas, [x, y]) => {
          const place = [(x * canvas.width) / canvas.clientWidth, (y * canvas.height) / canvas.clientHeight];
          return [...canvas.getContext("2d").getImageData(...place.map(Math.round), 1, 1).data];
        }"""
        return list(self.page.locator(selector).first.evaluate(read, [x, y]))

    def share(self, selector: str, word: str) -> float:
        """The percentage that stands after a word."""
        found = re.search(rf"(?:^|[ ,]){re.escape(word)} ([\d.]+) %", self.text(selector))
        assert found is not None, self.text(selector)
        return float(found[1])

    def inked(self, selector: str) -> int:
        """How many pixels of a canvas are drawn."""
        count = """(canvas) => {
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          return data.filter((value, at) => at % 4 === 3 && value > 20).length;
        }"""
        return int(self.page.locator(selector).first.evaluate(count))

    def point(self, section: str, starts: str) -> tuple[float, float]:
        """Moves over a matrix until its readout starts so; where that is, in pixels of its canvas."""
        scroll = self.page.locator(f"{section} .heat-scroll").first
        scroll.scroll_into_view_if_needed()
        find = """(scroll, starts) => {
          const output = scroll.parentElement.querySelector("output");
          const box = scroll.getBoundingClientRect();
          for (let y = 4; y < box.height; y += 4) for (let x = 4; x < box.width; x += 4) {
            const place = { clientX: box.left + x, clientY: box.top + y };
            scroll.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, ...place }));
            if (output.textContent.startsWith(starts)) return [x + 3, y + 3];
          }
          return null;
        }"""
        found = scroll.evaluate(find, starts)
        assert found is not None, starts
        return found[0], found[1]


Open = Callable[..., Shown]


def written(folder: Path, held: Figures, title: str = "What it sees", sections: tuple = ()) -> Path:
    path = folder / "page.html"
    path.write_text(render("inspect.html", title=title, data=embedded(held), sections=sections), encoding="utf-8")
    return path
