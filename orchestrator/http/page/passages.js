// The passages that a text was written from, as a list of buttons with the beginning of each.

import { call } from "./api.js";
import { button, make } from "./dom.js";
import { count } from "./format.js";

const EXCERPT = 240;

/** A list for `result.reread_segments`. One that is chosen goes to `onChoose(passage, all)`; where that has
 * no place to show it and returns false, it is shown whole in the list. */
export function passageList(job, onChoose) {
  const found = job.result?.reread_segments ?? [];
  const list = make("ul", { class: "passages" });
  for (const passage of found) {
    const place = `Read again: characters ${count(passage.start)} to ${count(passage.end)}`;
    const excerpt = make("span");
    const choose = button(place, () => onChoose(passage, found) || fill(job.id, passage, excerpt));
    choose.append(make("br"), excerpt);
    list.append(make("li", {}, choose));
    fill(job.id, passage, excerpt, EXCERPT);
  }
  return list;
}

async function fill(jobId, { start, end }, excerpt, most = Infinity) {
  const wanted = Math.max(1, Math.min(most, end - start));
  try {
    const piece = await call(`/v1/jobs/${jobId}/document?start=${start}&count=${wanted}`);
    excerpt.textContent = piece.text.trim() + (wanted < end - start ? " …" : "");
  } catch (error) {
    excerpt.textContent = error.message;
  }
}
