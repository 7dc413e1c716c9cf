// What a browser makes of a page: charts that cannot be seen, text outside of its box, text that is hard to read.
// Runs beside frames that have the page in them, and leaves what it found in the document.

function measure(frame) {
  const page = frame.contentDocument, view = frame.contentWindow, root = page.documentElement;
  page.querySelectorAll("details").forEach(details => { details.open = true; });
  const problems = [];
  if (root.scrollWidth > root.clientWidth) problems.push(`the page is ${root.scrollWidth} wide in a window of ${root.clientWidth}`);

  const charts = [];
  for (const figure of page.querySelectorAll("figure.chart")) {
    const drawing = figure.querySelector("svg[role=img][aria-label]");
    if (!drawing) { problems.push("a figure has no picture"); continue; }
    const box = drawing.getBoundingClientRect(), style = view.getComputedStyle(drawing);
    const title = drawing.querySelector("text")?.textContent.trim();
    const marks = [...drawing.querySelectorAll("rect, circle, polyline")].map(mark => mark.getBoundingClientRect());
    const seen = marks.some(mark => mark.width > 1 && mark.left >= box.left - 2 && mark.right <= box.right + 2);
    if (box.width < 100 || box.height < 20 || style.visibility !== "visible") problems.push(`'${title}' cannot be seen`);
    else if (!seen) problems.push(`'${title}' has no mark inside`);
    else charts.push(title);
    for (const text of drawing.querySelectorAll("text")) {
      const rect = text.getBoundingClientRect();
      if (!text.textContent.trim()) continue;
      if (rect.left < box.left - 2 || rect.right > box.right + 2) problems.push(`'${text.textContent.trim()}' is outside of its picture`);
      else if (rect.height < 9) problems.push(`'${text.textContent.trim()}' is ${rect.height.toFixed(1)} high`);
      const front = luminance(parse(view.getComputedStyle(text).fill).channels), behind = backgroundOf(figure, view);
      const contrast = (Math.max(front, behind) + 0.05) / (Math.min(front, behind) + 0.05);
      if (contrast < 4.5) problems.push(`'${text.textContent.trim()}' has a contrast of ${contrast.toFixed(2)}`);
    }
  }
  if (root.clientWidth >= 1200) {
    for (const table of page.querySelectorAll(".scroll")) {
      if (table.scrollWidth > table.clientWidth) problems.push(`'${table.getAttribute("aria-label")}' is cut off by ${table.scrollWidth - table.clientWidth}`);
    }
  }

  const texts = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode, text = node.textContent.trim().slice(0, 40);
    if (!text || node.parentElement.closest("svg")) continue;
    let box = node.parentElement;
    while (view.getComputedStyle(box).display.startsWith("inline")) box = box.parentElement;
    const outer = box.closest("td, th, figure, .tile, main").getBoundingClientRect();
    const range = page.createRange();
    range.selectNodeContents(node);
    const [inner, scrolls] = [box.getBoundingClientRect(), box.closest(".scroll") !== null];
    for (const rect of range.getClientRects()) {
      const within = other => rect.left >= other.left - 1.5 && rect.right <= other.right + 1.5;
      if (!within(inner) || !within(outer)) problems.push(`'${text}' is outside of its box`);
      else if (!scrolls && (rect.left < 0 || rect.right > root.clientWidth)) problems.push(`'${text}' is outside of the page`);
    }
    const contrast = contrastOf(node.parentElement, view);
    if (contrast < 4.5) problems.push(`'${text}' has a contrast of ${contrast.toFixed(2)}`);
  }
  const dark = view.matchMedia("(prefers-color-scheme: dark)").matches;
  const scripts = page.scripts.length;
  return { width: root.clientWidth, height: root.scrollHeight, dark, scripts, charts, problems };
}

function parse(colour) {
  const [red, green, blue, alpha = 1] = colour.match(/[\d.]+/g).map(Number);
  return { channels: [red, green, blue], alpha };
}

function luminance(channels) {
  const [red, green, blue] = channels.map(value => value / 255).map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function backgroundOf(element, view) {
  let behind = element;
  while (behind && parse(view.getComputedStyle(behind).backgroundColor).alpha === 0) behind = behind.parentElement;
  return behind ? luminance(parse(view.getComputedStyle(behind).backgroundColor).channels) : 1;
}

function contrastOf(element, view) {
  const front = luminance(parse(view.getComputedStyle(element).color).channels), back = backgroundOf(element, view);
  return (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
}

addEventListener("load", () => {
  const found = [...document.querySelectorAll("iframe")].map(measure);
  // Characters that the document's text would have escaped are escaped in the JSON.
  const text = JSON.stringify(found).replace(/[<>&\u00a0]/g, character => "\\u" + character.charCodeAt(0).toString(16).padStart(4, "0"));
  document.getElementById("found").textContent = text;
});
