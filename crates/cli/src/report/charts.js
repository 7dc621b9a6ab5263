// Draws each chart at the width that there is: lines that are asked for, axes that cover them, a
// label at the end of each, and what is under the pointer.
const NAMESPACE = "http://www.w3.org/2000/svg";
const LINES_SHOWN = 5, LABEL_STEP = 15, LABEL_GAP = 18, TOP = 26, BOTTOM = 40, FAR_ABOVE = 0.4;

function element(name, attributes, parent, text) {
  const made = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent?.append(made);
  return made;
}

// The least of 1, 2, 5 times a power of ten that is not below `step`.
function roundStep(step) {
  if (!(step > 0) || !isFinite(step)) return 1;
  const power = 10 ** Math.floor(Math.log10(step));
  return [1, 2, 5, 10].map((m) => m * power).find((s) => s >= step * 0.999) ?? 1;
}

function short(value, step) {
  if (value === 0) return "0";
  const [scale, suffix] = step >= 1e6 ? [1e6, "M"] : step >= 1e3 ? [1e3, "k"] : [1, ""];
  const digits = Math.max(0, -Math.floor(Math.log10(step / scale) + 1e-9));
  return (value / scale).toFixed(digits) + suffix;
}

const precise = (v) => v.toLocaleString("en", { maximumFractionDigits: v < 10 ? 2 : v < 100 ? 1 : 0 });

// Places for labels that want to be at `wanted`, in ascending order, at least a step apart.
function apart(wanted, low, high) {
  const places = [...wanted];
  for (let at = 0; at < places.length; at++) {
    places[at] = Math.max(places[at], at ? places[at - 1] + LABEL_STEP : low);
  }
  for (let at = places.length - 1; at >= 0; at--) {
    places[at] = Math.min(places[at], at < places.length - 1 ? places[at + 1] - LABEL_STEP : high);
  }
  return places;
}

