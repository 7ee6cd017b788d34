// What is wrong with a page for people who do not see it, see little, or have a small window: a list of sentences.
(() => {
  const wrong = [];
  const all = [...document.body.querySelectorAll('*')];
  const seen = (e) => e.checkVisibility({ visibilityProperty: true }) && e.getClientRects().length > 0;
  const who = (e) => e.tagName.toLowerCase() + (e.id ? '#' + e.id : '') + (e.className && e.className.split ? '.' + e.className.trim().replace(/\s+/g, '.') : '') +
    ' "' + (e.textContent || '').trim().slice(0, 30) + '"';

  const wide = document.documentElement.scrollWidth - innerWidth;
  if (wide > 0) wrong.push('the page is ' + wide + ' pixels wider than the window');

  let level = 0;
  for (const e of all.filter((e) => /^H[1-6]$/.test(e.tagName) && seen(e))) {
    const next = Number(e.tagName[1]);
    if (next > level + 1) wrong.push(who(e) + ' follows a heading of level ' + level);
    level = next;
  }
  if (all.filter((e) => e.tagName === 'H1' && seen(e)).length !== 1) wrong.push('there is not one h1');
  if (!document.title || !document.documentElement.lang) wrong.push('there is no title, or no language');
  if (!document.querySelector('main')) wrong.push('there is no main');

  const ids = all.map((e) => e.id).filter(Boolean);
  ids.filter((id, i) => ids.indexOf(id) !== i).forEach((id) => wrong.push('two elements have the id ' + id));

  const name = (e) => e.getAttribute('aria-label') || (e.getAttribute('aria-labelledby') || '').split(' ').map((id) => document.getElementById(id)?.textContent || '').join('') ||
    (e.labels && [...e.labels].map((l) => l.textContent).join('')) || (['BUTTON', 'A', 'SUMMARY'].includes(e.tagName) ? e.textContent : '');
  for (const e of all.filter(seen)) {
    const control = e.matches('button, a[href], input, select, textarea, summary, canvas, [role=img], [role=region], [role=log], [role=progressbar], dialog, section');
    if (control && !name(e).trim()) wrong.push(who(e) + ' has no name');
    if (e.tabIndex > 0) wrong.push(who(e) + ' has a tabindex above 0');
    if (e.matches('button, select, input:not([type=checkbox])') && (e.offsetHeight < 24 || e.offsetWidth < 24)) wrong.push(who(e) + ' is smaller than 24 pixels');
    if (e.matches('[aria-hidden=true] *, [aria-hidden=true]') && e.tabIndex >= 0) wrong.push(who(e) + ' is hidden and takes the focus');
    const style = getComputedStyle(e);
    const scrolls = ['auto', 'scroll'].includes(style.overflowY) && e.scrollHeight > e.clientHeight + 1;
    if (scrolls && e.tabIndex < 0 && !e.querySelector('[tabindex="0"], button, a, input')) wrong.push(who(e) + ' scrolls and has no focus');
  }
  for (const e of document.querySelectorAll('table')) {
    if (!e.caption) wrong.push('a table has no caption');
    if ([...e.querySelectorAll('th')].some((t) => !t.scope)) wrong.push('a head of ' + who(e) + ' has no scope');
  }

  const parse = (c) => {
    const m = c.match(/rgba?\(([^)]+)\)/);
    if (!m) return null;
    const v = m[1].split(/[ ,/]+/).map(Number);
    return { rgb: v.slice(0, 3), alpha: v.length > 3 ? v[3] : 1 };
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    for (let at = e; at; at = at.parentElement) {
      const c = parse(getComputedStyle(at).backgroundColor);
      if (c && c.alpha > 0.99) return c.rgb;
    }
    return [255, 255, 255];
  };
  const told = new Set();
  for (const e of all.filter(seen)) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    const style = getComputedStyle(e);
    const colour = parse(style.color);
    if (!colour) {
      wrong.push(who(e) + ' has the colour ' + style.color);
      continue;
    }
    const [a, b] = [light(colour.rgb), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const key = style.color + behind(e);
    if (ratio < 4.5 && !told.has(key)) wrong.push(who(e) + ' has a contrast of ' + ratio.toFixed(2));
    told.add(key);
  }
  return wrong;
})()
