import { h, put } from './dom.js';

// A table of as many rows as there are: those that can be seen are in the page. Columns are
//
//   { key, title, text(i), value(i), number, wide, link(i), tone(i), hint }
//
// where i counts the rows of the data; value is what it is sorted by, and text is shown. Rows that are alike in it stay as the data has them, or,
// if natural, are in the order of the first column: n2 before n10.

const rowHeight = 29;
const beyond = 6;
const slowToSort = 20000;

export class Table {
  constructor({ label, columns, sort, down, open, mark, empty, natural }) {
    Object.assign(this, { label, columns, open, mark, natural });
    this.by = sort;
    this.down = Boolean(down);
    this.count = 0;
    this.order = [];
    this.needle = '';
    this.active = 0;
    this.sortedAt = 0;
    this.rows = [];
    this.build(empty || 'There is nothing to show.');
  }

  build(empty) {
    this.heads = this.columns.map((c) => {
      const button = h('button', { type: 'button', class: 'sort', title: c.hint, onclick: () => this.sortBy(c) }, c.title);
      return h('th', { scope: 'col', class: c.number ? 'number' : '' }, button);
    });
    this.above = h('tr', { class: 'spacer', 'aria-hidden': 'true' }, h('td', { colspan: this.columns.length }));
    this.below = this.above.cloneNode(true);
    this.body = h('tbody', {}, this.above, this.below);
    this.table = h('table', { class: 'grid' }, h('caption', { class: 'hidden' }, this.label), h('thead', {}, h('tr', {}, this.heads)), this.body);
    this.scroll = h('div', { class: 'scroll', role: 'region', 'aria-label': this.label, tabindex: '0' }, this.table);
    this.none = h('p', { class: 'muted' }, empty);
    this.tally = h('p', { class: 'tally muted', 'aria-live': 'polite' });
    this.element = h('div', { class: 'table' }, this.scroll, this.none, this.tally);
    this.scroll.addEventListener('scroll', () => this.render(), { passive: true });
    this.body.addEventListener('keydown', (e) => this.key(e));
    this.scroll.addEventListener('pointerenter', () => { this.held = true; });
    this.scroll.addEventListener('pointerleave', () => { this.held = false; });
    new ResizeObserver(() => this.render()).observe(this.scroll);
  }

  // update shows data of so many rows. Rows do not move while the pointer or the focus is on them.
  update(count) {
    const same = count === this.count && this.order.length > 0;
    const reading = this.held || this.body.contains(document.activeElement);
    const soon = count > slowToSort && performance.now() - this.sortedAt < 5000;
    this.count = count;
    if (!same || !(reading || soon)) this.sort();
    this.render();
  }

  filter(text) {
    this.needle = text.trim().toLowerCase();
    this.scroll.scrollTop = 0;
    this.sort();
    this.render();
  }

  sortBy(column) {
    this.down = this.by === column.key ? !this.down : Boolean(column.number);
    this.by = column.key;
    this.sort();
    this.render();
  }

  sort() {
    this.sortedAt = performance.now();
    const all = [];
    for (let i = 0; i < this.count; i++) if (this.matches(i)) all.push(i);
    const column = this.columns.find((c) => c.key === this.by);
    if (column) {
      const value = column.value || column.text;
      const keys = Array.from({ length: this.count }, (_, i) => value(i));
      const sign = this.down ? -1 : 1;
      const names = !this.natural ? null : Array.from({ length: this.count }, (_, i) => this.columns[0].text(i));
      all.sort((a, b) => compare(keys[a], keys[b], sign) || (names ? compare(names[a], names[b], 1) : 0) || a - b);
    }
    this.order = all;
    this.columns.forEach((c, i) => {
      const sorted = c === column ? (this.down ? 'descending' : 'ascending') : 'none';
      if (this.heads[i].getAttribute('aria-sort') !== sorted) this.heads[i].setAttribute('aria-sort', sorted);
    });
  }

  matches(i) {
    if (!this.needle) return true;
    return this.columns.some((c) => String(c.text(i)).toLowerCase().includes(this.needle));
  }

