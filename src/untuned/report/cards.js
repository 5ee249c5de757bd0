// Suspect labels as cards: keep, take the suggestion, choose another class, mark as unclear, undo.
// What is decided is a log of [card, decision, label]. The state is what the log says last of each
// card, so that undo takes one line off, before a reload and after. Users' texts are set as text.
{
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("suspects").textContent);
  const list = byId("cards"), bar = byId("bar");
  const key = `untuned-${data.run}`;
  const GAP = 12; // pixels between cards
  const GUESS = 240; // height of a card that was not drawn yet
  const AHEAD = 800; // pixels drawn above and below what is seen
  const all = data.row.map((_, card) => card);

  let log = [];
  let decided = new Map(); // card -> [decision, label]
  let current = 0;
  let shown = all; // cards that pass the filters
  let tops = []; // of the cards shown
  const places = new Map(); // card -> its place among those shown
  const heights = new Array(all.length).fill(GUESS);
  const drawn = new Map(); // card -> its element

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children); // strings become text
    return element;
  };

  // What was decided, kept by the browser

  const recall = () => {
    try {
      log = JSON.parse(localStorage.getItem(key) ?? "[]");
    } catch {
      log = [];
    }
    log = Array.isArray(log) ? log.filter((line) => Array.isArray(line) && line[0] in all) : [];
  };
  const keep = () => {
    try {
      localStorage.setItem(key, JSON.stringify(log));
      byId("warning").hidden = true;
    } catch {
      byId("warning").textContent = "This browser keeps nothing for this page: save before you close it.";
      byId("warning").hidden = false;
    }
  };
  const replay = () => {
    decided = new Map(log.map(([card, decision, label]) => [card, [decision, label]]));
  };

  // One card

  const said = (card) => {
    const [decision, label] = decided.get(card) ?? [];
    return { keep: `kept: ${label}`, change: `changed to ${label}`, unclear: "unclear" }[decision] ?? "";
  };
  const button = (words, name, letter, act) => {
    const made = make("button", { type: "button", class: name }, words, " ", make("kbd", {}, letter));
    made.addEventListener("click", act);
    return made;
  };
  const picture = (card) => {
    const uri = data.pictures[card];
    return make("img", { src: uri, alt: `image of row ${data.row[card]}`, class: "picture" });
  };
  // Columns that speak against the label first, then as they stand in the table.
  const bySaying = (card) => {
    const speaking = data.against[card].map(([name]) => data.columns.indexOf(name));
    const first = [...new Set(speaking.filter((column) => column >= 0))];
    return [...first, ...data.columns.keys()].filter((column, at, every) => every.indexOf(column) === at);
  };
  const values = (card, columns) =>
    make(
      "dl",
      {},
      ...columns.map((column) =>
        make("div", {}, make("dt", {}, data.columns[column]), make("dd", {}, data.values[card][column]))
      )
    );
  const draw = (card) => {
    const given = data.given[card], suggested = data.suggested[card];
    const right = Math.round(100 * data.quality[card]);
    const quality = `${right < 1 ? "under 1" : right} % likely right`;
    const title = make("h3", {}, make("s", {}, given), " \u2192 ", make("b", {}, suggested));
    const facts = make("p", { class: "facts" }, `${quality} \u00b7 row ${data.row[card]}`);
    const element = make(
      "article",
      { role: "listitem", tabindex: "-1", "aria-setsize": shown.length, class: "card" },
      make("header", {}, title, facts, make("p", { class: "state" }))
    );
    if (data.pictures) element.append(picture(card));
    data.texts.forEach((name, column) => {
      const text = data.prose[card][column];
      if (data.texts.length > 1) element.append(make("h4", {}, name));
      element.append(make("p", { class: "prose" }, text === "" ? "(empty)" : text));
    });
    const reasons = data.against[card];
    if (reasons.length) {
      const chips = reasons.map(([name, value]) =>
        make("span", { class: "chip" }, data.texts.includes(name) ? value : `${name}: ${value}`)
      );
      element.append(make("p", { class: "against" }, `speaks for ${suggested}: `, ...chips));
    }
    if (data.columns.length) {
      const order = bySaying(card), rest = order.slice(data.first);
      element.append(values(card, order.slice(0, data.first)));
      if (rest.length || data.left) {
        const left = data.left ? `, and ${data.left} that are in the table only` : "";
        const columns = rest.length === 1 ? "column" : "columns";
        const more = make("details", {}, make("summary", {}, `${rest.length} more ${columns}${left}`));
        more.addEventListener("toggle", () => {
          if (more.open && more.children.length === 1) more.append(values(card, rest));
          show();
        });
        element.append(more);
      }
    }
    element.append(
      make(
        "div",
        { class: "acts" },
        button(`Keep ${given}`, "keep", "k", () => decide(card, "keep", given)),
        button(`Take ${suggested}`, "change", "s", () => decide(card, "change", suggested)),
        button("Other\u2026", "other", "c", () => choose(card)),
        button("Unclear", "unclear", "u", () => decide(card, "unclear", ""))
      )
    );
    element.addEventListener("focusin", () => mark(card));
    element.addEventListener("pointerdown", () => mark(card));
    return element;
  };
  const refresh = (card) => {
    const element = drawn.get(card);
    if (!element) return;
    const place = places.get(card);
    element.style.transform = `translateY(${tops[place]}px)`;
    element.setAttribute("aria-posinset", place + 1);
    element.dataset.card = card;
    element.dataset.decision = decided.get(card)?.[0] ?? "";
    element.querySelector(".state").textContent = said(card);
    if (card === current) element.setAttribute("aria-current", "true");
    else element.removeAttribute("aria-current");
  };
  const mark = (card) => {
    const before = current;
    current = card;
    refresh(before);
    refresh(card);
  };

  // Only the cards near the window exist: thousands would make every scroll slow.

  const layout = () => {
    let top = 0;
    tops = shown.map((card) => {
      const here = top;
      top += heights[card] + GAP;
      return here;
    });
    list.style.height = `${top}px`;
  };
  const firstBelow = (line) => {
    let low = 0, high = shown.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (tops[middle] + heights[shown[middle]] < line) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  let printing = false;
  const show = () => {
    if (printing) return;
    for (let round = 0; round < 4; round += 1) {
      const seen = -list.getBoundingClientRect().top; // the window's upper edge, in the list
      const wanted = [];
      for (let place = firstBelow(seen - AHEAD); place < shown.length; place += 1) {
        if (tops[place] > seen + innerHeight + AHEAD) break;
        wanted.push(shown[place]);
      }
      const staying = new Set(wanted);
      for (const [card, element] of drawn) {
        if (staying.has(card)) continue;
        element.remove();
        drawn.delete(card);
      }
      let next = list.firstElementChild;
      for (const card of wanted) {
        const element = drawn.get(card) ?? draw(card);
        drawn.set(card, element);
        if (element === next) next = next.nextElementSibling;
        else list.insertBefore(element, next); // in order, for those who hear the page
        refresh(card);
      }
      let shift = 0, changed = false;
      for (const card of wanted) {
        const grown = drawn.get(card).offsetHeight - heights[card];
        if (!grown) continue;
        if (tops[places.get(card)] < seen) shift += grown; // above what is read: must not jump
        heights[card] += grown;
        changed = true;
      }
      if (!changed) return;
      layout();
      for (const card of wanted) refresh(card);
      if (shift) scrollBy(0, shift);
    }
  };
  const filter = () => {
    const state = byId("show").value, given = byId("given").value, suggested = byId("suggested").value;
    shown = all.filter(
      (card) =>
        (state === "" || (state === "closed") === decided.has(card)) &&
        (given === "" || data.given[card] === given.slice(1)) &&
        (suggested === "" || data.suggested[card] === suggested.slice(1))
    );
    places.clear();
    shown.forEach((card, place) => places.set(card, place));
    layout();
    for (const element of drawn.values()) element.remove();
    drawn.clear();
    list.dataset.empty = shown.length ? "" : "No suspect label is left here.";
    show();
  };
  // Paper has no window to be near to: every card that passes the filters is drawn for it.
  addEventListener("beforeprint", () => {
    printing = true;
    for (const card of shown) {
      drawn.set(card, drawn.get(card) ?? draw(card));
      list.append(drawn.get(card));
      refresh(card);
    }
  });
  addEventListener("afterprint", () => {
    printing = false;
    filter();
  });
  const tell = () => {
    const [count, whole] = [decided.size, all.length].map((number) => number.toLocaleString("en"));
    byId("done").max = all.length;
    byId("done").value = decided.size;
    byId("count").textContent = `${count} of ${whole} decided`;
    byId("undo").disabled = log.length === 0;
  };
  const go = (card) => {
    if (!places.has(card)) return;
    mark(card);
    for (let round = 0; round < 2; round += 1) {
      // The second time its height is known.
      const top = list.getBoundingClientRect().top + tops[places.get(card)];
      const under = bar.getBoundingClientRect().bottom + 8;
      const bottom = top + heights[card];
      if (top < under || bottom > innerHeight) scrollBy({ top: top - under, behavior: "instant" });
      show();
    }
    drawn.get(card)?.focus({ preventScroll: true });
  };
  const move = (by) => {
    const place = (places.get(current) ?? 0) + by;
    if (place >= 0 && place < shown.length) go(shown[place]);
  };

  // Deciding

  const settle = (card) => {
    keep();
    replay();
    tell();
    if (byId("show").value) filter();
    else refresh(card);
  };
  const decide = (card, decision, label) => {
    const place = places.get(card) ?? 0;
    log.push([card, decision, label]);
    const later = [...shown.slice(place + 1), ...shown.slice(0, place)];
    settle(card);
    const next = later.find((each) => !decided.has(each));
    if (next !== undefined) go(next);
  };
  const undo = () => {
    const last = log.pop();
    if (!last) return;
    settle(last[0]);
    go(last[0]);
  };

  // Another class than the suggested one

  const dialog = byId("choose"), wanted = byId("wanted"), options = byId("options");
  const isNumbers = data.task === "numbers";
  const offer = () => {
    const text = wanted.value.trim().toLowerCase();
    const fitting = isNumbers
      ? [wanted.value.trim()].filter((value) => value !== "" && isFinite(value))
      : data.classes.filter((name) => name.toLowerCase().includes(text));
    options.replaceChildren(
      ...fitting.slice(0, 200).map((name) => {
        const made = make("button", { type: "button" }, name);
        made.addEventListener("click", () => take(name));
        return made;
      })
    );
  };
  const take = (name) => {
    dialog.close();
    decide(current, name === data.given[current] ? "keep" : "change", name);
  };
  const choose = (card) => {
    mark(card);
    wanted.value = "";
    offer();
    dialog.showModal();
    wanted.focus();
  };
  wanted.addEventListener("input", offer);
  wanted.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    options.firstElementChild?.click();
  });
  byId("cancel").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => drawn.get(current)?.focus({ preventScroll: true }));

  // Out of the page

  const cell = (value) => {
    const text = String(value);
    return /[",\r\n]/.test(text) || text !== text.trim() ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const csv = () => {
    const news = [...decided.keys()]
      .sort((a, b) => a - b)
      .map((card) => [data.row[card], data.digest[card], data.given[card], ...decided.get(card)]);
    const head = ["row", "digest", "given", "decision", "label", "judges"];
    const lines = [...data.earlier, ...news].map((line) => [...line, data.judges]);
    return [head, ...lines].map((line) => line.map(cell).join(",") + "\n").join("");
  };
  byId("save").addEventListener("click", () => {
    const file = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
    make("a", { href: file, download: "decisions.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(file), 1000);
  });
  byId("undo").addEventListener("click", undo);

  // Keys, filters, and the first look

  const acts = {
    k: () => decide(current, "keep", data.given[current]),
    s: () => decide(current, "change", data.suggested[current]),
    u: () => decide(current, "unclear", ""),
    c: () => choose(current),
    z: undo,
    ArrowDown: () => move(1),
    ArrowUp: () => move(-1),
  };
  document.addEventListener("keydown", (event) => {
    const busy = dialog.open || event.target.closest("input, select, textarea, .wide");
    const plain = !(event.ctrlKey || event.metaKey || event.altKey);
    const act = acts[event.key];
    const allowed = plain || (event.key === "z" && event.ctrlKey);
    if (busy || !act || !allowed || !(places.has(current) || event.key === "z")) return;
    event.preventDefault();
    act();
  });
  for (const name of ["given", "suggested"]) {
    const values = new Set(data[name]);
    const known = data.classes.filter((each) => values.has(each));
    byId(name).append(...known.map((each) => make("option", { value: `=${each}` }, each)));
    byId(name).closest("label").hidden = isNumbers;
  }
  let keyed = false; // whoever picks by keys stays in the list; after a click, keys are for cards
  for (const name of ["show", "given", "suggested"]) {
    byId(name).addEventListener("focus", () => (keyed = false));
    byId(name).addEventListener("keydown", () => (keyed = true));
    byId(name).addEventListener("change", () => {
      filter();
      current = shown[0] ?? current;
      for (const card of drawn.keys()) refresh(card);
      if (!keyed) drawn.get(current)?.focus({ preventScroll: true });
    });
  }
  if (isNumbers) wanted.setAttribute("inputmode", "decimal");
  wanted.setAttribute("aria-label", isNumbers ? "The right number" : "Type to find a class");
  let asked = false;
  const soon = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      show();
    });
  };
  addEventListener("scroll", soon, { passive: true });
  addEventListener("resize", soon);
  const start = () => {
    recall();
    replay();
    tell();
    current = all.find((card) => !decided.has(card)) ?? 0;
    filter();
    if (log.length) go(current);
  };
  addEventListener("storage", (event) => event.key === key && start()); // decided in another tab
  start();
}
