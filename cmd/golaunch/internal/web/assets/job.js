import { badge, facts, fill, h, nodeAt, put, section, setBadge, show } from './dom.js';
import { bytes, clock, count, known, lasting, number, percent, plural, seconds } from './format.js';
import { Chart, Legend, axis, edge, ends, ink, lines, path, shade } from './chart.js';
import { LogView, logLine } from './log.js';
import { RankTable } from './ranks.js';
import { post } from './stream.js';
import { phaseOf, toneOf } from './cluster.js';

// states are what a job's time may go into, in the order in which they are shown, with the words for
// it.
const states = {
  training: 'training', lost: 'trained again', starting: 'starting', importing: 'importing', stopping: 'stopping', backoff: 'backoff', waiting: 'waiting for nodes',
};

const meterNames = { step_time: 'Step time', gpu_use: 'GPU use', power: 'GPU power', cpus: 'CPUs' };

const meterFormats = { step_time: seconds, gpu_use: percent, power: (v) => (known(v) ? Math.round(v) + '\u202fW' : '–'), cpus: number };

// JobPage is the page of a job. A report has it without what needs a server.
export class JobPage {
  constructor(id, { heats, log, onheat }) {
    this.data = {};
    this.id = id;
    this.title = id;
    this.heats = heats;
    this.onheat = onheat;
    this.build(log);
  }

  build(log) {
    this.phase = badge('');
    this.command = h('p', { class: 'command' });
    this.reason = h('p', { class: 'reason' });
    this.facts = facts([['progress', 'Step'], ['step_time', 'Step time'], ['beat', 'Heartbeat'], ['left', 'Left'], ['goodput', 'Goodput'], ['saved', 'Saved'], ['ranks', 'Ranks'],
      ['attempt', 'Attempt'], ['submitted', 'Submitted']]);
    this.bar = h('div', { class: 'fill' });
    this.progress = h('div', { class: 'progress', role: 'progressbar', 'aria-label': 'Progress', 'aria-valuemin': '0', 'aria-valuemax': '100' }, this.bar);
    this.actions = h('p', { class: 'tools actions' });
    this.missing = h('p', { class: 'card', hidden: true }, 'There is no job of this name here. ', h('a', { href: '#/' }, 'All jobs'));
    this.ranks = new RankTable({});
    this.log = log ? null : new LogView(this.id);
    this.ranksCard = this.wide('Ranks', this.ranks.element);
    this.content = h('div', { class: 'columns' }, this.buildFailure(), this.buildFindings(), this.buildLedger(), this.buildTimeline(), this.buildHeat(),
      this.buildSteps(), this.ranksCard, this.wide('Output', log ? savedLog(log) : this.log.element));
    this.element = h('div', { class: 'page' }, h('div', { class: 'headline' }, h('h1', {}, this.id), this.phase), this.command, this.reason, this.actions,
      this.missing, this.progress, this.facts.list, this.content);
    show(this.progress, false);
  }

  wide(title, ...children) {
    const card = section(title, ...children);
    card.classList.add('across');
    return card;
  }

  buildFailure() {
    this.failure = h('div', {});
    this.failureCard = this.wide('Failure', this.failure);
    show(this.failureCard, false);
    return this.failureCard;
  }

  buildFindings() {
    this.findings = h('ul', { class: 'findings' });
    this.findingsCard = this.wide('Findings', this.findings);
    show(this.findingsCard, false);
    return this.findingsCard;
  }

  buildLedger() {
    this.ledgerBar = h('div', { class: 'stack', role: 'img' });
    this.ledgerWords = h('ul', { class: 'key' });
    this.costs = h('div', {});
    this.ledgerCard = section('Where the time went', this.ledgerBar, this.ledgerWords, this.costs);
    return this.ledgerCard;
  }

