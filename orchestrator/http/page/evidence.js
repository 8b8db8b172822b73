// What the state holds of the document: a heat strip over its length, and the text at the place chosen.

import { call } from "./api.js";
import { byId } from "./dom.js";
import { count, figure } from "./format.js";
import { shadedText } from "./shading.js";
import { Strip } from "./strip.js";

const BINS = 1024;
const READ_AFTER_MS = 150; // of rest: moving along the strip asks for no text
// What is shown of a bin, and how dark a part of the most is. Shares span three powers of ten, weights do not.
const MEASURES = {
  entries: { of: (bin) => bin.entries / bin.tokens, dark: Math.sqrt },
  weight: { of: (bin) => bin.weight / bin.tokens, dark: (part) => part },
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
    view = { job, bins, passages: [], signal };
    byId("evidence").hidden = byId("evidence-shown").hidden = false;
    draw();
    const passages = job.result.reread_segments ?? [];
    goTo(passages[0] ?? { start: 0 }, passages);
  } catch (error) {
    if (!signal.aborted) {
      byId("evidence").hidden = false; // without the strip, which shows the document before
      byId("evidence-shown").hidden = true;
      byId("evidence-error").textContent = error.message;
    }
  }
}

/** Marks `passages` of the document, {start, end} in characters, and moves to one; false without a strip. */
export function goTo(passage, passages) {
  if (view === null) {
    return false;
  }
  view.passages = passages;
  strip.setPassages(passages);
  strip.goTo(strip.binAt(passage.start));
  return true;
}

/** Heats from 0 to 1. */
function heats() {
  const measure = MEASURES[byId("measure").value];
  const values = view.bins.map(measure.of);
  const kept = values.filter((value) => value > 0).sort((one, other) => one - other);
  const most = kept[Math.floor(0.95 * kept.length)]; // a few outliers do not make all else pale
  return values.map((value) => (value > 0 ? measure.dark(Math.min(1, value / most)) : 0));
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
      scrollToPlace(byId("passage"));
      byId("evidence-error").textContent = "";
    }
  } catch (error) {
    if (view === asked) {
      byId("evidence-error").textContent = error.message;
    }
  }
}

function scrollToPlace(passage) {
  const here = passage.querySelector(".here");
  if (here !== null) {
    const below = here.getBoundingClientRect().top - passage.getBoundingClientRect().top;
    passage.scrollTop += below - passage.clientHeight / 3;
  }
}
