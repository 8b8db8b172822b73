// The document's text around a place, each part shaded by what the state holds of it.

import { call } from "./api.js";
import { make } from "./dom.js";

const CHARACTERS = 3000;
const DARKEST = 0.55; // the text must stay readable

/** Nodes for the bins around `place`, as many as fit into 3,000 characters. Throws ApiError. */
export async function shadedText({ job, bins, passages, signal }, heats, place) {
  const [first, last] = around(bins, place);
  const start = bins[first].start;
  const wanted = Math.min(CHARACTERS, bins[last].end - start);
  if (wanted === 0) {
    return [];
  }
  const piece = await call(`/v1/jobs/${job.id}/document?start=${start}&count=${wanted}`, { signal });
  const characters = Array.from(piece.text); // places count characters, strings count halves of some
  const nodes = [];
  for (let index = first; index <= last; index += 1) {
    const bin = bins[index];
    const text = characters.slice(bin.start - start, bin.end - start).join("");
    const span = make("span", {}, text);
    span.style.backgroundColor = `rgba(var(--heat), ${(DARKEST * heats[index]).toFixed(3)})`;
    span.classList.toggle("here", index === place);
    span.classList.toggle(
      "again",
      passages.some((passage) => overlap(passage, bin)),
    );
    nodes.push(span);
  }
  return [first > 0 ? "… " : "", ...nodes, piece.end < bins.at(-1).end ? " …" : ""];
}

/** First and last bin around a place, about as much before it as after it. */
function around(bins, place) {
  let [first, last] = [place, place];
  for (;;) {
    const length = bins[last].end - bins[first].start;
    const before = first > 0 && length + size(bins[first - 1]) <= CHARACTERS;
    const after = last + 1 < bins.length && length + size(bins[last + 1]) <= CHARACTERS;
    if (!before && !after) {
      return [first, last];
    }
    const nearer = bins[place].start - bins[first].start <= bins[last].end - bins[place].end;
    if (before && (nearer || !after)) {
      first -= 1;
    } else {
      last += 1;
    }
  }
}

function size(bin) {
  return bin.end - bin.start;
}

function overlap(passage, bin) {
  return passage.start < bin.end && bin.start < passage.end;
}
