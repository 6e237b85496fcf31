/** Long work of one view: what goes on and for how long, a way to stop it, and what went wrong. */
import { make } from './dom.js';
import { Problem } from './service.js';

export type Say = (text: string) => void;

export class Work {
  private now = new AbortController();

  constructor(private readonly root: HTMLElement) {}

  /** Do something that can be stopped; what was going on before is. */
  async run(what: string, job: (signal: AbortSignal, say: Say) => Promise<void>): Promise<void> {
    this.now.abort();
    const now = new AbortController();
    this.now = now;
    const began = performance.now();
    const [text, clock] = [make('span', {}, what), make('span')];
    const tick = setInterval(() => clock.replaceChildren(`${((performance.now() - began) / 1000).toFixed(1)} s`), 100);
    const stop = make('button', { type: 'button', className: 'quiet', onclick: () => now.abort() }, 'Cancel');
    this.root.replaceChildren(make('p', { className: 'busy' }, text, clock, stop), make('progress'));
    try {
      await job(now.signal, (said) => text.replaceChildren(said));
      if (this.now === now) this.root.replaceChildren();
    } catch (error) {
      if (this.now !== now) return; // another run has begun
      if (now.signal.aborted) this.root.replaceChildren(make('p', { className: 'note' }, 'Cancelled.'));
      else this.fail(error as Error);
      now.abort(); // what else this run has asked for
    } finally {
      clearInterval(tick);
    }
  }

  /** Do something short. */
  quick = (job: Promise<unknown>): Promise<unknown> => job.catch((error) => this.fail(error));

  /** Say what went wrong, and what to do where the service knows. */
  private fail(error: Error): void {
    const known = error instanceof Problem;
    if (!known) console.error(error);
    this.root.replaceChildren(make('div', { className: 'problem', role: 'alert' },
      make('strong', {}, known ? error.title : 'this page failed'), make('p', {}, error.message)));
  }
}
