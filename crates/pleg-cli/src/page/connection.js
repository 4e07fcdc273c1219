// The connection to the agent: server-sent events over fetch, which can send a token.

// After this time without a message, the page connects again: the agent sends one at least every two seconds.
const SILENCE_MS = 7000;
const RETRY_MS = [250, 500, 1000, 2000, 5000];

// Applies a JSON merge patch (RFC 7386). The objects have no prototype: a uid may be any text, such as __proto__.
function merged(value, patch) {
  if (patch === null || typeof patch !== 'object' || Array.isArray(patch)) return patch;
  const isObject = value !== null && typeof value === 'object' && !Array.isArray(value);
  const result = Object.assign(Object.create(null), isObject ? value : {});
  for (const [key, part] of Object.entries(patch)) {
    if (part === null) delete result[key];
    else result[key] = merged(result[key] ?? null, part);
  }
  return result;
}

class Connection {
  // `on` has the functions `records`, `view`, `opened`, `failed` and `unauthorized`.
  constructor(on) {
    this.on = on;
    this.lastId = null;
    this.view = null;
    this.heard = performance.now();
    this.token = sessionStorage.getItem('token');
    this.attempt = null;
    setInterval(() => this.checkSilence(), 500);
  }

  setToken(token) {
    this.token = token;
    sessionStorage.setItem('token', token);
  }

  // Ends the present connection, and connects with these parameters of `/debug/live`.
  open(parameters) {
    this.parameters = parameters;
    this.attempt?.abort();
    this.run(new AbortController());
  }

  // The seconds since the agent last sent something.
  silence() {
    return (performance.now() - this.heard) / 1000;
  }

  checkSilence() {
    if (performance.now() - this.heard > SILENCE_MS && this.isOpen) {
      this.isOpen = false;
      this.open(this.parameters);
    }
  }

  async run(attempt) {
    this.attempt = attempt;
    for (let failures = 0; !attempt.signal.aborted; failures += 1) {
      try {
        const response = await this.request(attempt.signal);
        if (response.status === 401) {
          this.on.unauthorized();
          return;
        }
        if (!response.ok) throw new Error((await response.text()).trim() || `status ${response.status}`);
        failures = -1;
        // The first view of a connection is complete.
        this.view = null;
        await this.read(response.body, attempt.signal);
        // `read` returns when the agent ends the stream: after five minutes, or because it stops.
      } catch (error) {
        if (attempt.signal.aborted) return;
        this.on.failed(error instanceof TypeError ? 'cannot connect' : error.message);
      }
      this.isOpen = false;
      const pause = failures < 0 ? 0 : RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  request(signal) {
    const headers = {};
    if (this.lastId !== null) headers['Last-Event-ID'] = this.lastId;
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    return fetch(`debug/live?${this.parameters}`, { headers, signal, cache: 'no-store' });
  }

  async read(body, signal) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done || signal.aborted) return;
      this.heard = performance.now();
      if (!this.isOpen) {
        this.isOpen = true;
        this.on.opened();
      }
      const messages = (rest + value).split('\n\n');
      rest = messages.pop();
      for (const message of messages) this.message(message);
    }
  }

  message(text) {
    const data = [];
    let type = '';
    for (const line of text.split('\n')) {
      if (line.startsWith('data: ')) data.push(line.slice(6));
      else if (line.startsWith('event: ')) type = line.slice(7);
      else if (line.startsWith('id: ')) this.lastId = line.slice(4);
    }
    if (type === 'view') {
      this.view = merged(this.view, JSON.parse(data[0]));
      this.on.view(this.view);
    }
    if (type === 'records') {
      const [head, ...records] = data.map((line) => JSON.parse(line));
      this.on.records(head, records);
    }
  }
}
