import { badge, facts, fill, h, jobAt, nodeAt, section, show, tone, word } from './dom.js';
import { bytes, clock, count, known, lasting, number, percent, plural, rate } from './format.js';
import { Chart, Legend, ink, rgb, shade } from './chart.js';
import { Table } from './table.js';

// ClusterPage is the page of all nodes and jobs.
export class ClusterPage {
  constructor() {
    this.data = {};
    this.title = 'Cluster';
    this.facts = facts([['nodes', 'Nodes'], ['ready', 'Ready'], ['gpus', 'GPUs in use'], ['use', 'GPU use'], ['ranks', 'Ranks'], ['jobs', 'Jobs'], ['since', 'Coordinator runs']]);
    this.queue = h('ul', { class: 'queue' });
    this.queueCard = section('Queue', this.queue);
    this.jobs = this.jobTable();
    this.nodes = this.nodeTable();
    this.costs = this.costTable();
    this.costCard = section('Node-hours', this.costs.element);
    this.find = h('input', { id: 'find', type: 'search', class: 'find', autocomplete: 'off', spellcheck: 'false' });
    this.find.addEventListener('input', () => { for (const table of [this.jobs, this.nodes, this.costs]) table.filter(this.find.value); });
    this.legend = new Legend();
    this.legend.set('GPUs idle', 'busy');
    this.tiles = { size: 12, across: 1 };
    this.map = new Chart({
      label: 'Nodes by what their GPUs do', height: 40, draw: (c, w) => this.drawMap(c, w), locate: (x, y) => this.nodeWords(this.tile(x, y)),
      reach: () => [this.tiles.size, this.tiles.size], pick: (x, y) => this.openTile(x, y),
    });
    this.mapCard = section('GPU map', this.map.element, this.legend.element);
    this.element = h('div', { class: 'page' }, h('h1', {}, 'Cluster'), this.facts.list, this.queueCard,
      h('p', { class: 'tools' }, h('label', { for: 'find' }, 'Filter the tables'), this.find), section('Jobs', this.jobs.element),
      this.mapCard, section('Nodes', this.nodes.element), this.costCard);
  }

  jobTable() {
    const job = (i) => (this.data.jobs || [])[i] || {};
    const num = (key, title, format) => ({ key, title, number: true, value: (i) => job(i)[key], text: (i) => format(job(i)[key]) });
    const order = ['backoff', 'stopping', 'running', 'preparing', 'gathering', 'finished'];
    return new Table({
      label: 'Jobs', sort: 'phase', empty: 'There are no jobs.', open: (i) => jobAt(job(i).id),
      columns: [
        { key: 'id', title: 'Job', text: (i) => job(i).id || '', link: (i) => jobAt(job(i).id) },
        { key: 'phase', title: 'Phase', text: (i) => phaseOf(job(i)), value: (i) => (job(i).level === 'bad' && !job(i).finished ? -1 : order.indexOf(job(i).phase)), tone: (i) => 'tone ' + toneOf(job(i)) },
        { key: 'done', title: 'Progress', number: true, value: (i) => (job(i).total > 0 ? job(i).step / job(i).total : null), text: (i) => (job(i).total > 0 ? percent(job(i).step / job(i).total, 1) : '–') },
        { key: 'left', title: 'Left', number: true, value: (i) => job(i).done, text: (i) => (known(job(i).done) ? lasting((job(i).done - this.now()) / 1000) : '–') },
        { key: 'beat', title: 'Heartbeat', hint: 'How long ago the newest heartbeat of any rank was', number: true, value: (i) => job(i).beat, text: (i) => lasting(job(i).beat) },
        { key: 'waits', title: 'Why', hint: 'What it waits for, who is slow, or what it has ended by', text: (i) => whyOf(job(i)), wide: true },
        num('nodes', 'Nodes', count), num('ranks', 'Ranks', count), num('gpus', 'GPUs', count), num('restarts', 'Restarts', count),
        num('goodput', 'Goodput', (v) => percent(v, 1)),
        { key: 'submitted', title: 'Age', number: true, value: (i) => -job(i).submitted, text: (i) => lasting((this.now() - job(i).submitted) / 1000) },
        { key: 'title', title: 'Command', text: (i) => job(i).title || '', wide: true },
      ],
    });
  }

