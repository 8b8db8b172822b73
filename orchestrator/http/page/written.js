// One job's text as it is written, whoever shows it: the view of a job, or an answer among others.

import { call } from "./api.js";
import { TERMINAL, follow } from "./events.js";
import { Progress } from "./progress.js";

/**
 * Writes a job's text into `text` as it comes, tells `onProgress(progress)` of each step and
 * `onConnection(there)` of lost connections, and returns the job's record when it has ended; null when
 * `signal` aborts. Throws ApiError.
 */
export async function write(job, text, { onProgress, onConnection, signal }) {
  if (!TERMINAL.has(job.status)) {
    const progress = new Progress();
    text.setAttribute("aria-busy", "true");
    onProgress(progress);
    const onEvent = (event) => {
      const more = progress.take(event);
      if (more) {
        text.append(more);
      }
      onProgress(progress);
    };
    await follow(job.id, { onEvent, onConnection, signal });
    text.removeAttribute("aria-busy");
    if (signal.aborted) {
      return null;
    }
    job = await call(`/v1/jobs/${job.id}`, { signal });
  }
  if (job.result !== null) {
    text.textContent = job.result.summary ?? job.result.answer;
  }
  return job;
}
