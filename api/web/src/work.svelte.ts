/** Long work of one view: what goes on and for how long, a way to stop it, and what went wrong. */
import { untrack } from 'svelte';
import { Problem } from './service.svelte.js';

/** Tell what goes on, and which part of it is done, from 0 to 1; undefined if nobody knows. */
export type Say = (text: string, part?: number) => void;

/** What is promised, unless who asked for it is stopped meanwhile: what comes late must not replace what is newer. */
export async function unlessStopped<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  const found = await promise;
  signal.throwIfAborted();
  return found;
}

export class Work {
  said = $state('');
  /** What a screen reader says of it: that it begins and how it ends, not each of its steps. */
  heard = $state('');
  part = $state<number>();
  /** Whole ones: each change is a frame to draw, which without a GPU takes the time of the network's core. */
  seconds = $state(0);
  state = $state<'idle' | 'busy' | 'cancelled' | 'failed'>('idle');
  /** Whether what goes on can be cancelled. */
  stoppable = $state(true);
  /** Whether what goes on brings something else to look at: what is shown now, the page asks for nothing more about. */
  brings = $state(false);
  error = $state.raw<Error>();
  /** Whether something short has gone wrong beside what goes on, which goes on all the same. */
  missed = $state(false);
  private now = new AbortController();

  stop = (): void => this.now.abort();

  /** Do something; what was going on before is stopped. `stoppable`: whether people may stop it, too: not what the service then goes on with. `brings`: something else to look at. */
  async run(what: string, job: (signal: AbortSignal, say: Say) => Promise<unknown>, { stoppable = true, brings = false } = {}): Promise<void> {
    this.stop();
    const now = new AbortController();
    const mine = (change: Partial<Work>) => this.now === now && Object.assign(this, change); // no other run has begun
    const began = performance.now();
    const tick = setInterval(() => mine({ seconds: Math.round((performance.now() - began) / 1000) }), 1000);
    this.now = now;
    mine({ state: 'busy', said: what, heard: what, part: undefined, seconds: 0, stoppable, brings, missed: false });
    try {
      await untrack(() => job(now.signal, (said, part) => mine({ said, part })));
      mine({ state: this.missed ? 'failed' : 'idle', heard: `${what}: done`, missed: false });
    } catch (error) {
      if (now.signal.aborted) mine({ state: 'cancelled', heard: `${what}: cancelled`, missed: false });
      else if (this.now === now) this.fail(error as Error);
      now.abort(); // what else this run has asked for
    } finally {
      clearInterval(tick);
      mine({ brings: false });
    }
  }

  /** Tell no more what went wrong: something else is looked at. */
  forgive(): void {
    this.missed = false;
    if (this.state === 'failed') this.state = 'idle';
  }

  /** Do something short. What kept it from being done is told until something short can be done. */
  quick = (job: Promise<unknown>): Promise<unknown> => job.then(
    () => { if (this.passing) this.forgive(); },
    (error) => {
      if (this.state === 'busy') Object.assign(this, { error, missed: true });
      else this.fail(error);
      this.passing = error instanceof Problem && error.passes;
    });
  /** Whether what is told may be otherwise by now. */
  private passing = false;

  private fail(error: Error): void {
    Object.assign(this, { state: 'failed', error, heard: '', passing: false, missed: false }); // the problem itself is heard
  }
}
