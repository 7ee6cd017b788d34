import { h, word, jobAt, nodeAt } from './dom.js';
import { bytes, count, known, lasting, number, percent, rate, seconds } from './format.js';
import { Table } from './table.js';

// RankTable is the table of the ranks of a job, or of a node; data is what the server says of them.
export class RankTable {
  constructor({ ofNode }) {
    this.data = {};
    this.named = new Set();
    this.worst = [];
    this.find = h('input', { id: 'find', type: 'search', class: 'find', autocomplete: 'off', spellcheck: 'false' });
    this.find.addEventListener('input', () => this.table.filter(this.find.value));
    this.table = new Table({
      label: 'Ranks', columns: this.columns(ofNode), sort: 'state', empty: 'No node says anything of ranks here.',
      mark: (i) => this.named.has(this.at('rank', i)),
      open: (i) => (ofNode ? jobAt(this.text('job', i)) : nodeAt(this.text('node', i))),
    });
    this.element = h('div', {}, h('p', { class: 'tools' }, h('label', { for: 'find' }, 'Filter'), this.find), this.table.element);
  }

  columns(ofNode) {
    const at = (key) => (i) => this.at(key, i);
    const num = (key, title, format, hint) => ({ key, title, hint, number: true, value: at(key), text: (i) => format(this.at(key, i)) });
    const where = ofNode
      ? { key: 'job', title: 'Job', text: (i) => this.text('job', i), link: (i) => jobAt(this.text('job', i)) }
      : { key: 'node', title: 'Node', text: (i) => this.text('node', i), link: (i) => nodeAt(this.text('node', i)) };
    return [
      num('rank', 'Rank', digits), where,
      { key: 'state', title: 'State', hint: 'Sorted by this, the worst ranks are first', text: (i) => this.state(i), value: (i) => this.worst[i], tone: (i) => this.tone(i) },
      num('step', 'Step', count), num('step_time', 'Step time', seconds),
      num('beat', 'Heartbeat', lasting, 'How long ago the last heartbeat was'), num('silence', 'Output', lasting, 'How long ago the last output was'),
      num('gpu_use', 'GPU', percent), num('gpu_memory', 'GPU memory', bytes), num('power', 'Power', (v) => (known(v) ? Math.round(v) + '\u202fW' : '–')),
      num('temperature', 'Temp.', (v) => (known(v) ? v + '\u202f°C' : '–')), num('xids', 'Xids', count, 'Errors of the GPU that the kernel has reported'),
      num('cpus', 'CPUs', number), num('memory', 'Memory', bytes), num('io', 'I/O', rate),
      num('local', 'Local', digits, 'Local rank'), num('pid', 'PID', digits), num('attempt', 'Attempt', digits),
      { key: 'does', title: 'Does', text: (i) => this.text('does', i), wide: true },
    ];
  }

  at(key, i) {
    const column = this.data['r.' + key];
    return column ? column[i] : null;
  }

  text(key, i) {
    return word(this.data['r.' + key], i);
  }

  state(i) {
    const ended = this.text('ended', i);
    if (ended) return ended;
    if (this.at('heard', i) > 15) return 'not heard for ' + lasting(this.at('heard', i));
    const [why, level] = [this.text('why', i), this.text('level', i)];
    if (this.named.has(this.at('rank', i)) && !['bad', 'warn'].includes(level)) return 'see findings';
    if (why) return why;
    return this.over ? '–' : 'runs';
  }

  tone(i) {
    const ended = this.text('ended', i);
    if (ended) return /\bcode 0\b/.test(ended) ? 'dim' : 'bad';
    if (this.text('level', i) === 'bad') return 'bad';
    return ['runs', '–'].includes(this.state(i)) || this.text('level', i) === 'note' ? '' : 'warn';
  }

  // update shows new data; named are the ranks that findings are about.
  update(data, named = new Set()) {
    this.data = data;
    this.named = named;
    this.over = Boolean(data.job && data.job.finished);
    const n = (data['r.rank'] || []).length;
    this.worst = worst(this, n);
    this.table.update(n);
  }
}

function digits(v) {
  return known(v) ? String(v) : '–';
}

// worst is a place for each rank: those that failed or stand still, those that there is something to say of, the worst first, those that are
// behind, and then the slowest.
function worst(ranks, n) {
  const { tone, named } = ranks;
  const level = (i) => {
    const t = tone.call(ranks, i);
    if (t === 'bad') return 0;
    if (t === 'dim') return 4;
    return t === 'warn' || named.has(ranks.at('rank', i)) ? 1 : ranks.text('level', i) === 'note' ? 2 : 3;
  };
  const levels = Array.from({ length: n }, (_, i) => level(i));
  const order = Array.from({ length: n }, (_, i) => i);
  const step = (i) => ranks.at('step', i) ?? Infinity;
  const place = (i) => ranks.at('place', i) ?? 0;
  const time = (i) => ranks.at('step_time', i) ?? -1;
  order.sort((a, b) => levels[a] - levels[b] || place(a) - place(b) || (step(a) === step(b) ? 0 : step(a) - step(b)) || time(b) - time(a) || a - b);
  const places = new Array(n);
  order.forEach((i, place) => { places[i] = place; });
  return places;
}
