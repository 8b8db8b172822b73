// The events of a job, over lost connections. EventSource cannot send an API key, so fetch reads the stream.

import { request } from "./api.js";

export const TERMINAL = new Set(["done", "failed", "cancelled"]);
const QUIET_MS = 60_000; // the server says something every ten seconds
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 10_000;

/**
 * Calls `onEvent({id, kind, data})` for each event until the terminal one; a token may come twice.
 * `onConnection(false)` tells that the connection is lost, `onConnection(true)` that it is there again.
 * Throws ApiError for what no second try can help; returns when `signal` aborts.
 */
export async function follow(jobId, { onEvent, onConnection, signal }) {
  let last = null;
  let pause = FIRST_PAUSE_MS;
  while (!signal.aborted) {
    try {
      for await (const event of stream(jobId, last, signal, onConnection)) {
        if (event.kind === "error") {
          break;
        }
        pause = FIRST_PAUSE_MS;
        last = event.id ?? last;
        onEvent(event);
        if (TERMINAL.has(event.kind)) {
          return;
        }
      }
    } catch (error) {
      if (signal.aborted) {
        return;
      }
      if (error.status !== undefined && !error.passing) {
        throw error;
      }
    }
    onConnection(false);
    await pauseFor(pause, signal);
    pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
  }
}

async function* stream(jobId, last, signal, onConnection) {
  const quiet = new AbortController();
  const headers = last === null ? {} : { "Last-Event-ID": last };
  let alarm = setTimeout(() => quiet.abort(), QUIET_MS);
  try {
    const both = AbortSignal.any([signal, quiet.signal]);
    const response = await request(`/v1/jobs/${jobId}/events`, { headers, signal: both });
    onConnection(true);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let waiting = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) {
        return;
      }
      clearTimeout(alarm);
      alarm = setTimeout(() => quiet.abort(), QUIET_MS);
      const blocks = (waiting + value).split("\n\n");
      waiting = blocks.pop();
      yield* blocks.map(parsed).filter((event) => event !== null);
    }
  } finally {
    clearTimeout(alarm);
    quiet.abort(); // gives the connection back, however the loop was left
  }
}

/** One block of the stream; null for a comment. */
function parsed(block) {
  const fields = {};
  for (const line of block.split("\n")) {
    const colon = line.indexOf(": ");
    fields[line.slice(0, colon)] = line.slice(colon + 2);
  }
  if (fields.data === undefined) {
    return null;
  }
  return { id: fields.id, kind: fields.event, data: JSON.parse(fields.data) };
}

function pauseFor(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
