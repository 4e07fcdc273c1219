// The node: what is wrong, the figures, and the latencies.

function healthWord(view) {
  if (!view.health.ready) return ['not ready', 'bad'];
  return view.health.reasons.length > 0 ? ['degraded', 'warning'] : ['ready', 'good'];
}

// Whether what is shown is old, and why.
function oldData(view, silence, error) {
  if (silence > SILENCE_MS / 1000) {
    return `No answer of the agent for ${duration(silence)}${error ? ` (${error})` : ''}. What is shown is old.`;
  }
  const unanswered = view?.health.noAnswerSeconds;
  if (unanswered === undefined) return null;
  return `No answer of the runtime for ${duration(unanswered)}. What is shown is old.`;
}

function showHealth(view) {
  const reasons = view.health.reasons.map((reason) =>
    h(
      'li',
      { class: reason.notReady ? 'bad' : 'warning' },
      h('strong', {}, reason.code),
      reason.seconds === undefined ? ': ' : ` for ${duration(reason.seconds)}: `,
      h('bdi', {}, reason.message),
      h('p', {}, `Do: ${reason.action}`, reason.runbook ? `; see ${reason.runbook}` : ''),
    ),
  );
  patch(byId('reasons'), reasons);
  // A screen reader says this whenever it changes. It has no ages, which always change.
  const [word] = healthWord(view);
  const codes = view.health.reasons.map((reason) => reason.code).join(', ');
  patch(byId('announcement'), [`The node is ${word}${codes ? `: ${codes}` : ''}.`]);
}

function streamText(stream, seconds) {
  if (stream.state === 'polling') return stream.reason ?? 'events are not used';
  if (stream.state === 'down') return stream.reason ?? '';
  const counts = `${stream.recentlyMissed.toLocaleString('en')} of ${stream.recentlyExpected.toLocaleString('en')} expected events lost`;
  const lost = stream.recentlyExpected > 0 ? `${counts} in ${duration(Math.min(600, seconds))}` : `for ${duration(stream.seconds)}`;
  return stream.state === 'silent' ? `the runtime does not answer; before: ${lost}` : lost;
}

const STREAM_WORDS = { losing: 'loses events', silent: 'unknown', down: 'down', polling: 'not used' };
const STREAM_TONES = { losing: 'bad', silent: 'bad', down: 'bad' };

function showFigures(view) {
  const { pods, relist, stream, feed, cost } = view;
  const listing = relist.inFlightSeconds === undefined ? '' : `; one runs for ${duration(relist.inFlightSeconds)}`;
  const last = relist.lastSeconds === undefined ? 'no complete list yet' : `last ${duration(relist.lastSeconds)} ago`;
  const calls = (c) => c.lists + c.reads;
  const seconds = observed(view);
  const silent = view.health.noAnswerSeconds !== undefined;
  const cards = [
    ['Pods', pods.total.toLocaleString('en'), `${plural(pods.containers, 'container')}, ${pods.running.toLocaleString('en')} running`],
    silent
      ? ['Pods with problems', 'all', 'the runtime answers no call', 'bad']
      : ['Pods with problems', view.health.pods.toLocaleString('en'), 'whose calls hang or fail', view.health.pods > 0 ? 'bad' : ''],
    ['Event stream', STREAM_WORDS[stream.state] ?? stream.state, streamText(stream, seconds), STREAM_TONES[stream.state]],
    ['Events', unit(feed.eventsPerSecond.toFixed(1), '/s'), `in the last ${duration(Math.min(10, seconds))}`],
    ['Relist', `every ${duration(relist.periodSeconds)}`, last + listing],
    [
      'Calls to the runtime',
      calls(cost.ours).toLocaleString('en'),
      cost.generic
        ? `in ${duration(cost.seconds)}; estimate for the generic PLEG: ${calls(cost.generic).toLocaleString('en')}`
        : `in ${duration(cost.seconds)}`,
      '',
      cost.basis,
    ],
  ];
  const card = ([name, value, note, tone, title]) =>
    h('div', { title }, h('dt', {}, name), h('dd', {}, h('b', { class: tone }, value), h('span', {}, h('bdi', {}, note))));
  patch(byId('figures'), cards.map(card));
}

const CHART_WIDTH = 270;
const CHART_HEIGHT = 40;
// A quarter of an hour. A chart of a shorter time is that of its time, and of a minute at least.
const CHART_SECONDS = 900;
const CHART_LEAST_SECONDS = 60;

// The curve of one value per point; there is none where nothing was measured.
function curve(points, value, most, step) {
  const left = CHART_WIDTH - points.length * step;
  return points
    .map((point, n) => {
      if (value(point) === undefined) return '';
      const x = (left + n * step).toFixed(1);
      const y = (CHART_HEIGHT * (1 - value(point) / most)).toFixed(1);
      return `M${x} ${CHART_HEIGHT}V${y}h${step.toFixed(1)}V${CHART_HEIGHT}`;
    })
    .join('');
}

function chart(name, points, interval) {
  const longest = Math.max(...points.map((point) => point.longestMs ?? 0), 0);
  const total = points.reduce((sum, point) => sum + point.count, 0);
  const means = points.reduce((sum, point) => sum + point.count * (point.meanMs ?? 0), 0);
  const mean = total > 0 ? means / total : undefined;
  const said = total > 0 ? `mean ${milliseconds(mean)}, longest ${milliseconds(longest)}` : 'none';
  const most = Math.max(longest, 0.001);
  const span = Math.min(CHART_SECONDS, Math.max(CHART_LEAST_SECONDS, points.length * interval));
  const step = (CHART_WIDTH * interval) / span;
  return h(
    'figure',
    {},
    h('figcaption', {}, h('b', {}, name), ` in ${duration(span)}: ${total.toLocaleString('en')}, ${said}`),
    h(
      'svg',
      { viewBox: `0 0 ${CHART_WIDTH} ${CHART_HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `${name} in the last quarter of an hour: ${said}` },
      h('path', { class: 'longest', d: curve(points, (point) => point.longestMs, most, step) }),
      h('path', { class: 'mean', d: curve(points, (point) => point.meanMs, most, step) }),
      h('line', { x1: 0, x2: CHART_WIDTH, y1: CHART_HEIGHT, y2: CHART_HEIGHT }),
    ),
  );
}

function showLatencies(view) {
  const { lists, reads, events, intervalSeconds } = view.latency;
  patch(byId('latencies'), [
    chart('Complete lists', lists, intervalSeconds),
    chart('Calls about one pod', reads, intervalSeconds),
    chart('From change to announcement', events, intervalSeconds),
  ]);
}

function showTitle(view, isOld) {
  const [word, tone] = healthWord(view);
  patch(byId('state'), [isOld ? 'old data' : word]);
  byId('state').className = isOld ? 'bad' : tone;
  patch(byId('node'), [view.node]);
  patch(byId('runtime'), [view.runtime]);
  patch(byId('since'), [`observed for ${duration(observed(view))}`]);
  patch(byId('time'), [`${timeOfDay(view.time)} UTC`]);
  byId('simulated').hidden = !view.simulated;
  const simulated = view.simulated ? 'SIMULATED – ' : '';
  document.title = safe(`${isOld ? 'old data' : word} – ${simulated}pleg ${view.node}`);
}
