// Prices while a question is built, and answers that arrive later. Pages work without this file.
"use strict";
(function () {
  const csrf = document.querySelector("meta[name=csrf]")?.content || "";
  const form = document.getElementById("question");
  document.querySelectorAll("[data-print]").forEach((button) => button.addEventListener("click", () => window.print()));

  const running = document.getElementById("running");
  if (running) {
    const look = async () => {
      const found = await fetch("/v1/jobs/" + running.dataset.job + "?wait=15");
      const job = found.ok ? await found.json() : { state: "running" };
      if (["running", "queued", "stopping"].includes(job.state)) setTimeout(look, 500); else location.reload();
    };
    look();
  }
  if (!form) return;

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
    if (tab === "curl") {
      parts.code.textContent = `curl ${at}/v1/datasets/${encodeURIComponent(dataset)}/ask \\\n  -H "Authorization: Bearer $EXPOST_TOKEN" \\\n  -d '${JSON.stringify(asked).replaceAll("'", "'\\''")}'`;
    } else {
      const given = Object.entries(asked.arguments).map(([name, value]) => `${name}=${JSON.stringify(value)}`).join(", ");
      parts.code.textContent = `import expost\n\nsession = expost.connect("${at}", token, dataset=${JSON.stringify(dataset)})\nsession.${asked.statistic.replaceAll("-", "_")}(${given})`;
    }
  }
  let latest = 0;
  async function look() {
    const mine = ++latest, asked = question(), expect = field("expect").value.trim();
    write();
    if (expect && line().expects) asked.arguments.expect = Number(expect.replaceAll(",", ""));
    const found = await fetch("/datasets/" + encodeURIComponent(form.dataset.dataset) + "/preview", {
      method: "POST", headers: { "content-type": "application/json", "x-csrf-token": csrf }, body: JSON.stringify(asked),
    });
    const told = await found.json();
    if (mine !== latest) return;
    form.removeAttribute("aria-busy");
    if (told.error) {
      parts.price.textContent = told.error.message;
      parts.curve.textContent = parts.sample.textContent = "";
    } else for (const name of ["price", "curve", "sample"]) parts[name].innerHTML = told[name];
  }
  let timer = 0, touched = field("within").value !== field("within").dataset.first;
  const later = () => { form.setAttribute("aria-busy", "true"); latest++; clearTimeout(timer); timer = setTimeout(look, 250); show(); write(); };
  form.addEventListener("input", (event) => {
    if (event.target === field("statistic") && !touched) field("within").value = line().example;
    if (event.target === field("within") || event.target === slider) touched = true;
    if (event.target === slider) {
      const share = Math.pow(10, 2 - slider.value / 33.3);
      field("within").value = (share >= 10 ? share.toFixed(0) : share >= 1 ? share.toFixed(1) : share.toFixed(2)) + "%";
    }
    later();
  });
  document.querySelectorAll("[data-tab]").forEach((button) => button.addEventListener("click", () => {
    tab = button.dataset.tab;
    document.querySelectorAll("[data-tab]").forEach((each) => each.setAttribute("aria-selected", String(each === button)));
    write();
  }));
  form.addEventListener("submit", () => { form.querySelector("button[type=submit]").disabled = true; });
  later();
})();
