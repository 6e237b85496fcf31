/** Long work of one view: what goes on and for how long, a way to stop it, and what went wrong. */
import { make } from './dom.js';
import { Problem } from './service.js';

export class Work {
  private controller: AbortController | undefined;

  constructor(private readonly root: HTMLElement) {
    root.setAttribute('role', 'status');
  }

  /** Do something that can be stopped; what was going on before is. Whether it came to its end. */
  async run(what: string, job: (signal: AbortSignal, say: (text: string) => void) => Promise<void>): Promise<boolean> {
    this.controller?.abort();
    const controller = new AbortController();
    this.controller = controller;
    const began = performance.now();
    const text = make('span', {}, what);
    const clock = make('span', { className: 'clock' });
    const stop = make('button', { type: 'button', className: 'quiet', onclick: () => controller.abort() }, 'Cancel');
    const tick = setInterval(() => {
      clock.textContent = `${((performance.now() - began) / 1000).toFixed(1)} s`;
    }, 100);
    this.root.replaceChildren(make('p', { className: 'busy' }, text, ' ', clock, stop), make('progress'));
    try {
      await job(controller.signal, (said) => text.replaceChildren(said));
      if (this.controller === controller) this.root.replaceChildren();
      return true;
    } catch (error) {
      if (this.controller !== controller) return false; // another run has begun
      if (controller.signal.aborted) this.root.replaceChildren(make('p', { className: 'note' }, 'Cancelled.'));
      else this.fail(error);
      controller.abort(); // what else this run has asked for
      return false;
    } finally {
      clearInterval(tick);
    }
  }

  stop(): void {
    this.controller?.abort();
  }

  /** Say what went wrong, and what to do where the service knows. */
  fail(error: unknown): void {
    if (!(error instanceof Problem)) console.error(error);
    const title = error instanceof Problem ? error.title : 'this page failed';
    const detail = error instanceof Error ? error.message : String(error);
    const box = make('div', { className: 'problem' }, make('strong', {}, title), make('p', {}, detail));
    box.setAttribute('role', 'alert');
    this.root.replaceChildren(box);
  }
}
