import { h, put, show } from './dom.js';
import { lasting } from './format.js';
import { Stream } from './stream.js';
import { ClusterPage } from './cluster.js';
import { JobPage, speak } from './job.js';
import { NodePage } from './node.js';

// The page is a cluster's, a job's or a node's, as what follows # says; in a report it is one job's, of the data that the file has.

const main = document.getElementById('main');
const saved = document.getElementById('saved');
let page = null;
let stream = null;
let data = {};
let heat = 'step_time';
let troubled = '';
let heard = Date.now();

function route() {
  const [, kind, name] = location.hash.split('/');
  if ((kind === 'job' || kind === 'node') && name) return { kind, name: decode(name) };
  return { kind: 'cluster', name: '' };
}

function decode(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

// open shows a page.
function open(focus) {
  const { kind, name } = route();
  if (page && page.close) page.close();
  if (kind === 'job') page = new JobPage(name, { onheat: (meter) => { heat = meter; connect(); } });
  else page = kind === 'node' ? new NodePage(name) : new ClusterPage();
  if (kind === 'job') page.meter.value = heat;
  main.replaceChildren(page.element);
  document.title = page.title + ' · golaunch';
  const home = document.getElementById('home');
  if (kind === 'cluster') home.setAttribute('aria-current', 'page');
  else home.removeAttribute('aria-current');
  data = {};
  connect();
  if (focus) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
}

// connect has the server send what the page shows.
function connect() {
  const { kind, name } = route();
  if (stream) stream.close();
  const path = '/api/events?page=' + kind + '&name=' + encodeURIComponent(name) + '&heat=' + heat;
  stream = new Stream(path, { take, trouble, begin: () => { data = {}; } });
}

function take(changed) {
  heard = Date.now();
  for (const [part, value] of Object.entries(changed)) {
    if (value === null) delete data[part];
    else data[part] = value;
  }
  head(data.head);
  page.update(data);
}

function head(about) {
  put(document.getElementById('where'), about.source);
  const late = about.trouble !== '';
  const live = document.getElementById('live');
  put(live, late ? 'stale' : 'live');
  live.className = 'live ' + (late ? 'bad' : 'good');
  const foot = ['golaunch ' + about.own];
  if (about.version && bare(about.version) !== bare(about.own)) foot.push('coordinator ' + about.version);
  if (about.coordinators && about.coordinators.length > 1) {
    const silent = about.silent || [];
    foot.push('coordinators: ' + about.coordinators.map((c, i) => c + (silent.includes(c) ? ' (silent)' : i === 0 ? ' (leads)' : '')).join(', '));
  }
  put(document.getElementById('foot'), foot.join(' · '));
  if (late) {
    banner(about.trouble, about.known ? about.age : null);
  } else if (troubled === '') {
    banner('');
  }
}

// bare is a version without the parentheses that one of a build without a version has.
function bare(version) {
  return version.replace(/[()]/g, '');
}

// trouble is between this page and its server.
function trouble(text) {
  if (text === troubled) return;
  troubled = text;
  tell();
}

function tell() {
  if (troubled === '') return;
  const live = document.getElementById('live');
  put(live, 'stale');
  live.className = 'live bad';
  banner(troubled, data.head ? (Date.now() - heard) / 1000 : null);
}

// banner says once what is wrong, and how old the page is. A screen reader does not read out the age, which changes each second.
function banner(text, age) {
  put(document.getElementById('wrong'), text);
  put(document.getElementById('age'), text === '' ? '' : age === null || age === undefined ? 'Nothing is known yet.' : 'What is shown is ' + lasting(age) + ' old.');
  show(document.getElementById('banner'), text !== '');
}

const themes = ['system', 'light', 'dark'];

function theme(to) {
  if (to === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = to;
  put(document.getElementById('theme'), 'Theme: ' + to);
  repaint();
}

// repaint has the charts take the colours of the theme.
function repaint() {
  main.querySelectorAll('canvas').forEach((c) => c.dispatchEvent(new Event('repaint')));
}

function nextTheme() {
  const to = themes[(themes.indexOf(document.documentElement.dataset.theme || 'system') + 1) % themes.length];
  theme(to);
  remember('golaunch-theme', to);
}

// A file may be opened where nothing can be stored.
function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch { /* it is for this time only */ }
}

function recall(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function keys() {
  const all = [['/', 'filter the tables'], ['c', 'the cluster'], ['t', 'light or dark'], ['?', 'this list'], ['Tab', 'the next table, chart or control'],
    ['↑ ↓ PgUp PgDn Home End', 'rows of a table, places of a chart'], ['Enter', 'open what is chosen'], ['Esc', 'close this, clear the filter']];
  speak('Keys', h('dl', { class: 'keys' }, all.map(([key, does]) => h('div', {}, h('dt', {}, h('kbd', {}, key)), h('dd', {}, does)))));
}

function press(event) {
  const typing = event.target.closest('input, select, textarea, dialog');
  if (event.key === 'Escape' && event.target.matches('input')) leave(event.target);
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const find = document.getElementById('find');
  const does = { '/': () => find && find.focus(), '?': keys, t: nextTheme, c: () => { if (!saved) location.hash = '#/'; } }[event.key];
  if (!does) return;
  event.preventDefault();
  does();
}

// leave leaves a field; a filter filters nothing any more.
function leave(field) {
  if (field.type === 'search') {
    field.value = '';
    field.dispatchEvent(new Event('input'));
  }
  field.blur();
}

function start() {
  theme(themes.includes(recall('golaunch-theme')) ? recall('golaunch-theme') : 'system');
  document.getElementById('theme').addEventListener('click', nextTheme);
  document.getElementById('keys').addEventListener('click', keys);
  document.addEventListener('keydown', press);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
  document.querySelector('.skip').addEventListener('click', (e) => { e.preventDefault(); main.focus(); });
  if (saved) {
    report(JSON.parse(saved.textContent));
    return;
  }
  addEventListener('hashchange', () => open(true));
  setInterval(tell, 1000);
  open(false);
}

// report shows what was saved, which does not change any more.
function report(file) {
  document.body.classList.add('report');
  data = file.parts;
  page = new JobPage(data.job.id, { heats: file.heats, log: file.log });
  main.replaceChildren(page.element);
  document.title = page.title + ' · golaunch report';
  put(document.getElementById('where'), data.head.source);
  put(document.getElementById('live'), 'as of ' + new Date(data.head.at).toLocaleString());
  put(document.getElementById('foot'), file.stamp);
  document.getElementById('home').removeAttribute('href');
  page.update(data);
  const log = main.querySelector('.log');
  log.scrollTop = log.scrollHeight;
  if (data.head.trouble) banner(data.head.trouble, data.head.age);
}

start();
