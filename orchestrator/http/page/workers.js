// The list of workers.

import { call } from "./api.js";
import { byId, make, replaceList } from "./dom.js";
import { count } from "./format.js";
import { offerModels } from "./submit.js";

export async function showWorkers() {
  let workers;
  try {
    workers = await call("/v1/workers");
  } catch {
    return; // the list of jobs, fetched at the same time, tells what is wrong
  }
  offerModels(workers);
  replaceList(byId("workers"), JSON.stringify(workers), () => workers.map(item));
  byId("workers-none").hidden = workers.length > 0;
}

function item(worker) {
  const state = worker.draining ? "draining" : busy(worker.load);
  return make(
    "li",
    {},
    worker.model_name,
    make("p", { class: "help" }, `${worker.id} on ${worker.device}, ${state}`),
  );
}

function busy(load) {
  if (load === 0) {
    return "idle";
  }
  return load === 1 ? "1 call under way" : `${count(load)} calls under way`;
}