  buildTimeline() {
    this.spans = h('div', { class: 'stack', role: 'img' });
    this.spanEnds = h('p', { class: 'legend muted between' }, h('span', {}), h('span', {}));
    this.moments = h('ol', { class: 'moments', tabindex: '0', 'aria-label': 'What was decided, the newest first' });
    this.timelineCard = section('Timeline', this.spans, this.spanEnds, this.moments);
    return this.timelineCard;
  }

  buildHeat() {
    this.meter = h('select', { id: 'meter', onchange: () => this.chooseHeat() },
      Object.entries(meterNames).map(([value, name]) => h('option', { value }, name)));
    this.legend = new Legend();
    this.each = h('p', { class: 'muted note' });
    this.map = new Chart({
      label: 'Ranks and time', height: 220, draw: (c, w, hh) => this.drawHeat(c, w, hh), locate: (x, y) => this.heatWords(x, y),
      reach: () => this.heatReach(),
    });
    this.band = new Chart({ label: 'Median of the ranks, and the least and the most', height: 120, draw: (c, w, hh) => this.drawBand(c, w, hh) });
    this.bands = h('div', {}, h('h3', {}, 'Median, least and most'), this.band.element, lines([['accent', 'median'], ['warn', 'most'], ['muted', 'least']]));
    this.heatCard = this.wide('Ranks and time', h('p', { class: 'tools' }, h('label', { for: 'meter' }, 'Show'), this.meter), this.map.element, this.legend.element, this.each,
      this.bands);
    return this.heatCard;
  }

  buildSteps() {
    this.steps = new Chart({
      label: 'Step time of each rank', height: 150, draw: (c, w, hh) => this.drawSteps(c, w, hh), locate: (x) => this.stepWords(this.rankAt(x)), reach: () => [2, 0],
    });
    this.stepsCard = this.wide('Step time by rank', this.steps.element);
    return this.stepsCard;
  }

  update(data) {
    this.data = data;
    const job = data.job;
    show(this.missing, !job && Boolean(data.head));
    if (job) this.seen = true;
    show(this.content, Boolean(this.seen));
    show(this.facts.list, Boolean(this.seen));
    if (!job) return this.lost();
    this.updateHead(job, data.head);
    this.updateFailure(job);
    this.updateCards(job, data);
    this.updateFindings(data.findings || []);
    this.updateLedger(job.ledger);
    this.updateTimeline((data.history || []).map((m) => ({ ...m, at: Date.parse(m.at) })), job);
    this.updateHeat();
    this.ranks.update(data, new Set((data.findings || []).flatMap((f) => f.ranks)));
    show(this.stepsCard, (data['r.step_time'] || []).some(known));
    this.steps.draw();
    if (this.log && begun(job)) this.log.show(job);
    else if (this.log) this.log.wait();
    return undefined;
  }

  // updateCards leaves out what will never be known of a job that is over.
  updateCards(job, data) {
    const ranks = (data['r.rank'] || []).length > 0;
    show(this.ranksCard, !job.finished || ranks);
    show(this.heatCard, !job.finished || ranks);
    show(this.ledgerCard, !job.finished || Boolean(job.ledger));
    show(this.timelineCard, !job.finished || (data.history || []).length > 0);
  }

  // lost keeps what was seen of a job that is not there any more.
  lost() {
    if (!this.seen) return;
    put(this.missing, 'The job is over and not known here any more: this is what was seen last. How it ended is told where it was started.');
    setBadge(this.phase, 'gone');
    show(this.actions, false);
    show(this.reason, false);
  }

