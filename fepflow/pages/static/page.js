// What pages do with JavaScript, beyond htmx: keys of the labelling queue, and charts that answer the mouse.
"use strict";

// A control with data-key is pressed by that key, unless something is being typed.
document.addEventListener("keydown", (event) => {
  const target = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey || target.matches("input:not([type=radio]), textarea, select")) return;
  const control = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (control) {
    event.preventDefault();
    control.click();
  }
});

// A figure with data-chart holds a picture that the server drew, and the same chart for Vega, which is loaded only for
// such pages. Vega's expressions are interpreted: the policy of our pages allows no eval.
const figures = document.querySelectorAll("[data-chart]");

function load(address) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = address;
    script.onload = resolve;
    script.onerror = reject;
    document.head.append(script);
  });
}

const hint = document.createElement("div");
hint.className = "chart-hint";
hint.setAttribute("role", "status");
hint.hidden = true;

function showHint(handler, event, item, text) {
  hint.hidden = text === null || text === undefined || text === "";
  if (hint.hidden) return;
  hint.textContent = text;
  const right = event.clientX + 14 + hint.offsetWidth > document.documentElement.clientWidth;
  hint.style.left = `${Math.max(4, right ? event.clientX - 14 - hint.offsetWidth : event.clientX + 14)}px`;
  hint.style.top = `${event.clientY + 14}px`;
}

async function draw(figure) {
  const runtime = vega.parse(JSON.parse(figure.dataset.chart), null, { ast: true });
  const place = document.createElement("div");
  const picture = figure.firstElementChild;
  const view = new vega.View(runtime, { expr: vegaInterpreter.expressionInterpreter, renderer: "svg", hover: true });
  view.tooltip(showHint);
  figure.append(place);
  await view.initialize(place).runAsync();
  picture.remove();
  figure.classList.add("drawn");
}

if (figures.length) {
  const [first, ...others] = document.querySelector("meta[name=fepflow-vega]").content.split(" ");
  document.body.append(hint);
  load(first)
    .then(() => Promise.all(others.map(load)))
    .then(() => Promise.all([...figures].map(draw)));
}
