// The API key, where the API demands one: kept in this tab's session storage and nowhere else.

import { byId } from "./dom.js";

const NAME = "docexpress-api-key";

export function apiKey() {
  return sessionStorage.getItem(NAME) ?? "";
}

/** Opens the dialog with the API's sentence, unless it is open. */
export function askForKey(sentence) {
  byId("key-button").hidden = false;
  byId("key-error").textContent = sentence;
  if (!byId("key").open) {
    byId("key").showModal();
  }
}

/** `onKey` is called when there is another key than before. */
export function setUpKey(onKey) {
  const dialog = byId("key");
  const input = byId("key-input");
  byId("key-button").hidden = !apiKey();
  byId("key-button").addEventListener("click", () => askForKey(""));
  dialog.addEventListener("close", () => {
    const given = input.value.trim();
    input.value = "";
    if (dialog.returnValue === "use" && given) {
      sessionStorage.setItem(NAME, given);
      onKey();
    }
  });
}
