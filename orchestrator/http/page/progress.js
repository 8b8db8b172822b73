// Where a job is, from its events: stages passed, segments read, what is written, what holds it up.

export const STAGES = [
  ["ingest", "tokens"],
  ["prefill", "reading"],
  ["compress", "compressing"],
  ["rank", "looking up"],
  ["reread", "reading again"],
  ["decode", "writing"],
];
const ORDER = STAGES.map(([stage]) => stage);
const OPTIONAL = new Set(["rank", "reread"]);

export class Progress {
  constructor() {
    this.stage = "";
    this.seen = new Set();
    this.segment = 0;
    this.segments = 0;
    this.fraction = 0;
    this.note = "";
    this.written = 0;
  }

  /** Takes an event in; returns the text that it adds, "" for most. */
  take({ kind, data }) {
    if (data.stage !== undefined) {
      this.seen.add(data.stage);
    }
    if (kind === "stage" || kind === "progress") {
      Object.assign(this, { stage: data.stage, segment: data.segment, segments: data.segments });
      this.fraction = data.fraction ?? 0;
      this.note = "";
    } else if (kind === "waiting" || kind === "retry") {
      this.stage = data.stage;
      this.note = `${kind === "waiting" ? "waits" : "tries again"}: ${data.reason}`;
    } else if (kind === "token" && data.index === this.written) {
      this.written += 1;
      this.stage = "decode";
      this.note = "";
      return data.text;
    }
    return "";
  }

  /** Of the reading, 0 to 1; null before anybody knows how long the document is. */
  get done() {
    if (ORDER.indexOf(this.stage) > ORDER.indexOf("compress")) {
      return 1;
    }
    if (this.segments === 0) {
      return null;
    }
    // A segment is nearly all prefill.
    const within = this.stage === "compress" ? 1 : this.fraction;
    return Math.min(1, (this.segment + 0.95 * within) / this.segments);
  }

  /** "now", "past", "next", or "none" for a stage that the job does without, as far as one can tell. */
  where(stage) {
    if (stage === this.stage) {
      return "now";
    }
    const before = ORDER.indexOf(stage) < ORDER.indexOf(this.stage);
    if (!this.seen.has(stage)) {
      return before || OPTIONAL.has(stage) ? "none" : "next";
    }
    // Reading and compressing take turns.
    return before && !(stage === "prefill" && this.stage === "compress") ? "past" : "next";
  }

  /** One sentence, which changes with stage and segment but not with every token. */
  get sentence() {
    if (this.note) {
      return `The job ${this.note}`;
    }
    const of = this.segments ? ` segment ${this.segment + 1} of ${this.segments}` : "";
    return {
      "": "Waiting for its turn.",
      ingest: "Splitting the document into tokens.",
      prefill: `Reading${of}.`,
      compress: `Compressing${of}.`,
      rank: "Looking up the passages that the question is about.",
      reread: "Reading these passages again.",
      decode: "Writing.",
    }[this.stage];
  }
}
