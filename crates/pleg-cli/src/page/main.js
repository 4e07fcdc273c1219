// The query that the page sends, the times at which the page is rendered, and the effects of the keys.

const query = { search: '', namespace: '', labels: '', sort: 'state', reverse: false, pod: '' };
let view = null;
let isPaused = false;
let hasNews = false;
let error = '';

const feed = new Feed();
const pods = new PodList(reopen, openPod);
const connection = new Connection({
  records(head, records) {
    feed.add(head, records);
    news();
  },
  view(shown) {
    view = shown;
    setClock(view.time);
    news();
  },
  opened() {
    error = '';
    news();
  },
  failed(why) {
    error = why;
    news();
  },
  unauthorized() {
    byId('token-dialog').showModal();
  },
});

function parameters() {
  const all = { ...query, reverse: query.reverse ? 'true' : '', offset: pods.offset, limit: PAGE_ROWS, records: 0 };
  const given = Object.entries(all).filter(([, value]) => value !== '');
  return new URLSearchParams(given).toString().replaceAll('+', '%20');
}

let reopening = 0;

// Connects with the new parameters after a short pause, so that typing or scrolling makes only one connection.
function reopen() {
  clearTimeout(reopening);
  reopening = setTimeout(() => connection.open(parameters()), 80);
}

function openPod(uid) {
  query.pod = uid;
  patch(byId('detail-body'), []);
  patch(byId('detail-name'), ['…']);
  byId('detail').hidden = false;
  byId('detail-close').focus();
  reopen();
}

function closePod() {
  query.pod = '';
  byId('detail').hidden = true;
  byId('pods').focus();
  reopen();
}

// Shows whether the data are old, even while the page is paused.
function renderAge() {
  const old = oldData(view, connection.silence(), error);
  byId('old').hidden = old === null;
  patch(byId('old'), [old ?? '']);
  document.body.classList.toggle('is-old', old !== null);
  if (view !== null) showTitle(view, old !== null);
}

function render() {
  hasNews = false;
  renderAge();
  if (view === null) return;
  if (byId('content').hidden) performance.mark('picture');
  byId('loading').hidden = true;
  byId('content').hidden = false;
  showHealth(view);
  showFigures(view);
  pods.show(view.pods, view.relist.lastAt, document.body.classList.contains('is-old'));
  showDetail(view.detail, query.pod);
  feed.render();
  showLatencies(view);
}

// Renders new data from the agent at once, but at most ten times a second.
let renderTimer = 0;
let rendered = 0;
function news() {
  hasNews = true;
  if (isPaused || renderTimer !== 0) return;
  const pause = rendered + 100 - performance.now();
  renderTimer = setTimeout(() => {
    renderTimer = 0;
    rendered = performance.now();
    render();
  }, Math.max(0, pause));
}

// Checks twice a second if the data are old: they grow old if no message arrives.
setInterval(renderAge, 500);

function pause(is) {
  isPaused = is;
  byId('pause').setAttribute('aria-pressed', is);
  byId('paused').hidden = !is;
  if (hasNews) news();
}

function ask() {
  query.search = byId('search').value.trim();
  query.namespace = byId('namespace').value.trim();
  query.labels = byId('labels').value.trim();
  query.sort = byId('sort').value;
  query.reverse = byId('reverse').getAttribute('aria-pressed') === 'true';
  feed.filter(query.search, byId('failures').checked);
  news();
  pods.toTop();
  reopen();
}

function clear() {
  for (const id of ['search', 'namespace', 'labels']) byId(id).value = '';
  ask();
}

function reverse() {
  const is = byId('reverse').getAttribute('aria-pressed') === 'true';
  byId('reverse').setAttribute('aria-pressed', !is);
  ask();
}

function nextSort() {
  const sort = byId('sort');
  sort.selectedIndex = (sort.selectedIndex + 1) % sort.options.length;
  ask();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem('theme', theme);
  byId('theme').value = theme;
}

const keys = {
  '/': () => byId('search').focus(),
  n: () => byId('namespace').focus(),
  l: () => byId('labels').focus(),
  c: clear,
  s: nextSort,
  r: reverse,
  p: () => pause(!isPaused),
  '?': () => byId('help').showModal(),
};

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
  if (event.key === 'Escape' && query.pod !== '') closePod();
  if (event.target.matches('input, select') || !(event.key in keys)) return;
  keys[event.key]();
  event.preventDefault();
});

for (const id of ['search', 'namespace', 'labels']) byId(id).addEventListener('input', ask);
for (const id of ['sort', 'failures']) byId(id).addEventListener('change', ask);
byId('reverse').addEventListener('click', reverse);
byId('clear').addEventListener('click', clear);
byId('pause').addEventListener('click', () => pause(!isPaused));
byId('help-open').addEventListener('click', () => byId('help').showModal());
byId('help-close').addEventListener('click', () => byId('help').close());
byId('detail-close').addEventListener('click', closePod);
byId('theme').addEventListener('change', (event) => setTheme(event.target.value));
byId('token-form').addEventListener('submit', () => {
  connection.setToken(byId('token').value.trim());
  byId('token').value = '';
  reopen();
});

setTheme(localStorage.getItem('theme') ?? 'auto');
connection.open(parameters());
