// The figures of a result: what was read, what is kept, what it took.

import { make } from "./dom.js";
import { bytes, count, figure, seconds } from "./format.js";

export function figures(result) {
  return rows(result).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]);
}

function rows(result) {
  // A question is answered from passages, though the state may have expired.
  const stored = result.state !== null;
  const read = `${count(result.tokens_read)} in ${count(result.segments)} segments`;
  const kept = stored
    ? `${count(result.cache_entries)} entries per KV head and layer, ${bytes(result.state_bytes)}`
    : "no longer stored, and not needed";
  const found = [
    ["tokens read", stored ? read : `passages alone, of ${read}`],
    ["tokens written", count(result.tokens_written)],
    ["state", kept],
    ["full KV cache", bytes(result.full_cache_bytes)],
  ];
  if (result.state_bytes > 0) {
    found.push(["compression", `${figure(result.full_cache_bytes / result.state_bytes)} times`]);
  }
  if (Number.isFinite(result.error_estimate)) {
    found.push(["error estimate", `${figure(100 * result.error_estimate)} % of the attention's output`]);
  }
  const times = Object.entries(result.seconds).map(([stage, time]) => `${stage} ${seconds(time)}`);
  found.push(["time", times.join(", ")], ["model", result.model]);
  if (stored) {
    found.push(["state's name", result.state]);
  }
  return found;
}