  updateHead(job, head) {
    setBadge(this.phase, phaseOf(job), toneOf(job));
    put(this.command, job.title);
    put(this.reason, reasonOf(job));
    this.reason.className = 'reason ' + (job.finished ? '' : job.level);
    show(this.reason, this.reason.textContent !== '');
    const part = job.total > 0 && known(job.step) ? Math.min(1, job.step / job.total) : null;
    show(this.progress, part !== null);
    if (part !== null) {
      this.bar.style.width = 100 * part + '%';
      this.progress.setAttribute('aria-valuenow', (100 * part).toFixed(1));
    }
    const set = (key, text, more) => this.facts.set(key, text, more, Boolean(job.finished));
    set('progress', count(job.step), job.total > 0 ? 'of ' + count(job.total) + ', ' + percent(part, 1) : '');
    set('step_time', seconds(job.step_time), known(job.slowest) && (this.data.findings || []).length === 0 ? 'no rank is slow' : '');
    set('beat', known(job.beat) && !job.finished ? lasting(job.beat) + ' ago' : '–', job.finished ? '' : this.oldest());
    const left = known(job.done) && !job.finished;
    set('left', left ? lasting((job.done - head.at) / 1000) : '–', left ? 'until ' + clock(job.done, head.at) : job.state === 'stalled' ? 'no step is made' : '');
    set('goodput', percent(job.goodput, 1));
    set('saved', savedWords(job.saves, job.finished || head.at), savedMore(job.saves, job.finished));
    set('ranks', job.ranks > 0 ? count(job.ranks) : '–', job.finished ? '' : job.known < job.ranks ? count(job.known) + ' are heard' : roomOf(job));
    set('attempt', job.attempt >= 0 && begun(job) ? String(job.attempt) : '–', count(job.restarts) + ' of ' + plural(job.most, 'restart'));
    const took = ((job.finished || head.at) - job.submitted) / 1000;
    set('submitted', job.finished ? 'took ' + lasting(took) : lasting(took) + ' ago', clock(job.submitted, head.at));
    this.updateActions(job, head);
  }

  // oldest is the rank whose heartbeat is the oldest, where that is not much like the others'.
  oldest() {
    const beats = this.data['r.beat'] || [];
    const all = beats.map((v, i) => [v, i]).filter(([v, i]) => known(v) && !this.data['r.ended'].w[this.data['r.ended'].i[i]]).sort((a, b) => b[0] - a[0]);
    if (all.length < 2) return '';
    const [[oldest, at], median] = [all[0], all[Math.floor(all.length / 2)][0]];
    return oldest > 2 * median + 2 ? 'rank ' + this.data['r.rank'][at] + ': ' + lasting(oldest) : 'all ranks alike';
  }

  updateActions(job, head) {
    const open = !job.finished && !this.heats;
    const ranks = job.ranks > 0 && job.phase !== 'gathering';
    fill(this.actions, [open, ranks, head.stop, head.stacks], () => [
      open && ranks && head.stacks ? h('button', { type: 'button', onclick: () => this.takeStacks() }, 'Take stacks') : '',
      open && head.stop ? h('button', { type: 'button', class: 'danger', onclick: () => this.stop() }, 'Stop job …') : ''].filter(Boolean));
    show(this.actions, this.actions.childElementCount > 0);
  }

  updateFailure(job) {
    const result = job.result;
    const cause = result && result.cause;
    const verdict = cause && cause.verdict;
    const failed = result && result.ending !== 'success';
    show(this.failureCard, Boolean(failed));
    if (!failed) return;
    put(this.failureCard.querySelector('h2'), ['cancelled', 'preempted'].includes(result.ending) ? 'How it ended' : 'Failure');
    fill(this.failure, [result, job.step], () => [
      h('p', {}, badge(result.ending), ' ', result.reason, ' (exit code ' + result.code + ')'),
      ...(cause ? [h('p', {}, causeWords(cause, job))] : []),
      ...(verdict ? [h('p', {}, badge(verdict.cause), ' ', verdict.title, verdict.quote ? ': ' : '', h('code', {}, verdict.quote || '')),
        h('p', {}, 'Advice: ' + verdict.action + ': ' + verdict.remedy)] : []),
      ...(cause ? [excerpt('Traceback', cause.traceback), excerpt('Kernel', cause.kernel), excerpt('Last output', cause.tail)].filter(Boolean) : [])]);
  }

