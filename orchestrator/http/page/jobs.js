// The list of jobs, the newest first, and what can be done with each.

import { call } from "./api.js";
import { button, byId, make, replaceList } from "./dom.js";
import { TERMINAL } from "./events.js";
import { age } from "./format.js";

const SHOWN = 50;
const KINDS = { summarize: "summary", ask: "question", complete: "completion" };

/** Fetches and shows the jobs; `current` is the id of the one in view. `onGone(id)`: it was deleted. */
export async function showJobs(current, onGone) {
  try {
    const jobs = await call(`/v1/jobs?limit=${SHOWN}`);
    const key = JSON.stringify([current, jobs.map((job) => [job.id, job.status, age(job.created)])]);
    replaceList(byId("jobs"), key, () => jobs.map((job) => item(job, current, onGone)));
    byId("jobs-none").hidden = jobs.length > 0;
    byId("jobs-error").textContent = "";
  } catch (error) {
    byId("jobs-error").textContent = error.message;
  }
}

function item(job, current, onGone) {
  const about = job.kind === "ask" ? job.question : job.title;
  const link = make("a", { href: `#/jobs/${job.id}` }, about);
  const told = make("p", { class: "help" }, `${KINDS[job.kind]}, ${status(job)}, ${age(job.created)} `);
  const shown = job.id === current;
  const running = !TERMINAL.has(job.status);
  const act = async (path, after) => {
    try {
      await call(path, { method: "DELETE" });
      after();
    } catch (error) {
      byId("jobs-error").textContent = error.message;
      return;
    }
    await showJobs(current, onGone);
  };
  told.append(
    running
      ? button("Cancel", () => act(`/v1/jobs/${job.id}`, () => {}), { "aria-label": `Cancel ${about}` })
      : button("Delete", () => act(`/v1/jobs/${job.id}/record`, () => onGone(job.id)), {
          "aria-label": `Delete ${about}`,
        }),
  );
  return make("li", shown ? { "aria-current": "true" } : {}, link, told);
}

function status(job) {
  const reading = job.status === "prefill" || job.status === "compress";
  return reading && job.segments ? `segment ${job.segment + 1} of ${job.segments}` : job.status;
}