  nodeTable() {
    const num = (key, title, format, hint) => ({ key, title, hint, number: true, value: (i) => this.at(key, i), text: (i) => format(this.at(key, i)) });
    const of = (key, total, title, format, all = format) => ({ key, title, number: true, value: (i) => this.at(key, i), text: (i) => format(this.at(key, i)) + ' / ' + all(this.at(total, i)) });
    return new Table({
      label: 'Nodes', sort: 'state', down: true, natural: true, empty: 'No node is here. golaunch agent joins one.', open: (i) => nodeAt(word(this.data['n.name'], i)),
      columns: [
        { key: 'name', title: 'Node', text: (i) => word(this.data['n.name'], i), link: (i) => nodeAt(word(this.data['n.name'], i)) },
        { key: 'state', title: 'State', text: (i) => word(this.data['n.state'], i), tone: (i) => 'tone ' + tone(word(this.data['n.state'], i)) },
        of('used', 'gpus', 'GPUs', count), num('gpu_use', 'GPU use', percent), num('ranks', 'Ranks', count), of('cpus', 'cores', 'CPUs', number, count),
        of('memory', 'memory_total', 'Memory', bytes), num('received', 'Received', rate), num('sent', 'Sent', rate),
        num('heard', 'Heard', (v) => (known(v) ? (v < 3 ? 'now' : lasting(v) + ' ago') : '–'), 'When its newest measurement came'),
        { key: 'jobs', title: 'Held by', text: (i) => word(this.data['n.jobs'], i), wide: true },
      ],
    });
  }

  costTable() {
    const cost = (i) => (this.data.charges || [])[i] || {};
    const num = (key, title, hint) => ({ key, title, hint, number: true, value: (i) => cost(i)[key], text: (i) => number(cost(i)[key]) });
    return new Table({
      label: 'Node-hours', sort: 'nodes', down: true,
      columns: [
        { key: 'user', title: 'User', text: (i) => (cost(i).idle ? 'idle' : cost(i).user || '') },
        { key: 'kind', title: 'Kind of node', text: (i) => cost(i).kind || '–' },
        num('nodes', 'Node-hours', 'What jobs held, and what no job held'), num('gpus', 'GPU-hours'),
        num('cost', 'Cost', 'By the price of the kind in the capacity file'),
      ],
    });
  }

  now() {
    return this.data.head ? this.data.head.at : Date.now();
  }

  at(key, i) {
    const column = this.data['n.' + key];
    return column ? column[i] : null;
  }

  update(data) {
    this.data = data;
    const t = data.totals;
    if (!t) return;
    const since = data.head.since;
    const bad = [[t.silent, 'silent'], [t.drained, 'drained'], [t.avoided, 'avoided']].filter(([n]) => n > 0);
    this.facts.set('nodes', count(t.nodes));
    this.facts.set('ready', count(t.ready), bad.map(([n, w]) => count(n) + ' ' + w).join(', '));
    this.facts.set('gpus', count(t.used), 'of ' + count(t.gpus));
    this.facts.set('use', percent(average(data['n.gpu_use'] || [])));
    this.facts.set('ranks', count(t.ranks));
    this.facts.set('jobs', count(t.running) + ' active', count(t.waiting) + ' waiting, ' + count(t.over) + ' over');
    this.facts.set('since', since ? lasting((data.head.at - since) / 1000) : '–', since ? 'since ' + clock(since, data.head.at) : '');
    this.updateQueue(data.jobs.filter((j) => j.phase === 'gathering'));
    this.jobs.update(data.jobs.length);
    this.nodes.update((data['n.gpus'] || []).length);
    const costs = data.charges || [];
    this.costs.update(costs.length);
    show(this.costCard, costs.length > 0);
    show(this.mapCard, t.gpus > 0);
    this.map.describe('Nodes by what their GPUs do: ' + plural(t.nodes, 'node') + ', ' + count(t.ready) + ' ready. The table below says the same.');
    this.map.draw();
  }

