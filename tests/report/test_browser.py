"""The page in a real browser: what Chromium makes of it with scripts off, dark, narrow, printed, read aloud.

Needs Chromium with its driver and the package selenium (`make test` installs the latter; on Debian and Ubuntu
`apt-get install chromium chromium-driver`). Without them these tests are skipped. The check by axe-core needs
its one file as well: FOLDLESS_AXE names it (`npm install axe-core`, then node_modules/axe-core/axe.min.js).
Nothing of this is part of the page: the driver puts axe-core beside it.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import time
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest

from foldless import SparseClassifier, report
from foldless.datasets import make_class_means
from reference.hostile_names import HOSTILE_NAMES

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
INTERFERENCE = "\u202e\x1b[2J<script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install selenium")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs a browser: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    data = make_class_means(60, 300, 4, bayes_error=0.01, mislabelled=0.05, random_state=0)
    labels = np.where(data.y > 0, "ill", "well")
    names = [f"gene {j}" for j in range(300)]
    model = SparseClassifier().fit(data.X, labels)
    best = int(np.argmax(model.inclusion_probability_))
    names[best] = INTERFERENCE
    steps = [*HOSTILE_NAMES, "The last step."]
    where = tmp_path_factory.mktemp("report") / "report.html"
    return report.write(model, where, y=labels, feature_names=names, steps=steps, facts={"seed": 0})


@pytest.fixture
def opened(browser, path):
    """The page at a desk: 1000 pixels wide, light, scripts of the page itself off."""
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    look(browser, width=1000, scheme="light")
    visit(browser, path)
    return browser


def visit(browser, path: Path) -> None:
    """Open a page and wait until it is there: with scripts off the driver cannot wait by itself."""
    browser.get(path.as_uri())
    for _ in range(600):
        if asked(browser, "document.readyState + location.href") == f"complete{path.as_uri()}":
            return
        time.sleep(0.1)
    pytest.fail(f"the browser did not open {path} within a minute")


def look(browser, *, width: int, scheme: str) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
    )


def asked(browser, expression: str):
    """The value of an expression in the page; the debugger may ask although scripts are off."""
    answer = browser.execute_cdp_cmd("Runtime.evaluate", {"expression": expression, "returnByValue": True})
    assert "exceptionDetails" not in answer, answer
    return answer["result"].get("value")


def test_the_page_is_readable_without_scripts(opened):
    browser = opened
    assert browser.title == "well against ill – foldless report"
    headings = asked(browser, "[...document.querySelectorAll('h2')].map(h => h.innerText)")
    assert headings == [
        "The answer",
        "The features",
        "The samples",
        "How the model was chosen",
        "What was done to the data",
        "Methods, ready to paste",
        "The run",
    ]
    assert asked(browser, "document.querySelectorAll('table').length") >= 6
    assert asked(browser, "document.querySelectorAll('#features ~ div tbody tr').length") > 10
    images = asked(browser, "[...document.images].map(i => [i.complete, i.naturalWidth])")
    assert len(images) == 6
    assert all(complete and width > 400 for complete, width in images)
    assert "of labels are missed" in asked(browser, "document.querySelector('.answer').innerText")
    assert "The last step." in asked(browser, "document.body.innerText")


def test_the_browser_finds_nothing_that_acts(opened):
    """By the parser that counts, which is the browser's; the page's own script is off."""
    assert asked(opened, "document.scripts.length") == 1
    active = "iframe,object,embed,form,input,button,link,base,svg,math,video,audio,template,dialog,frame"
    assert asked(opened, f"document.querySelectorAll('{active}').length") == 0
    assert asked(opened, "document.querySelectorAll('[style]').length") == 0
    names = "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
    assert [name for name in asked(opened, names) if name.startswith("on")] == []
    leading = "[...document.querySelectorAll('[src],[href]')]"
    leads = f"{leading}.map(e => (e.attributes.src ?? e.attributes.href).value)"
    assert all(to.startswith(("#", "data:image/png;base64,")) for to in asked(opened, leads))
    loaded = asked(opened, "performance.getEntriesByType('resource').map(r => r.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []
    # Nothing of the page's own offends the policy: the style applies, no complaint was logged.
    assert asked(opened, "getComputedStyle(document.querySelector('.answers')).display") == "grid"
    assert opened.get_log("browser") == []


@pytest.mark.parametrize("with_policy", [True, False])
def test_the_policy_stops_what_a_name_could_have_smuggled_in(browser, path, tmp_path, with_policy):
    """Were escaping to fail, the policy would still hold; without the policy the same page is owned."""
    attack = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"><h1>"
    page = path.read_text(encoding="utf-8").replace("<h1>", attack, 1)
    if not with_policy:
        page = page.replace("Content-Security-Policy", "Nothing")
    (tmp_path / "injected.html").write_text(page, encoding="utf-8")
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    visit(browser, tmp_path / "injected.html")
    assert browser.execute_script("return document.querySelectorAll('script').length") == 2
    assert (browser.title == "owned") != with_policy


def test_tables_are_sorted_and_searched(browser, path):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    look(browser, width=1000, scheme="light")
    browser.get_log("browser")  # what other pages were refused
    visit(browser, path)
    table = "document.querySelector('table[aria-labelledby=feature-table]')"
    rows = f"{table}.querySelectorAll('tbody:last-of-type tr:not(.heading):not([hidden]) th')"
    names = f"[...{rows}].map(e => e.innerText)"
    before = asked(browser, names)
    button = f"{table}.querySelector('thead button')"
    asked(browser, f"{button}.click(), 0")
    assert asked(browser, names) == sorted(before, key=str.lower, reverse=True)
    assert asked(browser, f"{button}.parentElement.getAttribute('aria-sort')") == "descending"
    asked(browser, f"{button}.click(), 0")
    assert asked(browser, names) == sorted(before, key=str.lower)
    search = f"{table}.parentElement.previousElementSibling.querySelector('input')"
    asked(browser, f"{search}.value = {before[0]!r}, {search}.dispatchEvent(new Event('input')), 0")
    assert asked(browser, names) == [name for name in sorted(before, key=str.lower) if before[0] in name]
    assert browser.get_log("browser") == []


def test_dark_and_light_have_their_colours(opened):
    def lightness(selector: str, part: str) -> float:
        colour = asked(opened, f"getComputedStyle(document.querySelector('{selector}')).{part}")
        return float(np.mean([int(c) for c in colour[4:-1].split(",")[:3]])) / 255

    assert lightness("body", "backgroundColor") > 0.9
    assert lightness("body", "color") < 0.2
    look(opened, width=1000, scheme="dark")
    assert lightness("body", "backgroundColor") < 0.15
    assert lightness("body", "color") > 0.8
    assert "invert" in asked(opened, "getComputedStyle(document.querySelector('figure img')).filter")


def test_a_narrow_screen_needs_no_sideways_scrolling(opened, path):
    """Wide tables and pictures scroll in frames of their own, in a size to be read; the page does not."""
    look(opened, width=360, scheme="light")
    visit(opened, path)
    assert asked(opened, "document.documentElement.scrollWidth") <= 360
    frames = "[...document.querySelectorAll('.scroll')].map(e => e.getBoundingClientRect().right)"
    assert max(asked(opened, frames)) <= 360
    wide = "[...document.querySelectorAll('figure:not(.narrow) img')]"
    assert min(asked(opened, f"{wide}.map(i => i.clientWidth / i.getAttribute('width'))")) > 0.7


def test_it_prints_on_a_few_light_pages(opened):
    look(opened, width=1000, scheme="dark")
    printed = opened.execute_cdp_cmd(
        "Page.printToPDF", {"printBackground": False, "paperWidth": 8.27, "paperHeight": 11.69}
    )
    pdf = b64decode(printed["data"])
    assert pdf.startswith(b"%PDF")
    n_pages = pdf.count(b"/Type /Page\n") or pdf.count(b"/Type/Page")
    assert 3 <= n_pages <= 25
    opened.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]},
    )
    assert asked(opened, "getComputedStyle(document.querySelector('nav')).display") == "none"
    assert asked(opened, "getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert asked(opened, "getComputedStyle(document.querySelector('figure img')).filter") == "none"


def test_the_report_of_the_command_opens(browser, tmp_path):
    """From a table with hostile names in a file with one, by the command, to a page in the browser."""
    rng = np.random.default_rng(0)
    names = [name for name in HOSTILE_NAMES if name.strip() and "\x00" not in name][:100]
    X = rng.standard_normal((40, 100))
    table = tmp_path / "<img src=x onerror=alert(1)>.csv"
    with open(table, "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["group", *names])
        rows.writerows([["<b>ill</b>" if x[0] > 0 else "well", *x] for x in X])
    out = tmp_path / "results"
    command = [
        sys.executable,
        "-m",
        "foldless",
        "fit",
        str(table),
        "--target",
        "group",
        "--out",
        str(out),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    look(browser, width=1000, scheme="light")
    visit(browser, out / "report.html")
    assert asked(browser, "document.querySelector('h1').innerText") == "well against <b>ill</b>"
    assert "<img src=x onerror=alert(1)>.csv" in asked(browser, "document.querySelector('header').innerText")
    assert asked(browser, "document.images.length") == 8
    assert asked(browser, "document.querySelectorAll('h1 b, header img, form, svg').length") == 0
    assert asked(browser, "document.scripts.length") == 1
    assert asked(browser, "document.querySelectorAll('tbody tr').length") > 20
    assert names[0] in asked(browser, "document.body.innerText")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1000, 360])
def test_axe_has_no_serious_finding(browser, path, scheme, width):
    axe = os.environ.get("FOLDLESS_AXE")
    if not axe:
        pytest.skip("needs axe-core: npm install axe-core, and FOLDLESS_AXE=node_modules/axe-core/axe.min.js")
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    look(browser, width=width, scheme=scheme)
    visit(browser, path)
    browser.execute_script(Path(axe).read_text(encoding="utf-8"))
    found = browser.execute_async_script(
        "const done = arguments[0];"
        "axe.run().then(r => done({ran: r.passes.length, violations: r.violations.map("
        "v => [v.impact, v.id, v.nodes.map(n => n.html.slice(0, 120))])}));"
    )
    assert found["ran"] > 20
    assert [v for v in found["violations"] if v[0] in ("serious", "critical")] == []
