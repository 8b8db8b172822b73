// The heat strip: a document from its beginning to its end, a slider over the places in it.

import { byId } from "./dom.js";

const PAGE = 20; // steps of Page Up and Page Down

/** Draws bins and moves over them; `onPlace(index)` is called when the place changes. */
export class Strip {
  #bins = [];
  #heats = [];
  #place = 0;
  #describe = () => "";
  #onPlace;

  constructor(onPlace) {
    this.#onPlace = onPlace;
    const strip = byId("strip");
    strip.addEventListener("keydown", (event) => this.#key(event));
    strip.addEventListener("pointerdown", (event) => {
      strip.setPointerCapture(event.pointerId);
      this.#point(event);
    });
    strip.addEventListener("pointermove", (event) => {
      if (strip.hasPointerCapture(event.pointerId)) {
        this.#point(event);
      }
    });
    new ResizeObserver(() => this.#draw()).observe(strip);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
  }

  get place() {
    return this.#place;
  }

  /** `heats` are 0 to 1, one for each bin; `describe(index)` says a place in words. */
  show(bins, heats, describe) {
    this.#bins = bins;
    this.#heats = heats;
    this.#describe = describe;
    byId("strip").setAttribute("aria-valuemax", String(bins.length));
    this.#place = Math.min(this.#place, bins.length - 1);
    this.#draw();
    this.#mark();
  }

  /** Passages [start, end) in characters, drawn below the heat. */
  setPassages(passages) {
    const end = this.#bins.at(-1)?.end || 1;
    byId("strip-marks").replaceChildren(
      ...passages.map((passage) => {
        const mark = document.createElement("div");
        mark.style.left = `${(100 * passage.start) / end}%`;
        mark.style.width = `${(100 * (passage.end - passage.start)) / end}%`;
        return mark;
      }),
    );
  }

  goTo(index) {
    const place = Math.max(0, Math.min(this.#bins.length - 1, index));
    this.#place = place;
    this.#mark();
    this.#onPlace(place);
  }

  /** The bin that holds a character. */
  binAt(character) {
    const index = this.#bins.findIndex((bin) => character < bin.end);
    return index < 0 ? this.#bins.length - 1 : index;
  }

  #key(event) {
    const page = Math.max(1, Math.round(this.#bins.length / PAGE));
    const to = {
      ArrowLeft: this.#place - 1,
      ArrowDown: this.#place - 1,
      ArrowRight: this.#place + 1,
      ArrowUp: this.#place + 1,
      PageDown: this.#place - page,
      PageUp: this.#place + page,
      Home: 0,
      End: this.#bins.length - 1,
    }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      this.goTo(to);
    }
  }

  #point(event) {
    const box = byId("strip").getBoundingClientRect();
    const end = this.#bins.at(-1)?.end ?? 0;
    this.goTo(this.binAt(((event.clientX - box.left) / box.width) * end));
  }

  #mark() {
    const bin = this.#bins[this.#place];
    if (bin === undefined) {
      return;
    }
    const strip = byId("strip");
    const end = this.#bins.at(-1).end || 1;
    byId("strip-here").style.left = `${(50 * (bin.start + bin.end)) / end}%`;
    strip.setAttribute("aria-valuenow", String(this.#place + 1));
    strip.setAttribute("aria-valuetext", this.#describe(this.#place));
    byId("strip-value").textContent = this.#describe(this.#place);
  }

  #draw() {
    const canvas = byId("strip-heat");
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.max(1, Math.round(canvas.clientWidth * scale));
    const context = canvas.getContext("2d");
    const colour = getComputedStyle(canvas).getPropertyValue("--heat");
    const end = this.#bins.at(-1)?.end || 1;
    this.#bins.forEach((bin, index) => {
      const left = Math.floor((bin.start / end) * canvas.width);
      const right = Math.ceil((bin.end / end) * canvas.width);
      context.clearRect(left, 0, right - left, canvas.height);
      context.fillStyle = `rgba(${colour}, ${this.#heats[index]})`;
      context.fillRect(left, 0, right - left, canvas.height);
    });
  }
}