  updateFindings(found) {
    show(this.findingsCard, found.length > 0);
    fill(this.findings, found, () => found.slice(0, 100).map((f) => h('li', {}, f.text, f.node ? [' ', h('a', { href: nodeAt(f.node) }, f.node)] : '')));
  }

  updateLedger(ledger) {
    fill(this.ledgerBar, ledger, () => (ledger ? partsOf(ledger) : []).map(([name, spent]) => piece(name, spent / ledger.total_hours)));
    show(this.ledgerBar, Boolean(ledger));
    fill(this.ledgerWords, ledger, () => (ledger ? ledgerKey(ledger) : [h('li', { class: 'muted' }, 'No time of its ranks is known.')]));
    if (ledger) this.ledgerBar.setAttribute('aria-label', percent(ledger.goodput, 1) + ' of the time went into training');
    fill(this.costs, ledger && ledger.costs, () => (ledger && ledger.costs.length > 0 ? [costTable(ledger)] : []));
  }

  updateTimeline(history, job) {
    const end = job.finished || this.data.head.at;
    const spans = spansOf(history, end);
    fill(this.spans, spans, () => spans.map(([to, from, until]) => piece(to, (until - from) / (spans.at(-1)[2] - spans[0][1]), states[to] + ' from ' + clock(from) + ' to ' + clock(until))));
    this.spans.setAttribute('aria-label', 'What the ranks did, as the list below says');
    show(this.spans, spans.length > 0);
    show(this.spanEnds, spans.length > 0);
    if (spans.length > 0) {
      put(this.spanEnds.firstChild, clock(spans[0][1], end));
      put(this.spanEnds.lastChild, job.finished || this.heats ? clock(end, end) : 'now');
    }
    fill(this.moments, history, () => (history.length > 0 ? history.toReversed().map(momentRow) : [h('li', { class: 'muted' }, 'No decision is known.')]));
  }

  chooseHeat() {
    if (this.heats) this.updateHeat();
    else this.onheat(this.meter.value);
  }

  updateHeat() {
    const heat = this.heats ? this.heats[this.meter.value] : this.data.heat;
    if (heat === this.heat || !heat) return;
    this.heat = heat;
    this.cells = Uint8Array.from(atob(heat.cells || ''), (c) => c.charCodeAt(0));
    const format = meterFormats[heat.meter];
    const any = this.cells.some((v) => v > 0);
    for (const part of [this.map.element, this.legend.element, this.bands]) show(part, any);
    const further = heat.most.some((v) => v > heat.high);
    this.legend.set(format(heat.low), format(heat.high) + (further ? ' and more' : ''));
    put(this.each, !any ? 'Nothing is known of this.' : heat.each > 1 ? 'Each row is ' + heat.each + ' ranks: the one that is furthest from the median is shown.' : '');
    this.map.resize(edge.top + edge.bottom + Math.max(60, Math.min(420, heat.rows * (heat.rows > 64 ? 3 : 12))));
    const name = meterNames[heat.meter];
    this.map.describe(name + ' of each rank over time; the arrow keys read it out');
    this.band.describe(name + ': the newest median is ' + format(heat.median.at(-1)) + ', from ' + format(heat.least.at(-1)) + ' to ' + format(heat.most.at(-1)));
    this.map.draw();
    this.band.draw();
  }

