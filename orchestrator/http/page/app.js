// Puts the page together. The address says which job is in view: #/jobs/ID.

import { setUpEvidence } from "./evidence.js";
import { setUpJob, showJob } from "./job.js";
import { showJobs } from "./jobs.js";
import { setUpKey } from "./key.js";
import { setUpSubmit } from "./submit.js";
import { showWorkers } from "./workers.js";

const REFRESH_MS = 4000;

function currentJob() {
  return location.hash.match(/^#\/jobs\/([a-z0-9]+)$/)?.[1] ?? null;
}

function refresh() {
  return Promise.all([showJobs(currentJob(), forget), showWorkers()]);
}

function forget(id) {
  if (id === currentJob()) {
    location.hash = "";
  }
}

/** `focus`: the user has just gone to this job, so the keyboard goes on there. */
function open(focus) {
  showJob(currentJob(), refresh, focus);
  refresh();
}

async function keepFresh() {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, REFRESH_MS));
    if (!document.hidden) {
      await refresh();
    }
  }
}

setUpKey(() => open(false));
setUpEvidence();
setUpJob(refresh);
setUpSubmit((job) => {
  location.hash = `#/jobs/${job.id}`;
});
window.addEventListener("hashchange", () => open(true));
open(false);
keepFresh();
