// The node: its findings, its figures, what was not examined, and the latencies.

function healthWord(view) {
  if (!view.health.ready) return ['not ready', 'bad'];
  return view.health.reasons.length > 0 ? ['degraded', 'warning'] : ['ready', 'good'];
}

// The reason why the shown data are old, or `null`.
function oldData(view, silence, error) {
  if (silence > SILENCE_MS / 1000) {
    return `No answer from the agent for ${duration(silence)}${error ? ` (${error})` : ''}. What is shown is old.`;
  }
  const unanswered = ago(view?.health.noAnswerAt);
  if (unanswered === undefined) return null;
  return `No answer from the runtime for ${duration(unanswered)}. What is shown is old.`;
}

const lasting = (reason) => (reason.at === undefined ? '' : ` for ${duration(ago(reason.at))}`);

// Shows a finding, and below it, without their advice, the findings that it explains.
function reasonItem(reason, all) {
  const explained = all.filter((other) => other.cause === reason.code);
  return h(
    'li',
    { class: reason.severity === 'critical' ? 'bad' : 'warning' },
    h('strong', {}, reason.code),
    `${lasting(reason)}: `,
    h('bdi', {}, reason.message),
    h('p', {}, h('b', {}, 'Do: '), h('bdi', {}, reason.action), reason.runbook ? h('span', { class: 'dim' }, ` See ${reason.runbook}`) : ''),
    reason.evidence?.length > 0 ? h('p', { class: 'dim' }, h('bdi', {}, reason.evidence.join('; '))) : null,
    explained.length > 0 ? h('ul', { class: 'dim' }, explained.map((other) => explainedItem(other, all))) : null,
  );
}

function explainedItem(reason, all) {
  const explained = all.filter((other) => other.cause === reason.code);
  return h(
    'li',
    {},
    `${reason.code}${lasting(reason)}: `,
    h('bdi', {}, reason.message),
    explained.length > 0 ? h('ul', {}, explained.map((other) => explainedItem(other, all))) : null,
  );
}

function showHealth(view) {
  const all = view.health.reasons;
  const first = all.filter((reason) => reason.cause === undefined);
  const none = h('li', { class: 'dim' }, 'No problem is known.');
  patch(byId('reasons'), first.length > 0 ? first.map((reason) => reasonItem(reason, all)) : [none]);
  // This text has no ages, which change each second: a screen reader reads it aloud whenever it changes.
  const [word] = healthWord(view);
  const codes = all.map((reason) => reason.code).join(', ');
  patch(byId('announcement'), [`The node is ${word}${codes ? `: ${codes}` : ''}.`]);
  const missing = view.health.notExamined ?? [];
  patch(byId('not-examined'), missing.length > 0 ? [h('h3', {}, 'Not examined'), list(missing, (what) => [h('bdi', {}, what)])] : []);
}

function streamText(stream, seconds) {
  if (stream.state === 'polling') return stream.reason ?? 'events are not used';
  if (stream.state === 'down') return `for ${duration(ago(stream.at))}: ${stream.reason ?? ''}`;
  const counts = `${stream.recentlyMissed.toLocaleString('en')} of ${stream.recentlyExpected.toLocaleString('en')} events lost`;
  const lost = stream.recentlyExpected > 0 ? `${counts} in ${duration(Math.min(600, seconds))}` : `for ${duration(ago(stream.at))}`;
  return stream.state === 'silent' ? `the runtime does not answer; before: ${lost}` : lost;
}

const STREAM_WORDS = { losing: 'loses events', silent: 'unknown', down: 'down', polling: 'not used' };
const STREAM_TONES = { losing: 'bad', silent: 'bad', down: 'bad' };

// The rate of calls is shown once calls were counted for this time. The agent does not count during its first minute.
const RATE_AFTER_SECONDS = 60;

function callRate(cost) {
  if (cost.seconds < RATE_AFTER_SECONDS) return ['–', 'known after two minutes'];
  const rate = (calls) => unit(((60 * (calls.lists + calls.reads)) / cost.seconds).toFixed(1), '/min');
  return [rate(cost.ours), cost.generic ? `generic PLEG, estimated: ${rate(cost.generic)}` : ''];
}