  drawHeat(context, width, height) {
    const heat = this.heat;
    if (!heat || heat.slots === 0 || heat.rows === 0) return;
    const image = new ImageData(heat.slots, heat.rows);
    this.cells.forEach((v, i) => {
      if (v > 0) image.data.set([...shade((v - 1) / 254), 255], 4 * i);
    });
    const small = new OffscreenCanvas(heat.slots, heat.rows);
    small.getContext('2d').putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, edge.left, edge.top, width - edge.left - edge.right, height - edge.top - edge.bottom);
    const rank = this.data['r.rank'] || [];
    context.font = '11px system-ui, sans-serif';
    context.fillStyle = ink('muted');
    context.textAlign = 'right';
    context.fillText('rank ' + (rank[0] ?? 0), edge.left - 6, edge.top + 10);
    if (heat.rows > 2) context.fillText(String(rank.at(-1) ?? ''), edge.left - 6, height - edge.bottom);
    ends(context, width, height, clock(heat.from), clock(heat.from + heat.slots * heat.slot * 1000));
  }

  heatReach() {
    const heat = this.heat;
    if (!heat || !heat.slots || !heat.rows) return [8, 8];
    return [(this.map.width - edge.left - edge.right) / heat.slots, (this.map.height - edge.top - edge.bottom) / heat.rows];
  }

  heatWords(x, y) {
    const [w, tall] = this.heatReach();
    const heat = this.heat;
    const [column, row] = [Math.floor((x - edge.left) / w), Math.floor((y - edge.top) / tall)];
    if (!heat || column < 0 || row < 0 || column >= heat.slots || row >= heat.rows) return '';
    const v = this.cells[row * heat.slots + column];
    const value = v > 0 ? heat.low + ((v - 1) / 254) * (heat.high - heat.low) : null;
    const ranks = this.data['r.rank'] || [];
    const last = ranks[Math.min(ranks.length, (row + 1) * heat.each) - 1];
    const who = heat.each > 1 ? 'Ranks ' + ranks[row * heat.each] + ' to ' + last : 'Rank ' + ranks[row];
    return who + ' at ' + clock(heat.from + column * heat.slot * 1000) + ': ' + meterFormats[heat.meter](value);
  }

  drawBand(context, width, height) {
    const heat = this.heat;
    if (!heat || heat.slots === 0) return;
    const most = heat.meter === 'gpu_use' ? 1 : Math.max(...heat.most.filter(known).map((v) => Math.min(v, heat.high)), heat.low);
    const low = heat.meter === 'gpu_use' ? 0 : heat.low - (most - heat.low) * 0.1;
    const high = most + (most - low) * 0.1 || 1;
    axis(context, width, height, low, high, meterFormats[heat.meter]);
    const x = (i) => edge.left + ((i + 0.5) / heat.slots) * (width - edge.left - edge.right);
    const y = (v) => edge.top + (1 - (Math.min(v, high) - low) / (high - low || 1)) * (height - edge.top - edge.bottom);
    const line = (values) => values.map((v, i) => (known(v) ? [x(i), y(v)] : null));
    path(context, line(heat.least), ink('muted'), 1);
    path(context, line(heat.most), ink('warn'), 1);
    path(context, line(heat.median), ink('accent'), 2);
    ends(context, width, height, clock(heat.from), clock(heat.from + heat.slots * heat.slot * 1000));
  }

  drawSteps(context, width, height) {
    const times = this.data['r.step_time'] || [];
    const all = times.filter(known).sort((a, b) => a - b);
    if (all.length === 0) return;
    const median = all[Math.floor(all.length / 2)];
    const margin = Math.max(median * 0.05, (all.at(-1) - all[0]) * 0.1);
    const [low, high] = [Math.max(0, all[0] - margin), all.at(-1) + margin];
    axis(context, width, height, low, high, seconds);
    const room = width - edge.left - edge.right;
    const size = Math.max(1.5, Math.min(8, room / times.length - 1));
    const y = (v) => edge.top + (1 - (v - low) / (high - low || 1)) * (height - edge.top - edge.bottom);
    context.fillStyle = ink('accent');
    times.forEach((v, i) => {
      if (known(v)) context.fillRect(edge.left + ((i + 0.5) / times.length) * room - size / 2, y(v) - size / 2, size, size);
    });
    path(context, [[edge.left, y(median)], [width - edge.right, y(median)]], ink('muted'), 1);
    const rank = this.data['r.rank'];
    ends(context, width, height, 'rank ' + rank[0], 'rank ' + rank.at(-1));
    this.steps.describe('Step time of ' + plural(all.length, 'rank') + ': median ' + seconds(median) + ', from ' + seconds(all[0]) + ' to ' + seconds(all.at(-1)));
  }

  rankAt(x) {
    const n = (this.data['r.rank'] || []).length;
    return Math.floor(((x - edge.left) / (this.steps.width - edge.left - edge.right)) * n);
  }

  stepWords(i) {
    const rank = (this.data['r.rank'] || [])[i];
    return rank === undefined ? '' : 'Rank ' + rank + ' on ' + this.ranks.text('node', i) + ': ' + seconds(this.data['r.step_time'][i]) + ' a step';
  }

  async takeStacks() {
    const dialog = speak('Stacks of ' + this.id, h('p', {}, 'Asking the nodes …'));
    const found = await post('/api/stacks', this.id).then((a) => a.stacks, (e) => e.message);
    dialog.querySelector('p').replaceWith(h('pre', { tabindex: '0' }, found));
  }

  stop() {
    const said = h('p', { role: 'status' }, 'Its ranks are told to end. Stopping a job that is being stopped kills them.');
    const sure = h('button', { type: 'button', class: 'danger' }, 'Stop ' + this.id);
    sure.addEventListener('click', async () => {
      sure.disabled = true;
      put(said, await post('/api/stop', this.id).then(() => 'It was told to stop.', (e) => e.message));
    });
    speak('Stop ' + this.id + '?', said, sure);
  }

  close() {
    if (this.log) this.log.close();
  }
}

