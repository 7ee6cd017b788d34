// A Stream reads server-sent events with the key of this origin in a header, and begins again when it breaks. While the page is hidden it
// is closed: a browser has few connections to a server, and a cluster better things to do.

const longest = 10000;

export class Stream {
  // take is given each event, and returns false after the last; trouble a text, or an empty one when there is none any more. begin is called
  // when all is sent anew.
  constructor(path, { take, trouble, begin }) {
    Object.assign(this, { path, take, trouble, begin });
    this.look = () => (document.hidden ? this.cut() : this.run());
    document.addEventListener('visibilitychange', this.look);
    this.look();
  }

  close() {
    document.removeEventListener('visibilitychange', this.look);
    this.closed = true;
    this.cut();
  }

  cut() {
    if (this.abort) this.abort.abort();
    this.abort = null;
  }

  async run() {
    if (this.abort || this.closed) return;
    const abort = new AbortController();
    this.abort = abort;
    let wait = 500;
    while (!abort.signal.aborted) {
      try {
        if (await this.read(abort.signal, () => { wait = 500; })) {
          this.close();
          return;
        }
        throw new Error('golaunch dashboard has ended the connection');
      } catch (e) {
        if (abort.signal.aborted) return;
        if (e.final) {
          this.trouble(e.message);
          return;
        }
        this.trouble('golaunch dashboard does not answer: does it still run?');
      }
      await new Promise((resume) => setTimeout(resume, wait));
      wait = Math.min(longest, 2 * wait);
    }
  }

  // read returns true when the server has nothing more to say.
  async read(signal, alive) {
    const answer = await fetch(this.path, { signal, headers: { 'X-Golaunch-Key': key() }, cache: 'no-store' });
    if (!answer.ok) throw await refusal(answer);
    this.begin();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return false;
      const events = (rest + value).split('\n\n');
      rest = events.pop();
      for (const event of events) {
        alive();
        this.trouble('');
        if (this.take(JSON.parse(event.slice('data: '.length))) === false) return true;
      }
    }
  }
}

function key() {
  return localStorage.getItem('golaunch-key') || '';
}

// refusal is an error of the server's; it is final where asking again does not help.
async function refusal(answer) {
  const said = await answer.json().catch(() => ({}));
  const error = new Error(said.error || 'golaunch dashboard answers ' + answer.status);
  error.final = answer.status < 500;
  return error;
}

// post asks the server to do something about a job.
export async function post(path, job) {
  const answer = await fetch(path, { method: 'POST', headers: { 'X-Golaunch-Key': key(), 'Content-Type': 'application/json' }, body: JSON.stringify({ job }) });
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}
