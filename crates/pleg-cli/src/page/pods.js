// The list of the pods. The document has only the visible rows, and the agent sends only one page of the pods.

// A narrow window shows a pod's problem below its name, so its rows are higher.
const NARROW = window.matchMedia('(max-width: 700px)');
const rowHeight = () => (NARROW.matches ? 48 : 30);
// The agent sends a page of `PAGE_ROWS` rows, and `ROWS_BEFORE` of them are above the first visible row.
const PAGE_ROWS = 100;
const ROWS_BEFORE = 35;
// The document also has this many rows above the visible rows, and as many below them.
const ROWS_BEYOND = 6;

class PodList {
  // `ask` is called if another page is needed; `open` to show a pod in detail.
  constructor(ask, open) {
    this.ask = ask;
    this.open = open;
    this.offset = 0;
    this.selected = 0;
    this.page = { rows: {}, order: [], offset: 0, matching: 0, total: 0 };
    this.listedAt = undefined;
    this.isOld = false;
    this.box = byId('pods');
    this.box.addEventListener('scroll', () => this.scrolled());
    this.box.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => this.scrolled()).observe(this.box);
    NARROW.addEventListener('change', () => this.scrolled());
  }

  // `listedAt`: when the last complete list began. `isOld`: states may have changed since the last answer.
  show(page, listedAt, isOld) {
    this.page = page;
    this.listedAt = listedAt;
    this.isOld = isOld;
    this.selected = Math.max(0, Math.min(this.selected, page.matching - 1));
    const of = page.matching === page.total ? '' : ` of ${page.total.toLocaleString('en')}`;
    patch(byId('pods-count'), [`${page.matching.toLocaleString('en')}${of}`]);
    this.render();
    this.scrolled();
  }

  // The number of the first visible row, and the number of the row after the last visible one.
  visible() {
    const first = Math.floor(this.box.scrollTop / rowHeight());
    const count = Math.ceil(this.box.clientHeight / rowHeight());
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
    const { matching, offset, order, rows } = this.page;
    const [first, last] = this.visible();
    const from = Math.max(0, first - ROWS_BEYOND);
    const to = Math.min(matching, last + ROWS_BEYOND);
    const shown = [];
    for (let n = from; n < to; n += 1) shown.push(this.row(n, rows[order[n - offset]]));
    patch(byId('rows-before'), [h('tr', { height: from * rowHeight() })]);
    patch(byId('rows'), shown);
    patch(byId('rows-after'), [h('tr', { height: Math.max(0, matching - to) * rowHeight() })]);
    byId('pods-table').setAttribute('aria-rowcount', matching + 1);
    if (matching > 0) this.box.setAttribute('aria-activedescendant', `pod-${this.selected}`);
    else this.box.removeAttribute('aria-activedescendant');
    byId('no-pods').hidden = matching > 0;
  }

  row(n, row) {
    const isBad = row?.problem || row?.failed;
    const props = {
      id: `pod-${n}`,
      'aria-rowindex': n + 2,
      'aria-selected': n === this.selected ? 'true' : 'false',
      class: isBad ? 'bad' : 'dim',
      onclick: () => this.select(n, true),
    };
    if (!row) return h('tr', props, h('td', { colspan: 7 }, '…'));
    const exit = row.lastExit ? `${row.lastExit.container}: ${exitText(row.lastExit)}, ${duration(ago(row.lastExit.at))} ago` : '';
    const note = row.problem ? `${row.problem}, for ${duration(ago(row.problemAt))}` : exit;
    const freshAt = row.isListed ? this.listedAt : row.freshAt;
    const name = h('bdi', {}, podName(row.pod));
    return h(
      'tr',
      props,
      h('th', { scope: 'row', title: podName(row.pod) }, name, note ? h('small', { title: note }, h('bdi', {}, note)) : null),
      h('td', {}, this.isOld ? `${row.state}?` : row.state),
      h('td', { class: 'number medium' }, `${row.running}/${row.names}`),
      h('td', { class: 'number medium' }, row.restarts),
      h('td', { class: 'number medium' }, duration(ago(row.changedAt))),
      h('td', { class: 'number wide' }, freshAt === undefined ? 'events' : duration(ago(freshAt))),
      h('td', { class: 'medium', title: note }, h('bdi', {}, note)),
    );
  }

  select(n, opens) {
    this.selected = Math.max(0, Math.min(n, this.page.matching - 1));
    const top = this.selected * rowHeight();
    const height = this.box.clientHeight - 2 * rowHeight();
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    if (top > this.box.scrollTop + height) this.box.scrollTop = top - height;
    this.render();
    const uid = this.page.order[this.selected - this.page.offset];
    if (opens && uid) this.open(uid);
  }

  key(event) {
    const screen = Math.max(1, Math.floor(this.box.clientHeight / rowHeight()) - 2);
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
