// The form that begins a job: a file or a text, a query, options.

import { call } from "./api.js";
import { byId, make } from "./dom.js";
import { clearErrors, showError } from "./errors.js";

const NUMBERS = ["max_new_tokens", "cache_entries", "segment_tokens"];

/** `onJob(job)` is called with every job that was accepted. */
export function setUpSubmit(onJob) {
  const form = byId("submit");
  const file = byId("file");
  file.addEventListener("change", () => chosen(form, file));
  setUpDrop(form, file);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    clearErrors(form);
    const send = form.querySelector("button[type=submit]");
    send.disabled = true;
    send.textContent = "Sending …";
    try {
      const job = await call("/v1/jobs", { method: "POST", ...body(form, file) });
      form.reset();
      chosen(form, file);
      onJob(job);
    } catch (error) {
      showError(form, error);
    } finally {
      send.disabled = false;
      send.textContent = "Summarize";
    }
  });
}

/** Offers the models of the registered workers; one that was chosen stays. */
export function offerModels(workers) {
  const select = byId("model");
  const names = [...new Set(workers.map((worker) => worker.model_name))].sort();
  if (names.join("\n") !== [...select.options].map((option) => option.value).join("\n")) {
    const before = select.value;
    select.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
    select.value = names.includes(before) ? before : (names[0] ?? "");
  }
}

/** A file stands in place of a text. */
function chosen(form, file) {
  const text = form.elements.namedItem("text");
  text.disabled = file.files.length > 0;
  text.placeholder = text.disabled ? `${file.files[0].name} is read in its place.` : "";
}

function setUpDrop(form, file) {
  const zone = byId("drop");
  form.addEventListener("dragover", (event) => {
    event.preventDefault();
    zone.classList.add("over");
  });
  form.addEventListener("dragleave", () => zone.classList.remove("over"));
  form.addEventListener("drop", (event) => {
    zone.classList.remove("over");
    if (event.dataTransfer.files.length > 0) {
      event.preventDefault();
      file.files = event.dataTransfer.files;
      chosen(form, file);
    }
  });
}

/** What is sent: a form where there is a file, else JSON. What is left empty is as the product has it. */
function body(form, file) {
  const value = (name) => form.elements.namedItem(name).value.trim();
  const options = {};
  for (const name of ["query", "model"]) {
    if (value(name)) {
      options[name] = value(name);
    }
  }
  for (const name of NUMBERS) {
    if (value(name)) {
      options[name] = Number(value(name));
    }
  }
  if (file.files.length === 0) {
    return { json: { ...options, text: form.elements.namedItem("text").value, title: "pasted text" } };
  }
  const data = new FormData();
  for (const [name, given] of Object.entries(options)) {
    data.append(name, given);
  }
  data.append("file", file.files[0]);
  return { form: data };
}
