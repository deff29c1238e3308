// Reads drawings as JSON from standard input, has Mermaid and Graphviz read them,
// and writes what they see in them: nodes with their labels, edges, frames.
import { readFileSync } from "node:fs";
import { JSDOM } from "jsdom";

const { window } = new JSDOM("");
globalThis.window = window;
globalThis.document = window.document;
const { default: mermaid } = await import("mermaid");
const { Graphviz } = await import("@hpcc-js/wasm-graphviz");
const graphviz = await Graphviz.load();

async function seenByMermaid(text) {
  await mermaid.parse(text);
  const { db } = await mermaid.mermaidAPI.getDiagramFromText(text);
  const decode = (label) => {
    const e = document.createElement("div");
    // What the renderer does with the entities that the parser has marked.
    e.innerHTML = label.replace(/ﬂ°°/g, "&#").replace(/ﬂ°/g, "&").replace(/¶ß/g, ";");
    return e.innerHTML.includes("<br>") ? [...e.childNodes].map((n) => (n.nodeName === "BR" ? "\n" : n.textContent)).join("") : e.textContent;
  };
  const frames = new Set(db.getSubGraphs().map((g) => g.id)); // those that edges name are vertices too
  return {
    nodes: [...db.getVertices().values()].filter((v) => !frames.has(v.id)).map((v) => decode(v.text ?? v.id)),
    edges: db.getEdges().map((e) => decode(e.text ?? "")),
    frames: db.getSubGraphs().map((g) => decode(g.title)),
  };
}

function seenByGraphviz(text) {
  const g = JSON.parse(graphviz.layout(text, "json"));
  const all = g.objects ?? [];
  const label = (o) => (o.label ?? "").replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c)).replaceAll("&amp;", "&");
  return {
    nodes: all.filter((o) => o.nodes === undefined && !o.name.startsWith("cluster_")).map(label),
    edges: (g.edges ?? []).map(label),
    frames: all.filter((o) => o.name.startsWith("cluster_")).map(label),
  };
}

const out = [];
for (const d of JSON.parse(readFileSync(0, "utf8"))) {
  try {
    out.push({ seen: d.format === "dot" ? seenByGraphviz(d.text) : await seenByMermaid(d.text) });
  } catch (e) {
    out.push({ error: String(e) });
  }
}
process.stdout.write(JSON.stringify(out));
