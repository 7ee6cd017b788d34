import { h, put } from './dom.js';
import { Stream } from './stream.js';
import { bytes, count } from './format.js';

// LogView shows what ranks of the newest attempt write, the newest lines of it. Lines that ranks have in common are one line.

const most = 2000;

// much is how many bytes are read only if the reader asks for them.
const much = 64 * 1024 * 1024;

export class LogView {
  constructor(job) {
    this.job = job;
    this.lines = 0;
    this.skipped = 0;
    this.ranks = h('input', { id: 'log-ranks', placeholder: 'all', size: '10', autocomplete: 'off', spellcheck: 'false' });
    this.needle = h('input', { id: 'log-find', type: 'search', size: '14', autocomplete: 'off', spellcheck: 'false' });
    this.follow = h('input', { id: 'log-follow', type: 'checkbox', checked: true });
    this.fold = h('input', { id: 'log-fold', type: 'checkbox', checked: true, onchange: () => this.open() });
    this.state = h('p', { class: 'muted note', role: 'status' });
    this.list = h('div', { class: 'log', role: 'log', 'aria-live': 'off', 'aria-label': 'Output of the ranks', tabindex: '0' });
    this.element = h('div', {}, h('form', { class: 'tools', onsubmit: (e) => { e.preventDefault(); this.open(); } },
      h('label', { for: 'log-ranks' }, 'Ranks'), this.ranks, h('button', { type: 'submit' }, 'Show'),
      h('label', { for: 'log-find' }, 'Only lines with'), this.needle,
      h('span', { class: 'check', title: 'Lines that ranks have in common are one line, with ranges for values in which they differ' }, this.fold,
        h('label', { for: 'log-fold' }, 'Fold equal lines')),
      h('span', { class: 'check' }, this.follow, h('label', { for: 'log-follow' }, 'Scroll to the newest'))), this.list, this.state);
    this.needle.addEventListener('input', () => this.find());
  }

  // show reads the attempt that a job is in, from its begin.
  show(job) {
    if (this.attempt === job.attempt) return;
    if (this.attempt === undefined && job.log_bytes > much) {
      this.ranks.value = '0';
      this.alone = 'rank 0 alone, since all ranks have written ' + bytes(job.log_bytes);
    }
    this.attempt = job.attempt;
    this.open();
  }

  // wait says that there is nothing to read yet.
  wait() {
    put(this.state, 'The job waits, and no rank has started yet.');
  }

  // open begins to read.
  open() {
    this.close();
    this.clear();
    this.place = 0;
    put(this.state, 'Reading …');
    const where = '/api/logs?job=' + encodeURIComponent(this.job) + '&ranks=' + encodeURIComponent(this.ranks.value) +
      '&attempt=' + this.attempt + (this.fold.checked ? '&fold=1' : '');
    this.stream = new Stream(where, {
      take: (batch) => this.take(batch), begin: () => this.clear(), trouble: (why) => { if (why) put(this.state, why); },
    });
  }

  close() {
    if (this.stream) this.stream.close();
    this.stream = null;
  }

  // clear forgets all lines but not the place, for when they come again.
  clear() {
    if (this.list.firstChild) this.place = this.list.scrollTop;
    this.list.replaceChildren();
    this.lines = this.skipped = 0;
  }

  take(batch) {
    const needle = this.needle.value.toLowerCase();
    const added = batch.lines.slice(-most).map((l) => this.line(l, needle));
    this.list.append(...added);
    this.lines += batch.lines.length;
    this.skipped += batch.skipped;
    while (this.list.childElementCount > most) this.list.firstChild.remove();
    if (this.follow.checked && added.length > 0) this.list.scrollTop = this.list.scrollHeight;
    else if (this.place > 0) this.restore();
    put(this.state, this.words(batch));
    return !batch.over;
  }

  // restore goes back to the place, as soon as there are lines again up to there.
  restore() {
    this.list.scrollTop = this.place;
    if (this.list.scrollTop >= this.place - 1) this.place = 0;
  }

  words(batch) {
    if (batch.error) return batch.error;
    const all = this.lines + this.skipped;
    if (all === 0) return batch.over ? 'These ranks wrote nothing, or their nodes are gone.' : 'Nothing was written yet.';
    const left = all - this.list.childElementCount;
    return count(all) + ' lines' + (left > 0 ? '; the oldest ' + count(left) + ' are not shown: golaunch logs has all' : '') + (batch.over ? '; the job is over' : '') +
      (this.alone && this.ranks.value === '0' ? '; ' + this.alone : '');
  }

  line(l, needle) {
    const row = logLine(l);
    row.hidden = needle !== '' && !row.textContent.toLowerCase().includes(needle);
    return row;
  }

  find() {
    const needle = this.needle.value.toLowerCase();
    for (const row of this.list.children) row.hidden = needle !== '' && !row.textContent.toLowerCase().includes(needle);
  }
}

// logLine is a line of a log.
export function logLine(l) {
  return h('div', { class: l.m ? 'missing' : l.s === 2 ? 'error' : '' }, h('span', { class: 'from' }, l.m ? 'missing: ' + l.w : l.w), h('span', { class: 'said' }, l.t));
}
