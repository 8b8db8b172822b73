// Numbers as people read them.

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const UNITS = ["B", "kB", "MB", "GB", "TB"];

export function count(number) {
  return whole.format(number);
}

export function figure(number) {
  return short.format(number);
}

/** Bytes with a decimal unit: 47.9 MB. */
export function bytes(number) {
  let unit = 0;
  while (number >= 1000 && unit < UNITS.length - 1) {
    number /= 1000;
    unit += 1;
  }
  return `${short.format(number)} ${UNITS[unit]}`;
}

export function seconds(number) {
  if (number < 60) {
    return `${short.format(number)} s`;
  }
  const minutes = Math.floor(number / 60);
  return minutes < 60
    ? `${minutes} min ${Math.round(number % 60)} s`
    : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** How long ago a time is, in seconds since the epoch. */
export function age(time) {
  const passed = Math.max(0, Date.now() / 1000 - time);
  for (const [name, length] of [
    ["day", 86_400],
    ["hour", 3600],
    ["minute", 60],
  ]) {
    const number = Math.floor(passed / length);
    if (number >= 1) {
      return `${number} ${name}${number > 1 ? "s" : ""} ago`;
    }
  }
  return "just now";
}
