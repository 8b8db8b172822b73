// The API's sentences, shown where they belong: at the field that they name, or at the end of the form.

export function clearErrors(form) {
  for (const place of form.querySelectorAll("[data-error-of]")) {
    place.textContent = "";
    place.removeAttribute("role");
  }
  for (const field of form.querySelectorAll("[aria-invalid]")) {
    field.removeAttribute("aria-invalid");
  }
}

/** Shows an ApiError and moves the focus to its field. Throws on any other error. */
export function showError(form, error) {
  if (error.status === undefined) {
    throw error;
  }
  const places = [...form.querySelectorAll("[data-error-of]")];
  const own = places.find((place) => place.dataset.errorOf === (error.param ?? ""));
  const place = own ?? places[places.length - 1];
  place.setAttribute("role", "alert");
  place.textContent = error.message;
  const field = own && error.param ? form.elements.namedItem(error.param) : null;
  if (field) {
    field.closest("details")?.setAttribute("open", "");
    field.setAttribute("aria-invalid", "true");
    field.focus();
  }
}
