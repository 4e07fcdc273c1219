// The list of the pods. Only the rows that can be seen exist, and only a page of the pods is asked for.

const ROW_HEIGHT = 30;
// The page that is asked for, and how many of its rows are before the first one that can be seen.
const PAGE_ROWS = 100;
const ROWS_BEFORE = 35;
// So many rows exist beyond those that can be seen.
const ROWS_BEYOND = 6;

class PodList {
  // `ask` is called if another page is needed; `open` if a pod is to be shown in detail.
  constructor(ask, open) {
    this.ask = ask;
    this.open = open;
    this.offset = 0;
    this.selected = 0;
    this.page = { rows: [], offset: 0, matching: 0, total: 0 };
    this.isOld = false;
    this.box = byId('pods');
    this.box.addEventListener('scroll', () => this.scrolled());
    this.box.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => this.scrolled()).observe(this.box);
  }

  // `isOld`: the states are those of the last answer.
  show(page, isOld) {
    this.page = page;
    this.isOld = isOld;
    this.selected = Math.max(0, Math.min(this.selected, page.matching - 1));
    const of = page.matching === page.total ? '' : ` of ${page.total.toLocaleString('en')}`;
    patch(byId('pods-count'), [`${page.matching.toLocaleString('en')}${of}`]);
    this.render();
    this.scrolled();
  }

  // The first and the last row that can be seen.
  visible() {
    const first = Math.floor(this.box.scrollTop / ROW_HEIGHT);
    const count = Math.ceil(this.box.clientHeight / ROW_HEIGHT);
    return [first, Math.min(first + count, this.page.matching)];
  }

  scrolled() {
    const [first, last] = this.visible();
    const isCovered = first >= this.offset && last <= this.offset + PAGE_ROWS;
    const offset = Math.max(0, first - ROWS_BEFORE);
    if (!isCovered && offset !== this.offset) {
      this.offset = offset;
      this.ask();
    }
    this.render();
  }

  render() {
    const { matching, offset, rows } = this.page;
    const [first, last] = this.visible();
    const from = Math.max(0, first - ROWS_BEYOND);
    const to = Math.min(matching, last + ROWS_BEYOND);
    const shown = [];
    for (let n = from; n < to; n += 1) shown.push(this.row(n, rows[n - offset]));
    patch(byId('rows-before'), [h('tr', { height: from * ROW_HEIGHT })]);
    patch(byId('rows'), shown);
    patch(byId('rows-after'), [h('tr', { height: Math.max(0, matching - to) * ROW_HEIGHT })]);
    byId('pods-table').setAttribute('aria-rowcount', matching + 1);
    if (matching > 0) this.box.setAttribute('aria-activedescendant', `pod-${this.selected}`);
    else this.box.removeAttribute('aria-activedescendant');
    byId('no-pods').hidden = matching > 0;
  }

  row(n, row) {
    const props = {
      id: `pod-${n}`,
      'aria-rowindex': n + 2,
      'aria-selected': n === this.selected ? 'true' : 'false',
      class: row?.problem || row?.failed ? 'bad' : '',
      onclick: () => this.select(n, true),
    };
    if (!row) return h('tr', props, h('td', { colspan: 7 }, '…'));
    const exit = row.lastExit ? `${row.lastExit.container}: ${exitText(row.lastExit)}, ${duration(row.lastExit.seconds)} ago` : '';
    const note = row.problem ? `${row.problem}, for ${duration(row.problemSeconds)}` : exit;
    return h(
      'tr',
      props,
      h('td', {}, h('span', { class: `state ${row.state}` }, this.isOld ? `${row.state}?` : row.state)),
      h('th', { scope: 'row', title: podName(row.pod) }, h('bdi', {}, podName(row.pod))),
      h('td', { class: 'number' }, `${row.running}/${row.names}`),
      h('td', { class: 'number' }, row.restarts),
      h('td', { class: 'number medium' }, duration(row.changedSeconds)),
      h('td', { class: 'number wide' }, row.freshSeconds === undefined ? 'events' : duration(row.freshSeconds)),
      h('td', { class: 'medium note', title: note }, h('bdi', {}, note)),
    );
  }

  select(n, opens) {
    this.selected = Math.max(0, Math.min(n, this.page.matching - 1));
    const top = this.selected * ROW_HEIGHT;
    const height = this.box.clientHeight - 2 * ROW_HEIGHT;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    if (top > this.box.scrollTop + height) this.box.scrollTop = top - height;
    this.render();
    const row = this.page.rows[this.selected - this.page.offset];
    if (opens && row) this.open(row.pod.uid);
  }

  key(event) {
    const screen = Math.max(1, Math.floor(this.box.clientHeight / ROW_HEIGHT) - 2);
    const moves = {
      ArrowDown: 1,
      ArrowUp: -1,
      PageDown: screen,
      PageUp: -screen,
      Home: -Infinity,
      End: Infinity,
      j: 1,
      k: -1,
    };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves) this.select(this.selected + moves[event.key], false);
    else if (event.key === 'Enter') this.select(this.selected, true);
    else return;
    event.preventDefault();
  }

  toTop() {
    this.box.scrollTop = 0;
    this.offset = 0;
    this.selected = 0;
  }
}
