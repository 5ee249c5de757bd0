"""Deciding on suspect labels in a real browser: keys, buttons, undo, reload, and decisions.csv."""

import json
import shutil
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

import standins
from pages import each, eventually, find, job, opened
from untuned.commands.clean import clean
from untuned.commands.sources import Asked
from untuned.report import cards, run_page
from untuned.tables import decisions

ATTACK = "</script><script>window.ran=1</script>"
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def texts(rows, classes=("red", "green", "blue"), seed=0):
    rng = np.random.default_rng(seed)
    lines = [" ".join(rng.choice(WORDS, rng.integers(5, 60))) for _ in range(rows)]
    lines[0] = f"what they wrote {ATTACK} <img src=x onerror=window.ran=1> & more"
    return pd.DataFrame(
        {
            "text": lines,
            "age": rng.integers(0, 99, rows),
            "colour": [classes[row % len(classes)] for row in range(rows)],
        }
    )


def cleaned(frame, folder, **asked):
    frame.to_csv(folder / "train.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        standins.install(patch)
        clean(job("clean", folder / "train.csv", "colour", folder), Asked(**asked))
    return folder / "clean" / "report.html"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Sixty rows, of which 56, 49, ..., 0 are suspect, in this order."""
    return cleaned(texts(60), tmp_path_factory.mktemp("cards"))


@pytest.fixture
def fresh(page, browser):
    opened(browser, page)
    browser.execute_script("localStorage.clear()")
    opened(browser, page)
    return browser


def press(browser, *keys):
    for key in keys:
        ActionChains(browser).send_keys(key).perform()


def state(browser):
    """What each card that is drawn says, by its row."""
    said = "[each.querySelector('.facts'), each.querySelector('.state')].map((e) => e.textContent)"
    return {int(facts.split()[-1]): words for facts, words in each(browser, ".card", said)}


def current(browser):
    return int(each(browser, ".card[aria-current] .facts", "each.textContent")[0].split()[-1])


def is_asked(browser):
    return browser.execute_script("return document.getElementById('choose').open")


def count(browser):
    return find(browser, "#count")[0].text


def saved(browser, folder):
    """Press the button and read the file it gives."""
    browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)}
    )
    path = folder / "decisions.csv"
    path.unlink(missing_ok=True)
    find(browser, "#save")[0].click()
    assert eventually(path.exists)
    return pd.read_csv(path, dtype=str, keep_default_na=False)


@pytest.mark.browser
def test_keys_decide_and_undo(fresh):
    for keys, decided, place, said in (
        ("", 0, 56, {56: ""}),
        ("ksu", 3, 35, {56: "kept: blue", 49: "changed to red", 42: "unclear"}),  # after green
        ("zz", 1, 49, {56: "kept: blue", 49: "", 42: ""}),
        (Keys.ARROW_UP, 1, 56, {56: "kept: blue"}),
        ("s", 1, 49, {56: "changed to green"}),  # changed one's mind
        ("z", 1, 56, {56: "kept: blue"}),
    ):
        press(fresh, *keys)
        assert count(fresh) == f"{decided} of 9 decided"
        assert current(fresh) == place
        assert said.items() <= state(fresh).items()


@pytest.mark.browser
def test_another_class_is_chosen_by_typing(fresh):
    press(fresh, "c")
    assert is_asked(fresh)
    assert fresh.execute_script("return document.activeElement.id") == "wanted"
    press(fresh, "r", "e", "d", Keys.ENTER)
    assert not is_asked(fresh)
    press(fresh, "c", "g", "r", Keys.ENTER)  # the class it has: that is to keep it
    press(fresh, "c", Keys.ESCAPE, "u")
    said = {56: "changed to red", 49: "kept: green", 42: "unclear"}
    assert said.items() <= state(fresh).items()


@pytest.mark.browser
def test_buttons_do_what_keys_do(fresh):
    for selector, words in (
        (".card button.keep", "kept: blue"),
        (".card button.change", "changed to green"),
        (".card button.other", "changed to green"),  # which asks
        ("#options button:last-child", "changed to red"),
        ("#undo", "changed to green"),
    ):
        find(fresh, selector)[0].click()
        assert state(fresh)[56] == words


@pytest.mark.browser
def test_decisions_survive_a_reload_and_leave_the_page(fresh, page, tmp_path):
    press(fresh, "k", "s", "u")
    # On a busy machine the browser may draw the page before it has stored the last keys.
    again = lambda: opened(fresh, page) or count(fresh) == "3 of 9 decided"
    assert eventually(again)
    assert current(fresh) == 35  # where one left off
    frame = saved(fresh, tmp_path)
    assert list(frame.columns) == [*decisions.COLUMNS, "judges"]
    assert set(frame["judges"]) == {"linear"}  # whom the next round asks
    found = [" ".join(line) for line in frame[["row", "given", "decision", "label"]].to_numpy()]
    assert found == ["56 blue keep blue", "49 green change red", "42 red unclear "]
    table = pd.read_csv(page.parent.parent / "train.csv")
    assert frame["digest"].tolist() == decisions.digests(table.iloc[[56, 49, 42]])
    press(fresh, "z")
    assert count(fresh) == "2 of 9 decided"  # undo reaches behind the reload


@pytest.mark.browser
def test_what_the_page_gives_the_command_takes(fresh, page, tmp_path):
    press(fresh, "k", "s", "u")
    saved(fresh, tmp_path)
    table = pd.read_csv(page.parent.parent / "train.csv")
    again = cleaned(table, tmp_path, decisions=tmp_path / "decisions.csv")
    summary = json.loads((again.parent / "result.json").read_text())["summary"]
    assert [summary[f"{name}_labels"] for name in ("confirmed", "corrected", "unclear")] == [1] * 3
    opened(fresh, again)
    assert count(fresh).startswith("0 of ")  # another run: its decisions are its own
    press(fresh, "k")
    rows = saved(fresh, tmp_path)["row"].tolist()
    assert rows[:3] == ["56", "49", "42"]  # those of before leave again
    assert len(rows) == 4


@pytest.mark.browser
def test_filters(fresh):
    press(fresh, "k")
    find(fresh, "#show option[value=open]")[0].click()
    assert 56 not in state(fresh)
    assert find(fresh, ".card")[0].get_attribute("aria-setsize") == "8"
    press(fresh, "k")  # it leaves the list, and the next one is current
    assert 49 not in state(fresh)
    assert current(fresh) == 42
    find(fresh, "#show option[value='']")[0].click()
    for option, left in (
        ("#given option[value='=red']", {42, 21, 0}),
        ("#suggested option[value='=red']", set()),
    ):
        find(fresh, option)[0].click()
        assert set(state(fresh)) == left


@pytest.mark.browser
def test_texts_are_whole_and_run_nothing(fresh):
    press(fresh, *[Keys.ARROW_DOWN] * 8)
    shown = find(fresh, ".card[aria-current] .prose")[0].text
    assert shown == f"what they wrote {ATTACK} <img src=x onerror=window.ran=1> & more"
    assert fresh.execute_script("return window.ran") is None
    assert find(fresh, "#cards img, #cards script") == []


@pytest.mark.browser
def test_labels_from_right_to_left_stay_on_their_side_of_the_arrow(browser, tmp_path):
    """An arrow has no direction of its own: between Arabic and Hebrew the given label came last."""
    opened(browser, cleaned(texts(24, ("عربي", "עברית")), tmp_path))
    sides = "['s', 'b'].map((name) => each.querySelector(name).getBoundingClientRect().left)"
    found = each(browser, ".card h3", sides)
    assert found
    assert all(given < suggested for given, suggested in found)


@pytest.mark.browser
def test_screen_readers_are_told(fresh):
    card = find(fresh, ".card")[0]
    told = [card.get_attribute(name) for name in ("role", "aria-posinset", "aria-setsize")]
    assert told == ["listitem", "1", "9"]
    press(fresh, "k")
    assert fresh.execute_script("return document.activeElement.getAttribute('aria-current')")
    name = "each.textContent || each.getAttribute('aria-label') || each.labels?.length"
    assert all(each(fresh, "button, select, input, dialog, progress", name))


def repeated(page, folder, suspects):
    """The page of a run that found far more suspects, of which no other file is needed."""
    shutil.copytree(page.parent, folder / "many")
    few = pd.read_csv(page.parent / "suspects.csv")
    many = few.iloc[np.arange(suspects) % len(few)].reset_index(drop=True)
    many["_row"] = np.arange(suspects)[::-1]
    many["text"] = texts(suspects)["text"]
    many.to_csv(folder / "many" / "suspects.csv", index=False)
    return run_page.write(folder / "many", folder / "many")


@pytest.fixture(scope="module")
def long(page, tmp_path_factory):
    return repeated(page, tmp_path_factory.mktemp("long"), 5_000)


@pytest.mark.browser
def test_all_cards_are_printed(page, browser, tmp_path):
    """On the screen only those near the window exist, so that paper had ten of a hundred."""
    opened(browser, repeated(page, tmp_path, 100))
    on_screen = len(find(browser, ".card"))
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    # Paper has another size than the window, which is no reason to take cards away.
    resized = "dispatchEvent(new Event('resize')); requestAnimationFrame(() => "
    browser.execute_async_script(f"{resized}requestAnimationFrame(arguments[0]))")
    tops = each(browser, ".card", "each.offsetTop")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert tops == sorted(set(tops))
    assert len(tops) == 100
    assert len(find(browser, ".card")) == on_screen < 50


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 1200])
def test_thousands_of_cards_scroll_smoothly(long, browser, width):
    """However many there are, few exist; a frame takes no longer than eyes notice."""
    opened(browser, long, width)
    assert count(browser) == "0 of 5,000 decided"
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    scroll = """
        const done = arguments[0], times = [];
        const turn = (now) => {
            times.push(now);
            scrollBy(0, times.length % 10 ? 150 : 50_000);
            if (times.length < 60) requestAnimationFrame(turn);
            else done([times, document.querySelectorAll(".card").length]);
        };
        requestAnimationFrame(turn);
    """
    times, cards = browser.execute_async_script(scroll)
    assert 0 < cards < 40
    assert np.median(np.diff(times)[2:]) < 100  # half of the frames; a busy machine delays some
    # The end can be reached, and its card is the last one.
    down = "scrollTo(0, document.documentElement.scrollHeight)"
    assert eventually(lambda: browser.execute_script(down) or 0 in state(browser))


@pytest.mark.long
def test_a_thousand_suspects_are_a_small_page(page, tmp_path):
    text = repeated(page, tmp_path, 1_000).read_text(encoding="utf-8")
    assert text.count("three") > 1_000
    assert len(text.encode()) < 2_000_000


def test_a_picture_from_outside_is_refused(tmp_path):
    """A thumbnail that somebody put an address into would be fetched by the page."""
    folder = cleaned(texts(60), tmp_path).parent
    result = json.loads((folder / "result.json").read_text())
    result["files"]["thumbnails"] = "thumbnails.csv"
    (folder / "result.json").write_text(json.dumps(result))
    address = "https://example.org/x.png"
    (folder / "thumbnails.csv").write_text("\n".join(["picture", *[address] * 9]))
    with pytest.raises(ValueError, match="contradict each other"):
        run_page.write(folder, folder)


@pytest.mark.browser
def test_numbers_are_typed(browser, tmp_path):
    rows = np.arange(60)
    frame = pd.DataFrame({"age": rows + 0.01 * np.sin(rows), "colour": rows / 4})
    frame.loc[5, "colour"] = 300.0
    opened(browser, cleaned(frame, tmp_path, task="numbers"))
    assert 5 in state(browser)
    press(browser, "c", "x", Keys.ENTER)
    assert is_asked(browser)  # x is no number
    press(browser, Keys.BACKSPACE, "1", ".", "5", Keys.ENTER)
    assert "changed to 1.5" in state(browser).values()


def names(browser, selector):
    return each(browser, f".card:first-child {selector}", "each.textContent")


def wide(folder, columns):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, columns)), columns=[f"n{k}" for k in range(columns)])
    return cleaned(frame.assign(colour=["red", "green", "blue"] * 20), folder)


@pytest.mark.browser
def test_columns_that_speak_against_a_label_come_first_and_the_rest_on_demand(browser, tmp_path):
    opened(browser, wide(tmp_path, 40))
    speaking = [chip.partition(":")[0] for chip in names(browser, ".chip")]
    first = names(browser, "dt")
    assert first[: len(speaking)] == speaking
    assert len(first) == 12
    assert names(browser, "summary") == ["28 more columns"]
    top = lambda: each(browser, ".card", "each.getBoundingClientRect().top")[1]
    before = top()
    find(browser, ".card summary")[0].click()
    assert eventually(lambda: top() > before)  # the next card makes room
    assert sorted(names(browser, "dt")) == sorted(f"n{k}" for k in range(40))


@pytest.mark.browser
def test_of_very_wide_tables_the_page_has_the_columns_that_speak_most(
    browser, tmp_path, monkeypatch
):
    monkeypatch.setattr(cards, "ROOM", 9 * 20 * 10)  # there are nine suspects
    opened(browser, wide(tmp_path, 40))
    data = json.loads(find(browser, "#suspects")[0].get_attribute("textContent"))
    speaking = Counter(name for reasons in data["against"] for name, _ in reasons)
    left = [name for name in speaking if name not in data["columns"]]
    kept = len(data["columns"])
    assert 15 < kept < 30
    more = f"{kept - 12} more columns, and {40 - kept} that are in the table only"
    assert names(browser, "summary") == [more]
    assert left  # so that there was a choice
    assert max(speaking[name] for name in left) <= min(speaking[name] for name in data["columns"])
