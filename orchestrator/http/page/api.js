// Requests to the API of the server that this page came from.

import { apiKey, askForKey } from "./key.js";

/** A refusal: the API's own sentence, and the field that it is about. Status 0: no answer at all. */
export class ApiError extends Error {
  constructor(status, { message, param = null, code = null }) {
    super(message);
    this.status = status;
    this.param = param;
    this.code = code;
  }

  /** Whether the same request may succeed a little later. */
  get passing() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/** The response, once its headers are there. Throws ApiError; AbortError when `signal` says so. */
export async function request(path, { method = "GET", json, form, headers = {}, signal } = {}) {
  const sent = { ...headers };
  if (apiKey()) {
    sent.Authorization = `Bearer ${apiKey()}`;
  }
  if (json !== undefined) {
    sent["Content-Type"] = "application/json";
  }
  const body = json === undefined ? form : JSON.stringify(json);
  const response = await answered(fetch(path, { method, headers: sent, body, signal }));
  if (response.ok) {
    return response;
  }
  const error = new ApiError(response.status, await problem(response));
  if (error.status === 401) {
    askForKey(error.message);
  }
  throw error;
}

/** The JSON of the answer; null where there is none. Throws as `request`. */
export async function call(path, options) {
  const response = await request(path, options);
  return response.status === 204 ? null : response.json();
}

async function answered(pending) {
  try {
    return await pending;
  } catch (error) {
    if (error.name === "AbortError") {
      throw error;
    }
    throw new ApiError(0, { message: "The server cannot be reached." });
  }
}

async function problem(response) {
  try {
    return (await response.json()).error;
  } catch {
    return { message: `The server answered with status ${response.status}.` };
  }
}
