// Questions to a finished job, each with its answer as it is written.

import { call } from "./api.js";
import { byId, make, setText } from "./dom.js";
import { clearErrors, showError } from "./errors.js";
import { goTo } from "./evidence.js";
import { passageList } from "./passages.js";
import { write } from "./written.js";

let asked = { job: null, signal: null }; // the job in view, and when it is left

export function setUpAsk(onChange) {
  const form = byId("ask");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    clearErrors(form);
    const { job, signal } = asked;
    const question = byId("question").value;
    const send = form.querySelector("button");
    send.disabled = true;
    try {
      const begun = await call(`/v1/jobs/${job.id}/ask`, { method: "POST", json: { question } });
      byId("question").value = "";
      onChange();
      if (!signal.aborted) {
        show(begun, signal, onChange);
      }
    } catch (error) {
      showError(form, error);
    } finally {
      send.disabled = false;
    }
  });
}

/** Shows the form, and what was asked of the same state before. */
export async function showQuestions(job, signal) {
  asked = { job, signal };
  clearErrors(byId("ask"));
  byId("answers").replaceChildren();
  byId("questions").hidden = false;
  const jobs = await call("/v1/jobs", { signal }).catch(() => []); // the list of jobs tells what is wrong
  const earlier = jobs.filter(
    (other) => other.kind === "ask" && other.state === job.state && other.id !== job.id,
  );
  for (const other of earlier.reverse()) {
    if (!signal.aborted) {
      show(other, signal, () => {});
    }
  }
}

async function show(job, signal, onChange) {
  const text = make("p", { class: "written" });
  const status = make("p", { class: "help", role: "status" });
  const answer = make("article", { "aria-label": job.question }, make("h4", {}, job.question));
  answer.append(text, status);
  byId("answers").append(answer);
  const tell = (sentence) => setText(status, sentence);
  const onProgress = (progress) => tell(progress.sentence);
  const onConnection = (there) => {
    if (!there) {
      tell("The connection is lost; trying again.");
    }
  };
  try {
    const ended = await write(job, text, { onProgress, onConnection, signal });
    if (ended === null) {
      return;
    }
    tell(ended.status === "done" ? "" : ended.reason || "The question was cancelled.");
    answer.append(passageList(ended, goTo));
    if (ended.status !== job.status) {
      onChange();
    }
  } catch (error) {
    tell(error.message);
  }
}
