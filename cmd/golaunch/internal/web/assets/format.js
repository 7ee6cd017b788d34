// Numbers and times as people read them. What is not known is a dash.

const none = '–';

// known says that a number is one.
export function known(v) {
  return v !== null && v !== undefined && !Number.isNaN(v);
}

// count is a whole number.
export function count(v) {
  return known(v) ? Math.round(v).toLocaleString('en-US').replaceAll(',', '\u202f') : none;
}

// plural is a number of things.
export function plural(n, one, many) {
  return count(n) + ' ' + (n === 1 ? one : many || one + 's');
}

// number has three digits that mean something.
export function number(v) {
  if (!known(v)) return none;
  const size = Math.abs(v);
  return size >= 1000 ? count(v) : v.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

// percent is a part of 1.
export function percent(v, digits = 0) {
  return known(v) ? (100 * v).toFixed(digits) + '\u202f%' : none;
}

// bytes is a size in units of 1024.
export function bytes(v) {
  if (!known(v)) return none;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let at = 0;
  while (Math.abs(v) >= 1024 && at < units.length - 1) {
    v /= 1024;
    at++;
  }
  return (at === 0 || v >= 100 ? v.toFixed(0) : v.toFixed(1)) + '\u202f' + units[at];
}

// rate is bytes a second.
export function rate(v) {
  return known(v) ? bytes(v) + '/s' : none;
}

// seconds is a short time, such as that of a step.
export function seconds(v) {
  if (!known(v)) return none;
  if (v < 1) return (v * 1000).toFixed(v < 0.01 ? 1 : 0) + '\u202fms';
  return v < 60 ? v.toFixed(2) + '\u202fs' : lasting(v);
}

// lasting is a time in its two largest units.
export function lasting(s) {
  if (!known(s)) return none;
  s = Math.max(0, Math.round(s));
  if (s < 60) return s + '\u202fs';
  if (s < 3600) return Math.floor(s / 60) + '\u202fm ' + (s % 60) + '\u202fs';
  if (s < 86400) return Math.floor(s / 3600) + '\u202fh ' + Math.floor((s % 3600) / 60) + '\u202fm';
  return Math.floor(s / 86400) + '\u202fd ' + Math.floor((s % 86400) / 3600) + '\u202fh';
}

// clock is a time of the day here, with the date if it is another one.
export function clock(ms, now = Date.now()) {
  if (!known(ms)) return none;
  const at = new Date(ms);
  const two = (n) => String(n).padStart(2, '0');
  const time = two(at.getHours()) + ':' + two(at.getMinutes()) + ':' + two(at.getSeconds());
  if (at.toDateString() === new Date(now).toDateString()) return time;
  return at.getFullYear() + '-' + two(at.getMonth() + 1) + '-' + two(at.getDate()) + ' ' + time;
}
