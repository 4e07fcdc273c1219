// Shows one pod in detail: its sandboxes, its containers and its history.

function showDetail(detail, uid) {
  const section = byId('detail');
  section.hidden = uid === '';
  if (uid === '') return;
  if (!detail) {
    patch(byId('detail-name'), [uid]);
    patch(byId('detail-body'), [h('p', {}, 'This pod does not exist, and nothing is known of it.')]);
    return;
  }
  const { row } = detail;
  patch(byId('detail-name'), [h('bdi', {}, podName(row.pod))]);
  patch(byId('detail-body'), [
    detail.gone ? h('p', { class: 'bad' }, 'This pod does not exist any more.') : null,
    row.problem ? h('p', { class: 'bad' }, h('bdi', {}, row.problem), ` for ${duration(ago(row.problemAt))}`) : null,
    detail.error ? h('p', { class: 'bad' }, 'Last read: ', h('bdi', {}, detail.error)) : null,
    h(
      'dl',
      { class: 'facts' },
      fact('State', row.state),
      fact('Uid', row.pod.uid),
      fact('Addresses', detail.ips.join(', ') || 'none'),
      fact('State confirmed', row.freshAt === undefined ? 'by events only' : `by a read ${duration(ago(row.freshAt))} ago`),
      fact('Details read', detail.inspectedAt === undefined ? 'never' : `${duration(ago(detail.inspectedAt))} ago`),
    ),
    h('h3', {}, 'Containers'),
    containers(detail),
    h('h3', {}, 'Sandboxes'),
    list(detail.sandboxes, (s) => [h('b', {}, s.state), ` attempt ${s.attempt}, ${duration(ago(s.at))} old, `, h('code', {}, s.id), problem(s)]),
    h('h3', {}, 'How its containers ended'),
    list([...detail.ends].reverse(), (end) => [h('bdi', {}, end.container), `: ${exitText(end)}, ${duration(ago(end.at))} ago`]),
    h('h3', {}, 'Labels'),
    list(detail.labels, ([key, value]) => [h('bdi', {}, key), '=', h('bdi', {}, value)], detail.moreLabels),
    h('h3', {}, 'History'),
    detail.history.length === 0 ? h('p', { class: 'dim' }, 'none') : null,
    h('ol', { class: 'records' }, [...detail.history].reverse().map(recordRow)),
  ].filter((part) => part !== null));
}

const fact = (name, value) => h('div', {}, h('dt', {}, name), h('dd', {}, h('bdi', {}, value)));
const problem = (of) => (of.problem ? h('span', { class: 'bad' }, ' ', h('bdi', {}, of.problem)) : null);

function list(items, show, more) {
  if (items.length === 0) return h('p', { class: 'dim' }, 'none');
  return h('ul', {}, items.map((item) => h('li', {}, ...show(item))), more > 0 ? h('li', {}, `and ${more} more`) : null);
}

function containers(detail) {
  if (detail.containers.length === 0) return h('p', { class: 'dim' }, 'none');
  const row = (c) =>
    h(
      'tr',
      { class: c.failed ? 'bad' : '' },
      h('th', { scope: 'row' }, h('bdi', {}, c.name)),
      h('td', {}, c.state),
      h('td', { class: 'number' }, c.restarts),
      h('td', { class: 'number' }, duration(ago(c.at))),
      h('td', {}, c.state === 'Exited' ? exitText(c) : '', problem(c)),
      h('td', {}, h('bdi', {}, c.image), ' ', h('code', { title: c.id }, c.id.slice(0, 12))),
    );
  const titles = ['Name', 'State', 'Attempt', 'For', 'End', 'Image, id'];
  const more = detail.moreContainers;
  return h(
    'div',
    { class: 'scrolls', tabindex: 0, role: 'region', 'aria-label': 'Containers' },
    h('table', {}, h('thead', {}, h('tr', {}, titles.map((t) => h('th', { scope: 'col' }, t)))), h('tbody', {}, detail.containers.map(row))),
    more > 0 ? h('p', {}, `and ${more} more`) : null,
  );
}
