import { h, put } from './dom.js';

// Charts are canvases. What they show is also told in words: beside them, and for the place of a cursor that the arrow keys move.

// cividis is a scale of colours that people with any kind of colour vision see alike, from low to high.
const cividis = [[0, 32, 77], [0, 51, 111], [57, 72, 107], [87, 92, 109], [112, 113, 115], [138, 135, 121], [166, 157, 117], [196, 181, 108],
  [228, 207, 91], [255, 234, 70]];

// shade is the colour of a part of 1.
export function shade(part) {
  const at = Math.max(0, Math.min(1, part)) * (cividis.length - 1);
  const low = Math.floor(at);
  const high = Math.min(low + 1, cividis.length - 1);
  return cividis[low].map((c, i) => Math.round(c + (cividis[high][i] - c) * (at - low)));
}

// rgb is a colour for a canvas or a style.
export function rgb(colour) {
  return 'rgb(' + colour.join(',') + ')';
}

// ink is a colour of the theme. A variable has no colour of its own: it gets one where it is used.
let probe = null;
export function ink(name) {
  if (!probe) {
    probe = h('span', { hidden: true });
    document.body.append(probe);
  }
  probe.style.color = 'var(--' + name + ')';
  return getComputedStyle(probe).color;
}

// Chart is a canvas as wide as there is room. draw(context, width, height) draws it; locate(x, y) tells in words what is there, and reach
// is how far an arrow key moves the cursor.
export class Chart {
  constructor({ label, height, draw, locate, reach, pick }) {
    Object.assign(this, { height, drawing: draw, locate, reach, pick });
    this.canvas = h('canvas', { role: 'img', 'aria-label': label, tabindex: locate ? '0' : false });
    this.note = h('p', { class: 'note muted', 'aria-live': 'polite' }, '\u00a0');
    this.element = h('div', { class: 'chart' }, this.canvas, locate ? this.note : null);
    this.canvas.style.height = height + 'px';
    new ResizeObserver(() => this.draw()).observe(this.element);
    this.canvas.addEventListener('repaint', () => this.draw());
    if (!locate) return;
    this.canvas.addEventListener('pointermove', (e) => this.point(e.offsetX, e.offsetY));
    this.canvas.addEventListener('pointerleave', () => this.point(null));
    this.canvas.addEventListener('blur', () => this.point(null));
    this.canvas.addEventListener('keydown', (e) => this.key(e));
    if (pick) this.canvas.addEventListener('click', (e) => pick(e.offsetX, e.offsetY));
  }

  describe(label) {
    if (this.canvas.getAttribute('aria-label') !== label) this.canvas.setAttribute('aria-label', label);
  }

  resize(height) {
    if (this.height === height) return;
    this.height = height;
    this.canvas.style.height = height + 'px';
  }

  draw() {
    const width = this.element.clientWidth;
    if (width === 0) return;
    const scale = window.devicePixelRatio || 1;
    this.width = width;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(this.height * scale);
    const context = this.canvas.getContext('2d');
    context.scale(scale, scale);
    this.drawing(context, width, this.height);
    if (this.at) this.cross(context);
  }

  cross(context) {
    context.strokeStyle = ink('accent');
    context.lineWidth = 1.5;
    context.beginPath();
    context.arc(this.at[0], this.at[1], 5, 0, 2 * Math.PI);
    context.stroke();
  }

  point(x, y) {
    this.at = x === null ? null : [x, y];
    put(this.note, (this.at && this.locate(x, y)) || '\u00a0');
    this.draw();
  }

  key(event) {
    const [dx, dy] = this.reach ? this.reach() : [8, 8];
    const moves = { ArrowLeft: [-dx, 0], ArrowRight: [dx, 0], ArrowUp: [0, -dy], ArrowDown: [0, dy] };
    if (event.key === 'Enter' && this.pick && this.at) return this.pick(...this.at);
    if (!(event.key in moves)) return undefined;
    event.preventDefault();
    const [x, y] = this.at || [this.width / 2, this.height / 2];
    const [mx, my] = this.at ? moves[event.key] : [0, 0];
    return this.point(Math.max(0, Math.min(this.width - 1, x + mx)), Math.max(0, Math.min(this.height - 1, y + my)));
  }
}

// edge is the room that the axis of a chart takes on the left and below.
export const edge = { left: 70, right: 10, top: 8, bottom: 22 };

// plain is the font of the charts.
export function plain(context) {
  context.font = '11px system-ui, sans-serif';
  context.fillStyle = ink('muted');
}

// axis writes the least and the most of a value at the left, and draws lines there.
export function axis(context, width, height, low, high, format) {
  plain(context);
  context.textAlign = 'right';
  context.strokeStyle = ink('line');
  context.lineWidth = 1;
  for (const part of [0, 0.5, 1]) {
    const y = Math.round(edge.top + (1 - part) * (height - edge.top - edge.bottom)) + 0.5;
    context.fillText(format(low + part * (high - low)), edge.left - 6, y + 4);
    context.beginPath();
    context.moveTo(edge.left, y);
    context.lineTo(width - edge.right, y);
    context.stroke();
  }
}

// ends writes what is at the begin and the end of the axis below.
export function ends(context, width, height, first, last) {
  plain(context);
  context.textAlign = 'left';
  context.fillText(first, edge.left, height - 6);
  context.textAlign = 'right';
  context.fillText(last, width - edge.right, height - 6);
}

// path draws a line through points [x, y]; null breaks it.
export function path(context, points, colour, width = 1.5) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.lineJoin = 'round';
  context.beginPath();
  let broken = true;
  for (const p of points) {
    if (p && broken) context.moveTo(...p);
    else if (p) context.lineTo(...p);
    broken = !p;
  }
  context.stroke();
}

// legend is a bar of the scale's colours between two texts.
export class Legend {
  constructor() {
    this.low = h('span', {});
    this.high = h('span', {});
    this.bar = h('span', { class: 'scale', 'aria-hidden': 'true' });
    const stops = [0, 0.25, 0.5, 0.75, 1].map((p) => rgb(shade(p)));
    this.bar.style.background = 'linear-gradient(to right,' + stops.join(',') + ')';
    this.element = h('p', { class: 'legend muted' }, this.low, this.bar, this.high);
  }

  set(low, high) {
    put(this.low, low);
    put(this.high, high);
  }
}

// lines says what the lines of a chart are, by their colours.
export function lines(all) {
  return h('p', { class: 'legend muted' }, all.map(([colour, name]) => h('span', {}, h('span', { class: 'line l-' + colour, 'aria-hidden': 'true' }), name)));
}
