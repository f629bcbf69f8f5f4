// Prices while a question is built, and answers that arrive later. Pages work without this file.
"use strict";
(function () {
  const csrf = document.querySelector("meta[name=csrf]")?.content || "";
  const form = document.getElementById("question");
  document.querySelectorAll("[data-print]").forEach((button) => button.addEventListener("click", () => window.print()));

  const running = document.getElementById("running");
  if (running) {
    const look = async () => {
      try {
        const found = await fetch("/v1/jobs/" + running.dataset.job + "?wait=15");
        const job = found.ok ? await found.json() : { state: found.status < 500 && found.status !== 429 ? "refused" : "running" };
        if (!["running", "queued", "stopping"].includes(job.state)) { location.reload(); return; }
      } catch { /* the service is away for a moment: it keeps the question */ }
      setTimeout(look, 1000);
    };
    look();
  }
  if (!form) return;
  document.querySelectorAll("[data-script]").forEach((each) => { each.hidden = false; }); // what does nothing without this file
  document.querySelectorAll("[data-plain]").forEach((each) => { each.hidden = true; }); // what nobody needs with it

  const AWAY = "The service gives no price now. Try again later.";
  async function send(address, asked) {
    try {
      const found = await fetch(address, {
        method: "POST", headers: { "content-type": "application/json", "x-csrf-token": csrf }, body: JSON.stringify(asked),
      });
      return await found.json();
    } catch { return { error: { message: AWAY } }; }
  }
  const field = (name) => form.elements[name];
  const parts = Object.fromEntries(["price", "curve", "sample", "code"].map((name) => [name, document.getElementById(name)]));
  const slider = document.getElementById("slider");
  const words = (text) => (text ? text.split(" ") : []);
  const line = () => field("statistic").selectedOptions[0].dataset;
  let tab = "python";

  function question() {
    const given = {}, names = words(line().names);
    words(line().fields).forEach((each, place) => {
      const value = field(each).value;
      given[names[place]] = each === "share" || each === "bins" ? Number(value) : value;
    });
    if (field("by").value) given.by = field("by").value;
    if (field("where").value.trim()) given.where = field("where").value.trim();
    const within = field("within").value.trim();
    given.within = within.endsWith("%") ? within : Number(within);
    return { statistic: field("statistic").value, arguments: given };
  }
  function show() {
    const needed = words(line().fields), kind = line().columns, expects = line().expects;
    form.querySelectorAll("[data-for]").forEach((each) => {
      each.hidden = each.dataset.for !== "by" && !needed.includes(each.dataset.for);
    });
    form.querySelector("[data-expect]").hidden = !expects;
    form.querySelectorAll("span[data-expects]").forEach((each) => { each.hidden = each.dataset.expects !== (expects || "answer"); });
    let taken = null;
    for (const name of ["column", "other"]) {
      const fitting = [];
      for (const option of field(name).options) {
        option.hidden = option.disabled = option.dataset.type !== kind || option.value === taken;
        if (!option.disabled) fitting.push(option);
      }
      if (fitting.length && (field(name).selectedOptions[0]?.disabled ?? true)) fitting[0].selected = true;
      taken = field(name).value;
    }
  }
  function write() {
    const asked = question(), dataset = form.dataset.dataset, at = location.origin;
    if (tab === "sql") {
      parts.code.textContent = statement ?? "The statement appears here.";
    } else if (tab === "curl") {
      parts.code.textContent = `curl ${at}/v1/datasets/${encodeURIComponent(dataset)}/ask \\\n  -H "Authorization: Bearer $EXPOST_TOKEN" \\\n  -d '${JSON.stringify(asked).replaceAll("'", "'\\''")}'`;
    } else {
      const given = Object.entries(asked.arguments).map(([name, value]) => `${name}=${JSON.stringify(value)}`).join(", ");
      parts.code.textContent = `import expost\n\nsession = expost.connect("${at}", token, dataset=${JSON.stringify(dataset)})\nsession.${asked.statistic.replaceAll("-", "_")}(${given})`;
    }
  }
  let latest = 0, statement = null; // the question in SQL, null until the service has sent it
  async function look() {
    const mine = ++latest, asked = question(), expect = field("expect").value.trim();
    write();
    if (expect && line().expects) asked.arguments.expect = Number(expect.replaceAll(",", ""));
    const told = await send("/datasets/" + encodeURIComponent(form.dataset.dataset) + "/preview", asked);
    if (mine !== latest) return;
    form.removeAttribute("aria-busy");
    statement = told.sql || (told.error ? null : "SQL has no words for this question.");
    write();
    if (told.error) {
      parts.price.textContent = told.error.message;
      for (const name of ["curve", "sample"]) parts[name].innerHTML = '<p class="hint">Nothing to show for this question.</p>';
    } else for (const name of ["price", "curve", "sample"]) parts[name].innerHTML = told[name];
  }
  let base = 0; // the error in the answer's units that the slider is around; 0 for shares of the answer
  function place() {
    const typed = field("within").value.trim(), share = typed.endsWith("%");
    base = share ? 0 : Number(typed) || 0;
    slider.value = share ? (2 - Math.log10(parseFloat(typed) || 5)) * 33.3 : 60;
  }
  place();
  const select = document.getElementById("statement"), quote = document.getElementById("sql-price");
  let waiting = 0, asking = 0;
  async function price() {
    const mine = ++asking, text = select.elements.sql.value.trim();
    if (!text) { quote.replaceChildren(hint("The price appears here.")); select.removeAttribute("aria-busy"); return; }
    const told = await send("/v1/datasets/" + encodeURIComponent(form.dataset.dataset) + "/sql-price", { sql: text });
    if (mine !== asking) return;
    select.removeAttribute("aria-busy");
    const lines = told.error ? [hint(told.error.message, "pre")] : [strong("at most " + told.worst_case_text), hint(told.above_cap), ...told.parts.map((part) => hint(part.question + ": one unit moves it by at most " + part.sensitivity))];
    quote.replaceChildren(...lines);
  }
  function hint(text, kind) { const found = document.createElement(kind || "div"); found.className = "hint"; found.textContent = text; return found; }
  function strong(text) { const found = document.createElement("strong"); found.className = "price"; found.textContent = text; return found; }
  select.elements.sql.addEventListener("input", () => { select.setAttribute("aria-busy", "true"); asking++; clearTimeout(waiting); waiting = setTimeout(price, 400); });
  select.addEventListener("submit", () => { select.querySelector("button").disabled = true; });
  if (select.elements.sql.value) price();
  document.querySelectorAll("form.priced").forEach(watch);
  // A form whose fields depend on what is chosen, and whose price the service shows as a part of the page.
  function watch(priced) {
    const told = priced.querySelector("[data-quote]");
    let mine = 0, pause = 0;
    function arrange() {
      const chosen = [...priced.querySelectorAll("select[data-picks]")].map((each) => each.selectedOptions[0].dataset);
      const needed = chosen.flatMap((each) => words(each.fields)), power = words(chosen[0].power);
      const state = priced.querySelector("#test-state");
      if (state) {
        const usable = chosen[0].power !== "";
        state.options[1].hidden = state.options[1].disabled = !usable;
        if (!usable && state.value === "power") { state.value = "epsilon"; arrange(); return; }
        if (state.value === "power") needed.push(...power);
      }
      priced.querySelectorAll("[data-for]").forEach((each) => { each.hidden = !needed.includes(each.dataset.for); });
      let taken = null;
      for (const [name, kind] of words(chosen[0].kinds?.trim()).map((each) => each.split(":"))) {
        const list = priced.elements[name], fitting = [];
        for (const option of list.options) {
          option.hidden = option.disabled = option.dataset.type !== kind || option.value === taken;
          if (!option.disabled) fitting.push(option);
        }
        if (fitting.length && (list.selectedOptions[0]?.disabled ?? true)) fitting[0].selected = true;
        taken = list.value;
      }
    }
    async function quoteForm(asked) {
      let text = null;
      try {
        const found = await fetch(priced.dataset.price, { method: "POST", headers: { "x-csrf-token": csrf }, body: new URLSearchParams(new FormData(priced)) });
        if (found.ok) text = await found.text();
      } catch { /* said below */ }
      if (asked !== mine) return;
      priced.removeAttribute("aria-busy");
      if (text === null) told.replaceChildren(hint(AWAY)); else told.innerHTML = text;
    }
    const soon = () => { priced.setAttribute("aria-busy", "true"); clearTimeout(pause); const asked = ++mine; pause = setTimeout(() => quoteForm(asked), 300); };
    priced.addEventListener("input", () => { arrange(); soon(); });
    priced.addEventListener("submit", () => { priced.querySelector("button[type=submit]").disabled = true; });
    arrange();
    soon();
  }
  let timer = 0, touched = field("within").value !== field("within").dataset.first;
  const later = () => { form.setAttribute("aria-busy", "true"); latest++; statement = null; clearTimeout(timer); timer = setTimeout(look, 250); show(); write(); };
  form.addEventListener("input", (event) => {
    if (event.target === field("statistic") && !touched) { field("within").value = line().example; place(); }
    if (event.target === field("within") || event.target === slider) touched = true;
    if (event.target === field("within")) place();
    if (event.target === slider) {
      const error = base ? base * Math.pow(10, (60 - slider.value) / 40) : Math.pow(10, 2 - slider.value / 33.3);
      field("within").value = base ? String(Number(error.toPrecision(2))) : (error >= 10 ? error.toFixed(0) : error >= 1 ? error.toFixed(1) : error.toFixed(2)) + "%";
    }
    later();
  });
  const tabs = [...document.querySelectorAll("[data-tab]")];
  function choose(button) {
    tab = button.dataset.tab;
    tabs.forEach((each) => { each.setAttribute("aria-selected", String(each === button)); each.tabIndex = each === button ? 0 : -1; });
    write();
  }
  tabs.forEach((button, number) => {
    button.addEventListener("click", () => choose(button));
    button.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: tabs.length - 1 }[event.key];
      if (step) { const next = tabs[(number + step) % tabs.length]; next.focus(); choose(next); }
    });
  });
  choose(tabs[0]);
  document.getElementById("copy").addEventListener("click", async (event) => {
    const button = event.target;
    try { await navigator.clipboard.writeText(parts.code.textContent); button.textContent = "Copied"; }
    catch { getSelection().selectAllChildren(parts.code); button.textContent = "Selected"; } // without TLS browsers give no clipboard
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  form.addEventListener("submit", () => { form.querySelector("button[type=submit]").disabled = true; });
  later();
})();