  // render brings the rows that can be seen up to date.
  render() {
    const n = this.order.length;
    this.active = Math.max(0, Math.min(this.active, n - 1));
    this.scroll.hidden = this.count === 0;
    this.none.hidden = this.count !== 0;
    put(this.tally, this.needle ? n.toLocaleString('en-US') + ' of ' + this.count.toLocaleString('en-US') + ' rows' : '');
    this.table.setAttribute('aria-rowcount', n + 1);
    const seen = Math.ceil((this.scroll.clientHeight || 400) / rowHeight) + 2 * beyond;
    const first = Math.max(0, Math.min(Math.floor(this.scroll.scrollTop / rowHeight) - beyond, n - seen));
    this.first = first;
    this.shown = Math.min(seen, n - first);
    while (this.rows.length < this.shown) this.addRow();
    this.space(this.above, first);
    this.space(this.below, n - first - this.shown);
    this.rows.forEach((row, at) => this.renderRow(row, at));
  }

  space(row, rows) {
    const height = rows * rowHeight + 'px';
    if (row.firstChild.style.height !== height) row.firstChild.style.height = height;
    row.hidden = rows === 0;
  }

  addRow() {
    const cells = this.columns.map((c) => {
      const cell = h('td', { class: (c.number ? 'number ' : '') + (c.wide ? 'wide' : '') });
      if (c.link) cell.append(h('a', { tabindex: '-1' }));
      return cell;
    });
    const row = h('tr', {}, cells);
    row.addEventListener('click', (e) => {
      if (!e.target.closest('a') && !String(getSelection())) this.activate(this.first + this.rows.indexOf(row));
    });
    row.addEventListener('dblclick', () => this.enter());
    this.rows.push(row);
    this.body.insertBefore(row, this.below);
  }

  renderRow(row, at) {
    row.hidden = at >= this.shown;
    if (row.hidden) return;
    const i = this.order[this.first + at];
    const tab = this.first + at === this.active ? 0 : -1;
    if (row.getAttribute('tabindex') !== String(tab)) row.tabIndex = tab;
    row.setAttribute('aria-rowindex', this.first + at + 2);
    row.classList.toggle('marked', Boolean(this.mark && this.mark(i)));
    this.columns.forEach((c, x) => {
      const cell = row.cells[x];
      const text = c.text(i);
      if (c.link) {
        const href = c.link(i);
        if (href) cell.firstChild.setAttribute('href', href);
        else cell.firstChild.removeAttribute('href');
        put(cell.firstChild, text);
      } else {
        put(cell, text);
      }
      if (c.tone) cell.className = (c.number ? 'number ' : '') + (c.wide ? 'wide ' : '') + c.tone(i);
      if (c.wide && cell.title !== text) cell.title = text;
    });
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.scroll.clientHeight / rowHeight) - 2);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === 'Enter') return this.enter();
    if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return undefined;
    event.preventDefault();
    return this.activate(Math.max(0, Math.min(this.order.length - 1, this.active + moves[event.key])));
  }

  // activate brings a row into view and gives it the focus.
  activate(at) {
    this.active = at;
    const top = at * rowHeight;
    const room = this.scroll.clientHeight - 2 * rowHeight;
    if (top < this.scroll.scrollTop) this.scroll.scrollTop = top;
    if (top > this.scroll.scrollTop + room) this.scroll.scrollTop = top - room;
    this.render();
    const row = this.rows[at - this.first];
    if (row) row.focus({ preventScroll: true });
  }

  enter() {
    const to = this.open && this.order.length > 0 && this.open(this.order[this.active]);
    if (to) location.hash = to;
  }
}

// compare has what is not known last, whichever way it is sorted.
function compare(a, b, sign) {
  const noA = a === null || a === undefined || a === '';
  const noB = b === null || b === undefined || b === '';
  if (noA || noB) return noA - noB;
  if (typeof a === 'string') return sign * a.localeCompare(b, 'en', { numeric: true });
  return sign * (a - b);
}
