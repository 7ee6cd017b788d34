// Elements are made of text alone: nothing that a cluster says is ever read as markup.

// h makes an element. A property that begins with "on" is a listener, "class" is its class, and any other an attribute, unless it is false.
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'class') element.className = value;
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== ''));
  return element;
}

// put gives an element a text, if it has another one.
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// fill gives an element children in the place of those that it has, if what they are made of has changed.
export function fill(element, from, children) {
  const made = JSON.stringify(from);
  if (element.madeFrom === made) return;
  element.madeFrom = made;
  element.replaceChildren(...children());
}

// show hides an element, or does not.
export function show(element, visible) {
  if (element.hidden === visible) element.hidden = !visible;
}

// section is a part of a page with a heading.
export function section(title, ...children) {
  const id = 'h-' + title.toLowerCase().replace(/[^a-z]+/g, '-');
  return h('section', { 'aria-labelledby': id, class: 'card' }, h('h2', { id }, title), ...children);
}

// facts is a list of names and values, and a way to change them; a value may have more to it, and one that nothing will be known of is left out.
export function facts(names) {
  const values = {};
  const cards = {};
  const list = h('dl', { class: 'facts' }, names.map(([key, name]) => {
    values[key] = [h('span', {}, '–'), h('small', {})];
    cards[key] = h('div', {}, h('dt', {}, name), h('dd', {}, values[key]));
    return cards[key];
  }));
  const set = (key, text, more = '', over = false) => {
    show(cards[key], !over || text !== '–');
    put(values[key][0], text);
    put(values[key][1], more);
  };
  return { list, set };
}

// badge is a word for a state, with a colour and a sign that say the same.
export function badge(word) {
  return h('span', { class: 'badge ' + tone(word) }, word);
}

// setBadge changes a badge.
export function setBadge(element, word, how = tone(word)) {
  put(element, word);
  element.className = 'badge ' + how;
}

// tone says whether a state is good news.
export function tone(word) {
  if (['running', 'ready', 'training', 'success'].includes(word)) return 'good';
  if (['silent', 'failed', 'program', 'budget', 'infrastructure', 'timeout', 'stalled'].includes(word)) return 'bad';
  if (['backoff', 'stopping', 'drained', 'avoided', 'preempted', 'cancelled'].includes(word)) return 'warn';
  return 'idle';
}

// go to a job's page, or a node's.
export function jobAt(id) {
  return '#/job/' + encodeURIComponent(id);
}

export function nodeAt(name) {
  return '#/node/' + encodeURIComponent(name);
}

// word is an element of a column of texts.
export function word(column, i) {
  return column ? column.w[column.i[i]] || '' : '';
}
