// The view of one job: how far it is, its text, its figures, questions about it, and its evidence.

import { call } from "./api.js";
import { setUpAsk, showQuestions } from "./ask.js";
import { byId, make, setText } from "./dom.js";
import { TERMINAL } from "./events.js";
import { clearEvidence, goTo, showEvidence } from "./evidence.js";
import { figures } from "./figures.js";
import { passageList } from "./passages.js";
import { STAGES } from "./progress.js";
import { write } from "./written.js";

let leave = new AbortController();
let shown = null; // the id of the job in view

/** `onChange()` is called when a job begins or ends. */
export function setUpJob(onChange) {
  byId("job-stages").append(...STAGES.map(([stage, label]) => make("li", { "data-stage": stage }, label)));
  byId("job-cancel").addEventListener("click", async () => {
    try {
      await call(`/v1/jobs/${shown}`, { method: "DELETE" });
    } catch (error) {
      byId("job-error").textContent = error.message;
    }
  });
  setUpAsk(onChange);
}

/** Shows the job of this id, null for none; follows it until it has ended, or another one is shown. */
export async function showJob(id, onChange, focus) {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  shown = id;
  clear();
  byId("submit").hidden = id !== null;
  if (id === null) {
    return;
  }
  try {
    const job = await call(`/v1/jobs/${id}`, { signal });
    describe(job);
    if (focus) {
      byId("job-title").focus();
    }
    const ended = await write(job, byId("job-text"), { onProgress, onConnection, signal });
    if (ended !== null && !signal.aborted) {
      finish(ended, signal);
      if (job.status !== ended.status) {
        onChange();
      }
    }
  } catch (error) {
    if (!signal.aborted) {
      byId("job").hidden = false;
      byId("job-error").textContent = error.message;
      setRunning(false);
    }
  }
}

function clear() {
  byId("job").hidden = true;
  for (const id of ["job-title", "job-question", "job-status", "job-error", "job-text"]) {
    byId(id).textContent = "";
  }
  for (const id of ["job-figures", "questions", "job-question", "job-connection"]) {
    byId(id).hidden = true;
  }
  document.querySelector("#job > .passages")?.remove();
  clearEvidence();
}

function describe(job) {
  byId("job").hidden = false;
  byId("job-title").textContent = job.title;
  const asked = job.question ?? "";
  byId("job-question").textContent = asked;
  byId("job-question").hidden = !asked;
  setRunning(!TERMINAL.has(job.status));
}

function setRunning(running) {
  byId("job-progress").hidden = !running;
  byId("job-cancel").hidden = !running;
  if (!running) {
    byId("job-connection").hidden = true;
  }
}

function onConnection(there) {
  byId("job-connection").hidden = there;
}

function onProgress(progress) {
  for (const item of byId("job-stages").children) {
    const where = progress.where(item.dataset.stage);
    item.hidden = where === "none";
    item.classList.toggle("past", where === "past");
    if (where === "now") {
      item.setAttribute("aria-current", "step");
    } else {
      item.removeAttribute("aria-current");
    }
  }
  const bar = byId("job-bar");
  if (progress.done === null) {
    bar.removeAttribute("value");
  } else {
    bar.value = progress.done;
  }
  tell(progress.sentence);
}

function tell(sentence) {
  setText(byId("job-status"), sentence);
}

function finish(job, signal) {
  setRunning(false);
  if (job.status !== "done") {
    tell(job.status === "cancelled" ? "The job was cancelled." : "The job failed.");
    byId("job-error").textContent = job.reason;
    return;
  }
  tell(job.kind === "summarize" ? "The summary is written." : "The answer is written.");
  byId("job-text").after(passageList(job, goTo));
  byId("job-figures").replaceChildren(...figures(job.result));
  byId("job-figures").hidden = false;
  showQuestions(job, signal);
  if (job.result.state !== null) {
    showEvidence(job, signal); // of what is gone there is none
  }
}
