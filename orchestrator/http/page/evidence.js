// What the state holds of the document: a heat strip over its length, and the text at the place chosen.

import { call } from "./api.js";
import { byId } from "./dom.js";
import { count, figure } from "./format.js";
import { shadedText } from "./shading.js";
import { Strip } from "./strip.js";

const BINS = 1024;
const READ_AFTER_MS = 150; // of rest: moving along the strip asks for no text
const MEASURES = {
  weight: (bin) => bin.weight / bin.tokens,
  entries: (bin) => bin.entries / bin.tokens,
};

let strip = null;
let view = null; // {job, bins, passages, signal}
let timer = 0;

export function setUpEvidence() {
  strip = new Strip(() => {
    clearTimeout(timer);
    timer = setTimeout(readHere, READ_AFTER_MS);
  });
  byId("measure").addEventListener("change", () => {
    draw();
    readHere();
  });
}

export function clearEvidence() {
  clearTimeout(timer);
  view = null;
  byId("evidence").hidden = true;
  byId("passage").replaceChildren();
  byId("evidence-error").textContent = "";
}

/** Shows the evidence of a finished job. What is wrong is told in its place. */
export async function showEvidence(job, signal) {
  try {
    const { bins } = await call(`/v1/jobs/${job.id}/evidence?bins=${BINS}`, { signal });
    view = { job, bins, passages: job.result.reread_segments ?? [], signal };
    byId("evidence").hidden = false;
    draw();
    strip.setPassages(view.passages);
    goTo(view.passages[0] ?? { start: 0 });
  } catch (error) {
    if (!signal.aborted) {
      byId("evidence").hidden = false;
      byId("evidence-error").textContent = error.message;
    }
  }
}

/** Moves to a passage of the document, {start} in characters. */
export function goTo(passage) {
  if (view !== null) {
    strip.goTo(strip.binAt(passage.start));
  }
}

/** Heats from 0 to 1; the root lets what is little be seen beside what is much. */
function heats() {
  const values = view.bins.map(MEASURES[byId("measure").value]);
  const kept = values.filter((value) => value > 0).sort((one, other) => one - other);
  const most = kept[Math.floor(0.95 * kept.length)]; // a few outliers do not make all else pale
  return values.map((value) => (value > 0 ? Math.min(1, Math.sqrt(value / most)) : 0));
}

function draw() {
  if (view !== null) {
    strip.show(view.bins, heats(), describe);
  }
}

function describe(index) {
  const { start, end, tokens, weight, entries } = view.bins[index];
  return (
    `Characters ${count(start)} to ${count(end)}: ${figure(entries)} of ${count(tokens)} tokens kept, ` +
    `with a weight of ${figure(weight)} (means over layers and heads)`
  );
}

async function readHere() {
  if (view === null) {
    return;
  }
  const asked = view;
  const place = strip.place;
  try {
    const nodes = await shadedText(asked, heats(), place);
    if (view === asked && strip.place === place) {
      byId("passage").replaceChildren(...nodes);
      byId("evidence-error").textContent = "";
    }
  } catch (error) {
    if (view === asked) {
      byId("evidence-error").textContent = error.message;
    }
  }
}