function chart(figure) {
  const data = JSON.parse(figure.dataset.chart);
  const series = data.series.filter((line) => line.points.length > 0);
  const first = series.map((line) => line.on);
  let svg, tip, cursor, frame, drawn = [];
  const chips = series.length > 1 && data.labels ? figure.appendChild(document.createElement("div")) : null;

  function draw() {
    const width = Math.max(280, figure.clientWidth);
    const height = data.labels ? Math.min(data.height, Math.max(240, width * 0.6)) : data.height;
    const on = series.filter((line) => line.on);
    const ends = on.flatMap((line) => line.points).concat(data.mark ? [data.mark] : []);
    const xMax = Math.max(...ends.map((p) => p[0]), 0) || 1;
    const top = Math.max(...ends.map((p) => p[1]), data.yMax, 0);
    // From zero, unless all that is shown is far above.
    const least = data.yMax > 0 || ends.length === 0 ? 0 : Math.min(...ends.map((p) => p[1]));
    const low = least > top * FAR_ABOVE ? least : 0;
    const yStep = roundStep((top - low) / 4);
    const yMin = Math.floor(low / yStep + 1e-9) * yStep;
    const yMax = Math.max(Math.ceil(top / yStep - 1e-9) * yStep, yMin + yStep);
    const longest = Math.max(0, ...on.map((line) => line.label.length));
    const left = 12 + 8 * Math.max(3, short(yMax, yStep).length);
    const right = width - (data.labels ? LABEL_GAP + 6 + 7.2 * longest : 10);
    const xStep = roundStep(xMax / Math.max(2, (right - left) / 76));
    frame = {
      left, right, bottom: height - BOTTOM, xMax, yMin, yMax,
      x: (v) => left + (v / xMax) * (right - left),
      y: (v) => height - BOTTOM - ((v - yMin) / (yMax - yMin)) * (height - BOTTOM - TOP),
    };
    svg?.remove();
    figure.querySelector("svg")?.remove();
    svg = element("svg", { class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": data.title });
    figure.prepend(svg);
    axes(xStep, yStep, height);
    drawn = on.map((line) => {
      const points = line.points.map((p) => [frame.x(p[0]), frame.y(p[1])]);
      const text = points.map((p) => p.map((v) => v.toFixed(1)).join(",")).join(" ");
      return { line, points, path: element("polyline", { class: `line ${line.class}`, points: text }, svg) };
    });
    if (data.mark) mark(data.mark);
    if (data.labels) labels();
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", leave);
  }

  function axes(xStep, yStep, height) {
    const { left, right, bottom, xMax, yMin, yMax } = frame;
    if (data.shaded) {
      const [from, to, name] = data.shaded;
      const [a, b] = [frame.x(Math.min(from, xMax)), frame.x(Math.min(to, xMax))];
      element("rect", { class: "shade", x: a, y: TOP, width: Math.max(0, b - a), height: bottom - TOP }, svg);
      element("text", { class: "tick", x: b - 4, y: TOP + 12, "text-anchor": "end" }, svg, name);
    }
    for (let at = Math.round(yMin / yStep); at * yStep <= yMax * 1.0001; at++) {
      const y = frame.y(at * yStep);
      element("line", { class: "grid", x1: left, x2: right, y1: y, y2: y }, svg);
      element("text", { class: "tick", x: left - 8, y: y + 4, "text-anchor": "end" }, svg, short(at * yStep, yStep));
    }
    for (let at = 0; at * xStep <= xMax * 1.0001; at++) {
      const x = frame.x(at * xStep);
      element("line", { class: "grid", x1: x, x2: x, y1: bottom, y2: bottom + 4 }, svg);
      const text = short(at * xStep, xStep) + (at ? data.unit : "");
      element("text", { class: "tick", x, y: bottom + 18, "text-anchor": "middle" }, svg, text);
    }
    element("text", { class: "axis", x: 0, y: 12 }, svg, data.y);
    element("text", { class: "axis", x: right, y: height - 4, "text-anchor": "end" }, svg, data.x);
    if (data.level) {
      const y = frame.y(data.level[0]);
      element("line", { class: "level", x1: left, x2: right, y1: y, y2: y }, svg);
      element("text", { class: "tick", x: left + 6, y: y - 5 }, svg, data.level[1]);
    }
  }

  function labels() {
    const ends = drawn.map((each) => ({ each, y: each.points.at(-1)[1] })).sort((a, b) => a.y - b.y);
    const room = Math.floor((frame.bottom - TOP) / LABEL_STEP);
    const kept = ends.length > room ? ends.slice(0, room) : ends;
    const places = apart(kept.map((end) => end.y), TOP + 4, frame.bottom);
    kept.forEach(({ each, y }, at) => {
      const [x, end] = [frame.right + LABEL_GAP, each.points.at(-1)[0]];
      if (Math.abs(places[at] - y) > 4 || end < frame.right - 2) {
        const points = `${end},${y} ${x - 6},${places[at]} ${x - 2},${places[at]}`;
        element("polyline", { class: `leader ${each.line.class}`, points }, svg);
      }
      each.label = element("text", { class: `label ${each.line.class}`, x, y: places[at] + 4 }, svg, each.line.label);
    });
  }

  function mark([x, y, name]) {
    const [cx, cy] = [frame.x(x), frame.y(y)];
    element("circle", { class: "mark", cx, cy, r: 6 }, svg);
    const text = element("text", { class: "marked", x: cx, y: cy - 12 > TOP ? cy - 12 : cy + 22, "text-anchor": "middle" }, svg, name);
    const box = text.getBBox();
    if (box.x < frame.left) text.setAttribute("x", cx + frame.left - box.x);
    if (box.x + box.width > frame.right) text.setAttribute("x", cx - (box.x + box.width - frame.right));
  }

  // One line stands out, or none.
  function highlight(line) {
    svg.classList.toggle("dim", line !== undefined);
    for (const each of drawn) {
      const isHot = each.line === line;
      each.path.classList.toggle("hot", isHot);
      each.label?.classList.toggle("hot", isHot);
      if (isHot) each.path.parentNode.append(each.path);
    }
  }

  function leave() { tip?.remove(); cursor?.remove(); tip = cursor = undefined; highlight(undefined); }

  function point(event) {
    const box = svg.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    if (x < frame.left || x > frame.right || drawn.length === 0) { leave(); return; }
    cursor ??= element("line", { class: "cursor" }, svg);
    for (const [name, value] of Object.entries({ x1: x, x2: x, y1: TOP, y2: frame.bottom })) cursor.setAttribute(name, value);
    const rows = drawn.map(({ line, points }) => {
      const at = points.reduce((best, p, i) => (Math.abs(p[0] - x) < Math.abs(points[best][0] - x) ? i : best), 0);
      return { line, value: line.points[at][1], far: Math.abs(points[at][1] - y) };
    });
    const near = rows.reduce((a, b) => (b.far < a.far ? b : a));
    highlight(near.line);
    rows.sort((a, b) => b.value - a.value);
    tip ??= document.body.appendChild(Object.assign(document.createElement("div"), { className: "tip" }));
    tip.replaceChildren(row("at", precise(((x - frame.left) / (frame.right - frame.left)) * frame.xMax) + data.unit, ""));
    for (const each of rows) tip.append(row(each.line.label, precise(each.value), each.line.class, each === near));
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 16, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.min(event.clientY + 12, innerHeight - tip.offsetHeight - 8)}px`;
  }

  function row(name, value, classes, isNear) {
    const made = document.createElement("div");
    made.className = `${classes}${isNear ? " near" : ""}`;
    for (const [tag, text] of [["span", name], ["b", value]]) {
      made.appendChild(document.createElement(tag)).textContent = text;
    }
    return made;
  }

  function showChips() {
    chips.className = "chips";
    chips.replaceChildren();
    const chip = (text, classes, isOn, act) => {
      const made = chips.appendChild(document.createElement("button"));
      made.type = "button";
      made.textContent = text;
      made.className = classes;
      if (isOn !== undefined) made.setAttribute("aria-pressed", isOn);
      made.addEventListener("click", () => { act(); leave(); draw(); showChips(); });
      return made;
    };
    for (const line of series) {
      const made = chip(line.label, line.class, line.on, () => { line.on = !line.on; });
      made.addEventListener("pointerenter", () => { if (line.on) highlight(line); });
      made.addEventListener("pointerleave", () => highlight(undefined));
    }
    if (series.length > LINES_SHOWN) {
      const all = series.every((line) => line.on);
      chip(all ? "the first" : "all", "every", undefined, () => series.forEach((line, at) => { line.on = all ? first[at] : true; }));
    }
  }

  draw();
  if (chips) showChips();
  new ResizeObserver(() => { if (figure.clientWidth !== svg.clientWidth) { leave(); draw(); } }).observe(figure);
}

document.querySelectorAll("figure.plot").forEach(chart);