function showFigures(view) {
  const { pods, relist, stream, feed, cost } = view;
  const listing = relist.inFlightAt === undefined ? '' : `; one runs for ${duration(ago(relist.inFlightAt))}`;
  const last = relist.lastAt === undefined ? 'no complete list yet' : `last ${duration(ago(relist.lastAt))} ago`;
  const silent = view.health.noAnswerAt !== undefined;
  const seconds = observed(view);
  const cards = [
    ['Pods', pods.total.toLocaleString('en'), `${plural(pods.containers, 'container')}, ${pods.running.toLocaleString('en')} running`],
    silent
      ? ['Pods with problems', 'unknown', 'the runtime answers no call', 'bad']
      : ['Pods with problems', view.health.pods.toLocaleString('en'), 'whose calls hang or fail', view.health.pods > 0 ? 'bad' : ''],
    ['Event stream', STREAM_WORDS[stream.state] ?? stream.state, streamText(stream, seconds), STREAM_TONES[stream.state]],
    ['Events', unit(feed.eventsPerSecond.toFixed(1), '/s'), `in the last ${duration(Math.min(10, seconds))}`],
    ['Complete lists', `every ${duration(relist.periodSeconds)}`, last + listing],
    ['Calls to the runtime', ...callRate(cost), '', cost.basis],
  ];
  const card = ([name, value, note, tone, title]) =>
    h('div', { title }, h('dt', {}, name), h('dd', {}, h('b', { class: tone }, value), h('span', {}, h('bdi', {}, note))));
  patch(byId('figures'), cards.map(card));
}

const CHART_WIDTH = 270;
const CHART_HEIGHT = 100;
// A chart shows the last quarter of an hour, or the whole observation if it is shorter, but at least a minute.
const CHART_SECONDS = 900;
const CHART_LEAST_SECONDS = 60;
// The scale is logarithmic: a list takes some milliseconds, and a hung call many seconds.
const CHART_SCALE = ['10 s', '1 s', '100 ms', '10 ms', '1 ms', '0.1 ms'];
const [CHART_TOP, CHART_BOTTOM] = [4, -1];

function chartY(ms) {
  const decades = Math.min(CHART_TOP, Math.max(CHART_BOTTOM, Math.log10(ms)));
  return (CHART_HEIGHT * (CHART_TOP - decades)) / (CHART_TOP - CHART_BOTTOM);
}

// The SVG path of a chart: a part for each interval with measurements. `newest`: the number of the last interval.
function curve(points, part, newest, step) {
  const of = ([number, point]) => {
    const x = CHART_WIDTH - (newest - number + 1) * step;
    return x < 0 ? '' : `M${x.toFixed(1)} ${part(point)}`;
  };
  return Object.entries(points).map(of).join('');
}

function chart(name, points, { interval, intervalSeconds }, seconds, slow) {
  const all = Object.values(points);
  const longest = Math.max(...all.map((point) => point.longestMs), 0);
  const total = all.reduce((sum, point) => sum + point.count, 0);
  const mean = all.reduce((sum, point) => sum + point.count * point.meanMs, 0) / total;
  const said = total > 0 ? `mean ${milliseconds(mean)}, longest ${milliseconds(longest)}` : 'none';
  const span = Math.min(CHART_SECONDS, Math.max(CHART_LEAST_SECONDS, seconds));
  const step = (CHART_WIDTH * intervalSeconds) / span;
  const level = (ms, kind) => h('line', { class: kind, x1: 0, x2: CHART_WIDTH, y1: chartY(ms).toFixed(1), y2: chartY(ms).toFixed(1) });
  const bar = (point) => `${CHART_HEIGHT}V${chartY(point.longestMs).toFixed(1)}h${step.toFixed(1)}V${CHART_HEIGHT}`;
  const threshold = slow === undefined ? '' : `; red: slow, ${milliseconds(slow)}`;
  return h(
    'figure',
    {},
    h('figcaption', {}, h('b', {}, name), `: ${said}${threshold}`),
    h('div', { class: 'scale', 'aria-hidden': 'true' }, CHART_SCALE.map((text) => h('span', {}, text))),
    h(
      'svg',
      { viewBox: `0 0 ${CHART_WIDTH} ${CHART_HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `${name} in the last ${duration(span)}: ${said}` },
      [1000, 100, 10, 1].map((ms) => level(ms, 'grid')),
      h('path', { class: 'longest', d: curve(points, bar, interval, step) }),
      h('path', { class: 'mean', d: curve(points, (point) => `${chartY(point.meanMs).toFixed(1)}h${step.toFixed(1)}`, interval, step) }),
      slow === undefined ? null : level(slow, 'slow'),
    ),
    h('div', { class: 'times', 'aria-hidden': 'true' }, h('span', {}, `${duration(span)} ago`), h('span', {}, 'now')),
  );
}

function showLatencies(view) {
  const { latency } = view;
  const seconds = observed(view);
  patch(byId('latencies'), [
    chart('Complete lists', latency.lists, latency, seconds, latency.listsSlowMs),
    chart('Calls about one pod', latency.reads, latency, seconds, latency.readsSlowMs),
    chart('From change to announcement', latency.events, latency, seconds),
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
