// Text and elements. Every text that is shown goes through `safe`, because `patch` is the only place that
// writes to the document.

// Escapes control, format and separator characters: in a name, they could hide or reorder text.
function safe(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

// The space between a number and its unit does not break, so no line ends there.
const unit = (number, name) => `${number}\u00a0${name}`;

// An age or duration as 9 s, 4 min, 3 h or 2 d. With milliseconds, the text would change all the time.
function duration(seconds) {
  if (seconds === undefined) return '–';
  if (seconds < 100) return unit(Math.floor(seconds), 's');
  if (seconds < 6000) return unit(Math.floor(seconds / 60), 'min');
  if (seconds < 172800) return unit(Math.floor(seconds / 3600), 'h');
  return unit(Math.floor(seconds / 86400), 'd');
}

// `time`: the agent's clock in the last view. `heard`: the browser's clock when that view arrived.
const clock = { time: 0, heard: 0 };

function setClock(time) {
  clock.time = Date.parse(time) / 1000;
  clock.heard = performance.now();
}

// The time since a moment, in seconds.
function ago(moment) {
  if (moment === undefined) return undefined;
  return Math.max(0, clock.time + (performance.now() - clock.heard) / 1000 - moment);
}

function milliseconds(ms) {
  if (ms === undefined || ms === null) return '–';
  if (ms >= 1000) return unit(Number((ms / 1000).toFixed(1)), 's');
  return unit(ms >= 10 ? Math.round(ms) : ms.toFixed(1), 'ms');
}

const plural = (n, word) => `${n.toLocaleString('en')} ${word}${n === 1 ? '' : 's'}`;
const podName = (pod) => (pod.name ? `${pod.namespace}/${pod.name}` : pod.uid);
const timeOfDay = (time) => time.slice(11, 19);
const timeWithMilliseconds = (time) => time.slice(11, 23).padEnd(12, '.000');
// The time for which the agent has observed the node, in seconds.
const observed = (view) => ago(Date.parse(view.since) / 1000);

function exitText(exit) {
  const code = exit.exitCode === undefined ? 'code unknown' : `exit ${exit.exitCode}`;
  return exit.reason ? `${code} ${exit.reason}` : code;
}

// The description of an element: its name, its attributes and properties, and its children.
function h(tag, props, ...children) {
  const shown = children.flat().filter((c) => c !== undefined && c !== null && c !== false);
  return { tag, props: props ?? {}, children: shown };
}

const SVG = new Set(['svg', 'path', 'line']);

function create(tag) {
  return SVG.has(tag) ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
}

// Gives an element the described children. Changes only what differs, so that focus, selection and scroll
// positions stay.
function patch(parent, children) {
  let node = parent.firstChild;
  for (const child of children) {
    const isText = typeof child !== 'object';
    const fits = node && (isText ? node.nodeType === Node.TEXT_NODE : node.localName === child.tag);
    if (!fits) {
      const created = isText ? document.createTextNode('') : create(child.tag);
      if (node) node.replaceWith(created);
      else parent.append(created);
      node = created;
    }
    if (isText) {
      const text = safe(child);
      if (node.data !== text) node.data = text;
    } else {
      setProps(node, child.props);
      patch(node, child.children);
    }
    node = node.nextSibling;
  }
  while (node) {
    const next = node.nextSibling;
    node.remove();
    node = next;
  }
}

function setProps(node, props) {
  for (const name of node.getAttributeNames()) {
    if (!(name in props) && name !== 'style') node.removeAttribute(name);
  }
  node.style.height = props.height === undefined ? '' : `${props.height}px`;
  for (const [name, value] of Object.entries(props)) {
    if (name === 'height') continue;
    if (name === 'onclick') {
      node.onclick = value;
      continue;
    }
    const text = value === undefined || value === false ? null : safe(value === true ? '' : value);
    if (text === null) node.removeAttribute(name);
    else if (node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
}

const byId = (id) => document.getElementById(id);
