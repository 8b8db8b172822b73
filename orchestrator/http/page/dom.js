// Elements by id, and new ones. Text goes in as text: nothing here, or elsewhere, parses HTML.

export function byId(id) {
  const found = document.getElementById(id);
  if (found === null) {
    throw new Error(`the page has no element #${id}`);
  }
  return found;
}

/** A new element; `attributes` are set as they are, `children` are nodes or strings. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function button(label, onClick, attributes = {}) {
  const element = make("button", { type: "button", class: "quiet", ...attributes }, label);
  element.addEventListener("click", onClick);
  return element;
}

/** Fills a list only where its content has changed, so that the focus inside it stays. */
export function replaceList(list, key, makeItems) {
  if (list.dataset.key !== key) {
    list.dataset.key = key;
    list.replaceChildren(...makeItems());
  }
}

/** Changes a text only where it is another one: a live region says nothing twice then. */
export function setText(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}
