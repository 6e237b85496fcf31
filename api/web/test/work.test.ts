import { describe, expect, it } from 'vitest';
import { Problem } from '../src/service.svelte.js';
import { Work } from '../src/work.svelte.js';

describe('something short that fails beside long work', () => {
  const silent = new Problem('no answer', 'The service is not responding.');
  /** Work that goes on until it is let go. */
  function begun() {
    const work = new Work();
    let end: (error?: Error) => void = () => undefined;
    const over = work.run('Uploading', () => new Promise<void>((done, fail) => { end = (error) => (error ? fail(error) : done()); }));
    return { work, end: (error?: Error) => { end(error); return over; } };
  }

  it('does not end it, and is told meanwhile and afterwards', async () => {
    const { work, end } = begun();
    await work.quick(Promise.reject(silent));
    expect([work.state, work.missed, work.error]).toEqual(['busy', true, silent]);
    await end();
    expect([work.state, work.error]).toEqual(['failed', silent]);
    await work.quick(Promise.resolve());
    expect(work.state).toBe('idle');
  });
  it('is told no more once something short can be done', async () => {
    const { work, end } = begun();
    await work.quick(Promise.reject(silent));
    await work.quick(Promise.resolve());
    expect([work.state, work.missed]).toEqual(['busy', false]);
    await end();
    expect(work.state).toBe('idle');
  });
  it('gives way to what ends the long work, or comes after it', async () => {
    const { work, end } = begun();
    await work.quick(Promise.reject(silent));
    const why = new Error('the archive is cut');
    await end(why);
    expect([work.state, work.missed, work.error]).toEqual(['failed', false, why]);
    await work.run('Uploading', async () => undefined);
    expect(work.state).toBe('idle');
  });
});
