// Reads the chart under the pointer aloud: the value of each line at that time.
for (const chart of document.querySelectorAll("svg.chart")) {
  const [left, top, right, bottom, xMax, yMax] = chart.dataset.frame.split(" ").map(Number);
  const lines = [...chart.querySelectorAll("polyline")].map((line) => ({
    label: line.dataset.label,
    color: getComputedStyle(line).stroke,
    points: line.getAttribute("points").split(" ").filter(Boolean).map((p) => p.split(",").map(Number)),
  })).filter((line) => line.points.length > 0);
  const number = (v) => v.toLocaleString("en", { maximumFractionDigits: v < 10 ? 2 : 0 });
  let tip, cursor;
  const leave = () => { tip?.remove(); cursor?.remove(); tip = cursor = undefined; };
  chart.addEventListener("pointerleave", leave);
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const x = (event.clientX - box.left) * (chart.viewBox.baseVal.width / box.width);
    if (x < left || x > right || lines.length === 0) { leave(); return; }
    if (!tip) {
      tip = document.body.appendChild(Object.assign(document.createElement("div"), { className: "tip" }));
      cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
      cursor.setAttribute("class", "cursor");
      chart.append(cursor);
    }
    for (const [name, value] of Object.entries({ x1: x, x2: x, y1: top, y2: bottom })) {
      cursor.setAttribute(name, value);
    }
    const rows = lines.map((line) => {
      const near = line.points.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
      const value = ((bottom - near[1]) / (bottom - top)) * yMax;
      return { value, text: `<div style="color:${line.color}"><span>${line.label}</span><b>${number(value)}</b></div>` };
    });
    rows.sort((a, b) => b.value - a.value);
    const time = ((x - left) / (right - left)) * xMax;
    tip.innerHTML = `<div><span>at</span><span>${number(time)}${chart.dataset.unit}</span></div>` + rows.map((r) => r.text).join("");
    tip.style.left = `${Math.min(event.clientX + 16, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${event.clientY + 12}px`;
  });
}
