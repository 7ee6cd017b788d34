import { badge, facts, fill, h, jobAt, put, section, setBadge, show } from './dom.js';
import { bytes, clock, known, lasting, number, plural, rate } from './format.js';
import { Chart, axis, edge, ends, ink, lines, path } from './chart.js';
import { RankTable } from './ranks.js';

// NodePage is the page of a node.
export class NodePage {
  constructor(name) {
    this.data = {};
    this.title = name;
    this.state = badge('');
    this.trouble = h('p', { class: 'reason' });
    this.facts = facts([['address', 'Address'], ['gpus', 'GPUs in use'], ['cpus', 'CPUs'], ['memory', 'Memory'], ['heard', 'Heard'], ['labels', 'Labels']]);
    this.facts.list.lastChild.classList.add('long');
    this.missing = h('p', { class: 'card', hidden: true }, 'There is no node of this name here. ', h('a', { href: '#/' }, 'All nodes'));
    this.holds = h('ul', { class: 'queue' });
    this.excluded = h('ul', { class: 'queue' });
    this.excludedCard = section('Passed over', this.excluded);
    this.ranks = new RankTable({ ofNode: true });
    this.ranksCard = section('Ranks', this.ranks.element);
    this.ranksCard.classList.add('across');
    this.charts = [this.chart('CPUs', ['cpus'], number), this.chart('Memory', ['memory'], bytes), this.chart('Network', ['received', 'sent'], rate)];
    this.content = h('div', { class: 'columns' }, section('Held by', this.holds), this.excludedCard, ...this.charts.map((c) => c.card), this.ranksCard);
    this.element = h('div', { class: 'page' }, h('div', { class: 'headline' }, h('h1', {}, name), this.state), this.trouble, this.missing, this.facts.list, this.content);
  }

  chart(title, keys, format) {
    const words = h('p', { class: 'muted note' });
    const chart = new Chart({ label: title, height: 120, draw: (c, w, hh) => this.draw(c, w, hh, keys, format) });
    return { chart, keys, format, title, words, card: section(title, chart.element, words, keys.length > 1 ? lines([['accent', keys[0]], ['warn', keys[1]]]) : '') };
  }

  update(data) {
    this.data = data;
    const node = data.node;
    show(this.missing, !node && Boolean(data.head));
    show(this.content, Boolean(node));
    show(this.facts.list, Boolean(node));
    if (!node) return;
    setBadge(this.state, node.state);
    put(this.trouble, node.missing || (node.silent > 0 ? 'Nothing was heard of its agent for ' + lasting(node.silent) + '.' : ''));
    this.facts.set('address', node.address || '–');
    this.facts.set('gpus', String(node.gpus_used), 'of ' + node.gpus);
    this.facts.set('cpus', String(node.cpus || '–'));
    this.facts.set('memory', bytes(node.memory));
    this.facts.set('heard', known(node.heard) ? (node.heard < 3 ? 'now' : lasting(node.heard) + ' ago') : 'never');
    const labels = Object.entries(node.labels).map(([key, value]) => key + '=' + value);
    this.facts.set('labels', labels.join(', ') || '–', '', labels.length === 0);
    this.updateLists(node);
    this.ranks.update(data);
    for (const c of this.charts) this.updateChart(c);
  }

  updateLists(node) {
    fill(this.holds, node.holds, () => (node.holds.length > 0 ? node.holds.map((o) => h('li', {}, h('a', { href: jobAt(o.job) }, o.job),
      h('span', {}, o.gpus.length > 0 ? plural(o.gpus.length, 'GPU') + ': ' + o.gpus.join(', ') : 'no GPUs'))) : [h('li', { class: 'muted' }, 'No job.')]));
    show(this.excludedCard, node.excluded.length > 0);
    fill(this.excluded, node.excluded, () => node.excluded.map((x) => h('li', {}, (x.job ? 'by job ' + x.job : 'by new jobs') + ' until ' + clock(Date.parse(x.until)) + ': ' + x.why)));
  }

  updateChart(c) {
    const now = c.keys.map((k) => (this.data['s.' + k] || []).at(-1));
    const words = c.keys.map((k, i) => (c.keys.length > 1 ? k + ' ' : 'now ') + c.format(now[i])).join(', ');
    put(c.words, words);
    show(c.card, c.keys.some((k) => (this.data['s.' + k] || []).some(known)));
    c.chart.describe(c.title + ': ' + words);
    c.chart.draw();
  }

  draw(context, width, height, keys, format) {
    const at = this.data['s.at'] || [];
    const columns = keys.map((k) => this.data['s.' + k] || []);
    const all = columns.flat().filter(known);
    if (at.length < 2 || all.length === 0) return;
    const high = Math.max(...all) * 1.1 || 1;
    axis(context, width, height, 0, high, format);
    const x = (t) => edge.left + ((t - at[0]) / (at.at(-1) - at[0])) * (width - edge.left - edge.right);
    const y = (v) => edge.top + (1 - v / high) * (height - edge.top - edge.bottom);
    columns.forEach((values, n) => path(context, values.map((v, i) => (known(v) ? [x(at[i]), y(v)] : null)), ink(n === 0 ? 'accent' : 'warn')));
    ends(context, width, height, clock(at[0]), clock(at.at(-1)));
  }
}
