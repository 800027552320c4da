// ---- numbers, as the tool's own reports write them ----
// A half goes to the even digit.
const fixed = (value, digits) => {
  const scaled = value * 10 ** digits, below = Math.floor(scaled);
  const isHalf = scaled % 1 === 0.5 && /^50*$/.test(value.toFixed(60).split(".")[1].slice(digits));
  return isHalf && below % 2 === 0 ? (below / 10 ** digits).toFixed(digits) : value.toFixed(digits);
};
const three = value => fixed(value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
const bytes = n => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let value = Math.abs(n), unit = 0;
  while (value >= (unit === 0 ? 1023.5 : 999.5) && unit < 6) { value /= 1024; unit++; }
  return (n < 0 ? "-" : "") + (unit === 0 ? fixed(value, 0) : value < 0.9995 ? fixed(value, 3) : three(value)) + " " + units[unit];
};
const signed = n => (n >= 0 ? "+" : "") + bytes(n);
const count = n => String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, " ");
const percent = (n, of) => {
  const part = 100 * Math.abs(n) / of;
  return of === 0 ? "-" : (n < 0 ? "-" : "") + fixed(part, part < 9.95 ? 1 : 0) + " %";
};
const time = ns => {
  const s = ns / 1e9;
  if (ns < 1000) return ns + " ns";
  if (s < 0.0009995) return fixed(s * 1e6, 0) + " µs";
  if (s < 0.9995) return three(s * 1e3) + " ms";
  if (s < 99.95) return three(s) + " s";
  const whole = Math.round(s);
  return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
};
// An estimate is a number with the bounds of its interval. Without a lower one too few blocks were drawn for more than an upper bound.
const between = (text, [value, low, high]) =>
  low === high ? text(value) : low === null ? "≤ " + text(high) : `${text(value)} (${text(low)} … ${text(high)})`;
const exact = value => [value, value, value];
// A sum over a window. data.rate is the longest mean distance between two draws, and no block leaves more unseen. So these are never
// too narrow.
const around = value => {
  const drawn = value / data.rate, low = Math.max(0, Math.sqrt(drawn) - 0.98) ** 2, high = (Math.sqrt(drawn + 1) + 0.98) ** 2;
  return [value, drawn < 5 ? null : low * data.rate, high * data.rate];
};
const aroundGrowth = (growth, live) => {
  const error = 2 * Math.sqrt(data.rate * (2 * live - growth + data.rate));
  return [growth, growth - error, growth + error];
};
