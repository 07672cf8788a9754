(() => {
  "use strict";
  const root = document.documentElement;
  const systemIsDark = window.matchMedia("(prefers-color-scheme: dark)");
  const templates = JSON.parse(document.getElementById("templates").textContent);
  const plots = [...document.querySelectorAll(".chart")];
  const drawn = new Set();
  let chosen = null; // the reader's choice, for this page only; without one the system decides
  let isPrinting = false;

  const theme = () => (isPrinting ? "light" : chosen ?? (systemIsDark.matches ? "dark" : "light"));

  // Figures: those in sight first, the others while the page is idle, hidden ones when they are chosen.
  const draw = (plot) => {
    if (drawn.has(plot)) return;
    drawn.add(plot);
    const figure = JSON.parse(plot.parentElement.querySelector("script").textContent);
    const layout = { ...figure.layout, template: templates[theme()] };
    const config = {
      responsive: true,
      displaylogo: false,
      modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
      toImageButtonOptions: { format: "svg", filename: plot.dataset.name },
    };
    Plotly.newPlot(plot, figure.data, layout, config);
  };
  const isShown = (plot) => !plot.closest("[hidden]");
  // With a limit: a frame that a browser does not paint may never be idle.
  const whenIdle = (task) =>
    window.requestIdleCallback ? window.requestIdleCallback(task, { timeout: 500 }) : setTimeout(task, 1);
  const drawRest = () => {
    const next = plots.find((plot) => isShown(plot) && !drawn.has(plot));
    if (!next) return;
    draw(next);
    whenIdle(drawRest);
  };
  const repaint = (changes = {}) => {
    for (const plot of drawn) Plotly.relayout(plot, { template: templates[theme()], ...changes });
  };
  if (plots.length) {
    const watch = new IntersectionObserver(
      (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => draw(entry.target)),
      { rootMargin: "400px" },
    );
    plots.forEach((plot) => watch.observe(plot));
    whenIdle(drawRest);
  }

  document.querySelectorAll(".choice select").forEach((select) => {
    const figures = [...select.closest(".group").querySelectorAll("figure")];
    const show = () => {
      figures.forEach((figure) => (figure.hidden = figure.id !== select.value));
      const plot = document.getElementById(select.value).querySelector(".chart");
      if (drawn.has(plot)) Plotly.Plots.resize(plot);
      else draw(plot);
    };
    select.addEventListener("change", show);
  });

  // Light and dark
  document.querySelector(".theme").addEventListener("click", () => {
    chosen = theme() === "dark" ? "light" : "dark";
    root.dataset.theme = chosen;
    repaint();
  });
  systemIsDark.addEventListener("change", () => repaint());

  // Paper is light, narrow, and shows what was hidden.
  const hiddenFigures = [...document.querySelectorAll("figure[hidden]")];
  window.addEventListener("beforeprint", () => {
    isPrinting = true;
    document.querySelectorAll(".group figure").forEach((figure) => (figure.hidden = false));
    plots.forEach(draw);
    repaint({ width: 660 });
    document.querySelectorAll("details").forEach((details) => (details.open = true));
  });
  window.addEventListener("afterprint", () => {
    isPrinting = false;
    if (hiddenFigures.length) document.querySelectorAll(".choice select").forEach((select) => select.dispatchEvent(new Event("change")));
    repaint({ width: null, autosize: true });
  });

  // The runs of a cell
  const box = document.getElementById("provenance");
  const made = (tag, text, parent) => {
    const element = document.createElement(tag);
    element.textContent = text;
    parent.append(element);
    return element;
  };
  const describe = (row, list) => {
    const cells = row.cells;
    const item = made("li", "", list);
    item.append(cells[0].firstElementChild.cloneNode(true));
    made("small", `${cells[1].textContent} \u00b7 seed ${cells[4].textContent}`, item);
    made("small", `config ${cells[5].textContent} \u00b7 source ${cells[6].textContent} \u00b7 schema ${cells[7].textContent}`, item);
  };
  const words = (text) => text.split(" ").filter(Boolean);
  const openRuns = (link) => {
    const rows = document.querySelectorAll(".run-list tbody tr");
    const known = words(link.dataset.runs);
    const strangers = words(link.dataset.strangers);
    box.replaceChildren();
    made("h4", `${link.textContent} is from ${known.length + strangers.length === 1 ? "one run" : `${known.length + strangers.length} runs`}`, box);
    const list = made("ul", "", box);
    known.forEach((place) => describe(rows[Number(place)], list));
    strangers.forEach((id) => made("code", id, made("li", "", list)));
    box.tabIndex = -1;
    box.showPopover();
    place(link.getBoundingClientRect());
    box.focus({ preventScroll: true });
  };
  const place = (near) => {
    const { offsetWidth: width, offsetHeight: height } = box;
    const below = near.bottom + 8;
    const top = below + height < innerHeight ? below : Math.max(8, near.top - height - 8);
    box.style.top = `${top}px`;
    box.style.left = `${Math.max(8, Math.min(near.left, innerWidth - width - 12))}px`;
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a.runs");
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey || !box?.showPopover) return;
    event.preventDefault();
    openRuns(link);
  });
  window.addEventListener("scroll", () => box?.matches(":popover-open") && box.hidePopover(), { passive: true });

  // Contents
  const contents = document.querySelector(".contents details");
  if (contents) {
    const wide = window.matchMedia("(min-width: 68.01rem)");
    const fold = () => (contents.open = wide.matches);
    wide.addEventListener("change", fold);
    fold();
    contents.addEventListener("click", (event) => {
      if (event.target.closest("a") && !wide.matches) contents.open = false;
      if (event.target.closest("summary") && wide.matches) event.preventDefault();
    });
    const entries = new Map([...contents.querySelectorAll(":scope > ol > li > a")].map((a) => [a.hash.slice(1), a]));
    const sections = [...document.querySelectorAll("main > section")];
    const mark = () => {
      const passed = sections.filter((section) => section.getBoundingClientRect().top < innerHeight / 3);
      const current = (passed.at(-1) ?? sections[0])?.id;
      entries.forEach((a, id) => (id === current ? a.setAttribute("aria-current", "true") : a.removeAttribute("aria-current")));
    };
    window.addEventListener("scroll", mark, { passive: true });
    mark();
  }
})();