// speak opens a dialog, which is gone when it is closed.
export function speak(title, ...children) {
  const dialog = h('dialog', { 'aria-labelledby': 'dialog-title' }, h('h2', { id: 'dialog-title' }, title), ...children,
    h('form', { method: 'dialog' }, h('button', {}, 'Close')));
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

function excerpt(title, text) {
  return text ? h('details', { open: true }, h('summary', {}, title), h('pre', { tabindex: '0', 'aria-label': title }, text)) : null;
}

// causeWords say what a job failed of, and when: what stood still did so at the step that its ranks had come to.
function causeWords(cause, job) {
  const lived = cause.lived_seconds;
  const after = lived > 0 ? ' after ' + (lived < 1 ? seconds(lived) : lasting(lived)) : '';
  const step = cause.step > 0 ? cause.step : cause.hung ? job.step : null;
  return 'Root cause: ' + cause.why + ', in attempt ' + cause.attempt + after + (step > 0 ? ', at step ' + count(step) : '') +
    (cause.further > 0 ? '; ' + plural(cause.further, 'other rank') + ' failed after it' : '');
}

// piece is a part of a bar. Its width is a share of the whole.
function piece(name, share, words) {
  const element = h('span', { class: 'piece s-' + name, title: words || false });
  element.style.flexGrow = 1000 * share; // less than 1 in all would leave room
  return element;
}

// savedWords is the last complete checkpoint.
function savedWords(saves, now) {
  const last = saves && saves.last;
  if (!last) return saves && saves.in_flight ? 'saving' : '–';
  return (last.step > 0 ? 'step ' + count(last.step) + ', ' : '') + lasting((now - Date.parse(last.ended)) / 1000) + ' ago';
}

function savedMore(saves, finished) {
  if (!saves) return '';
  const { last, at_risk_seconds: risk } = saves;
  const took = last ? (Date.parse(last.ended) - Date.parse(last.began)) / 1000 : null;
  const size = last ? bytes(last.bytes) + ' in ' + lasting(took) + (saves.in_flight ? ', saving' : '') : '';
  return [size, risk >= 1 && (finished ? 'lost ' : 'a stop loses ') + lasting(risk)].filter(Boolean).join('; ');
}

// partsOf are [name, hours] of what a job's time went into.
function partsOf(ledger) {
  return Object.keys(states).map((name) => [name, ledger[name + '_hours']]).filter(([, spent]) => spent > 0);
}

function ledgerKey(ledger) {
  const share = (spent) => percent(ledger.total_hours > 0 ? spent / ledger.total_hours : null, 1);
  return partsOf(ledger).map(([name, spent]) => h('li', {}, h('span', { class: 'swatch s-' + name, 'aria-hidden': 'true' }),
    states[name] + ' ', h('b', {}, share(spent)), ' ' + hours(spent, ledger)));
}

// hours are those of one GPU or rank; minutes for a job that has had less than an hour.
function hours(v, ledger) {
  return ledger.total_hours < 1 ? number(60 * v) + '\u202f' + ledger.unit + '-min' : number(v) + '\u202f' + ledger.unit + '-h';
}

function costTable(ledger) {
  const head = ['Cause', 'Node', 'Times', 'Down', 'Trained again'];
  const rows = ledger.costs.map((c) => h('tr', {}, h('td', {}, c.cause), h('td', {}, c.node ? h('a', { href: nodeAt(c.node) }, c.node) : '–'),
    h('td', { class: 'number' }, count(c.interruptions)), h('td', { class: 'number' }, hours(c.down_hours, ledger)), h('td', { class: 'number' }, hours(c.lost_hours, ledger))));
  return h('div', { class: 'scroll small', tabindex: '0', role: 'region', 'aria-label': 'What interruptions have cost' },
    h('table', { class: 'grid' }, h('caption', {}, plural(ledger.interruptions, 'interruption')),
      h('thead', {}, h('tr', {}, head.map((t, i) => h('th', { scope: 'col', class: i > 1 ? 'number' : '' }, t)))), h('tbody', {}, rows)));
}

// spansOf are [what, from, until] of what the ranks spent their time on.
function spansOf(history, end) {
  const spans = [];
  for (const m of history) {
    const last = spans.at(-1);
    if (last && last[2] === null && (m.to || '') !== last[0] && m.to) last[2] = m.at;
    if (m.to && (!last || last[0] !== m.to)) spans.push([m.to, m.at, null]);
  }
  for (const s of spans) if (s[2] === null) s[2] = end;
  return spans.filter((s) => s[2] > s[1] && s[0] in states);
}

function momentRow(m) {
  return h('li', { class: m.cause ? 'cause' : '' }, h('time', {}, clock(m.at)), h('span', { class: 'swatch s-' + (m.to || 'none'), 'aria-hidden': 'true' }),
    h('span', {}, m.attempt >= 0 ? h('span', { class: 'muted' }, 'attempt ' + m.attempt + ' ') : '', m.to ? h('b', {}, m.to + ' ') : '', m.reason,
      m.cause ? h('span', { class: 'badge bad' }, m.cause) : '', m.node ? h('a', { href: nodeAt(m.node) }, m.node) : ''));
}

// begun says that a job has started ranks, or might have.
function begun(job) {
  return job.phase !== 'gathering' || job.ranks > 0 || job.restarts > 0;
}

// roomOf is what a job has.
function roomOf(job) {
  return 'on ' + plural(job.nodes, 'node') + (job.gpus > 0 ? ', ' + plural(job.gpus, 'GPU') : '');
}

// reasonOf is what is wrong with a job, what it waits for, or has ended by. One that runs waits for its ranks, as everybody knows.
function reasonOf(job) {
  if (!job.finished && (job.level === 'bad' || job.level === 'warn')) return job.why;
  if (!job.waits || job.phase === 'running') return '';
  return job.phase === 'finished' ? job.waits : 'Waits for: ' + job.waits;
}

// savedLog is the output that a report carries.
function savedLog(log) {
  return h('div', {}, h('div', { class: 'log', role: 'log', 'aria-live': 'off', 'aria-label': 'Output of the ranks', tabindex: '0' }, log.lines.map(logLine)),
  h('p', { class: 'muted note' }, log.words + (log.lines.length > 0 ? ' ' + bytes(log.lines.reduce((n, l) => n + l.t.length, 0)) + '.' : '')));
}
