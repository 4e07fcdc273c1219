// The events and changes of health, newest first.

// The page keeps the newest `MOST_RECORDS` records, and shows the newest `MOST_SHOWN` of those that match.
const MOST_RECORDS = 2000;
const MOST_SHOWN = 200;

class Feed {
  constructor() {
    this.records = [];
    this.agent = null;
    this.last = 0;
    this.text = '';
    this.onlyFailures = false;
  }

  // Adds the records that the agent has sent, except those that were already added.
  add(head, records) {
    if (this.agent !== null && this.agent !== head.agent) {
      const newest = this.records.at(-1)?.time ?? this.agent;
      const message = `the agent was started at ${timeOfDay(head.agent)}; events after ${timeOfDay(newest)} and before that are not shown`;
      this.records.push({ time: head.agent, type: 'Lagged', message });
      this.last = 0;
    } else if (head.missed > 0) {
      this.records.push({ time: head.time, type: 'Lagged', message: `${head.missed} events are no longer kept by the agent` });
    }
    this.agent = head.agent;
    this.records.push(...records.filter((record) => record.seq > this.last));
    this.last = head.last;
    if (this.records.length > MOST_RECORDS) this.records.splice(0, this.records.length - MOST_RECORDS);
  }

  filter(text, onlyFailures) {
    this.text = text.toLowerCase();
    this.onlyFailures = onlyFailures;
  }

  matches(record) {
    if (this.onlyFailures && !isFailure(record)) return false;
    if (this.text === '' || !record.pod) return true;
    const texts = [podName(record.pod), record.pod.uid, record.name, record.id, record.type];
    return texts.some((text) => text?.toLowerCase().includes(this.text));
  }

  render() {
    const shown = [];
    for (let n = this.records.length - 1; n >= 0 && shown.length < MOST_SHOWN; n -= 1) {
      if (this.matches(this.records[n])) shown.push(recordRow(this.records[n]));
    }
    patch(byId('records'), shown);
    byId('no-records').hidden = shown.length > 0;
  }
}

const isHealth = (record) => record.code !== undefined || record.type === 'Lagged';
const isFailure = (record) =>
  (isHealth(record) && !['Recovered', 'Ready'].includes(record.type)) ||
  (record.type === 'ContainerDied' && record.kind === 'container' && record.exitCode !== 0);

function recordRow(record) {
  const parts = [];
  if (record.pod) parts.push(h('bdi', { class: 'pod' }, podName(record.pod)), ' ');
  if (record.kind === 'sandbox') parts.push('sandbox ');
  else if (record.name) parts.push(h('bdi', {}, record.name), ' ');
  if (record.exitCode !== undefined || record.reason) parts.push(h('bdi', {}, exitText(record)), ' ');
  if (record.code) parts.push(h('code', {}, record.code), ' ');
  if (record.message) parts.push(h('bdi', {}, record.message), ' ');
  if (record.latencyMs !== undefined) parts.push(h('span', { class: 'dim' }, `after ${milliseconds(record.latencyMs)}`));
  return h(
    'li',
    { class: isFailure(record) ? 'bad' : '', 'data-seq': record.seq },
    h('time', { datetime: record.time }, timeWithMilliseconds(record.time)),
    ' ',
    h('b', {}, record.type),
    ' ',
    ...parts,
  );
}