  updateQueue(waiting) {
    const most = 50;
    show(this.queueCard, waiting.length > 0);
    const shown = waiting.slice(0, most).map((j) => [j.id, j.waits, j.submitted]);
    fill(this.queue, [shown, waiting.length], () => [
      ...shown.map(([id, waits]) => h('li', {}, badge('waiting'), h('a', { href: jobAt(id) }, id), h('span', {}, waits || 'it waits for nodes'))),
      waiting.length > most ? h('li', {}, count(waiting.length - most) + ' more') : ''].filter(Boolean));
  }

  drawMap(context, width) {
    const n = (this.data['n.gpus'] || []).length;
    const size = n > 400 ? 14 : n > 64 ? 18 : 28;
    const across = Math.max(1, Math.floor(width / size));
    this.tiles = { size, across };
    const height = Math.max(1, Math.ceil(n / across)) * size;
    if (height !== this.map.height) {
      this.map.resize(height);
      this.map.draw();
      return;
    }
    const [idle, text] = [ink('line'), ink('text')];
    for (let i = 0; i < n; i++) this.drawTile(context, i, idle, text);
  }

  drawTile(context, i, idle, text) {
    const { size, across } = this.tiles;
    const [x, y, side] = [(i % across) * size, Math.floor(i / across) * size, size - 2];
    const use = this.at('gpu_use', i);
    context.fillStyle = known(use) ? rgb(shade(use)) : idle;
    context.fillRect(x, y, side, side);
    if (word(this.data['n.state'], i) === 'ready') return;
    context.strokeStyle = text;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x + 3, y + 3);
    context.lineTo(x + side - 3, y + side - 3);
    context.moveTo(x + side - 3, y + 3);
    context.lineTo(x + 3, y + side - 3);
    context.stroke();
  }

  tile(x, y) {
    const { size, across } = this.tiles;
    const column = Math.floor(x / size);
    const i = Math.floor(y / size) * across + column;
    return column < across && i < (this.data['n.gpus'] || []).length ? i : -1;
  }

  nodeWords(i) {
    if (i < 0) return '';
    return word(this.data['n.name'], i) + ': ' + word(this.data['n.state'], i) + ', ' + count(this.at('used', i)) + ' of ' + count(this.at('gpus', i)) +
      ' GPUs held, GPU use ' + percent(this.at('gpu_use', i)) + ' (a cross is for a node that is not ready)';
  }

  openTile(x, y) {
    const i = this.tile(x, y);
    if (i >= 0) location.hash = nodeAt(word(this.data['n.name'], i));
  }
}

// phaseOf is a job's phase, or how it has ended; the page of a job that has failed says more.
export function phaseOf(job) {
  if (['program', 'budget', 'infrastructure'].includes(job.ending)) return 'failed';
  if (job.phase === 'finished') return job.ending || 'gone';
  if (job.state === 'stalled') return 'stalled';
  return job.phase === 'gathering' ? 'waiting' : job.phase || '';
}

// toneOf says how bad a job is: one that runs may have ranks that do not.
export function toneOf(job) {
  return !job.finished && (job.level === 'bad' || job.level === 'warn') ? job.level : tone(phaseOf(job));
}

// whyOf is what there is to say of a job.
function whyOf(job) {
  const slow = job.phase === 'running' && job.level !== 'bad' ? job.slow : '';
  return slow || job.why || (job.phase === 'running' ? '' : job.waits || '');
}

function average(column) {
  const all = column.filter(known);
  return all.length > 0 ? all.reduce((a, b) => a + b, 0) / all.length : null;
}
