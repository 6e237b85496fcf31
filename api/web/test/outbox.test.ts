import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { draftOf, forgetDraft, keepDraft } from '../src/drafts.js';
import { Outbox, type Parcel } from '../src/outbox.svelte.js';
import { call, key, Problem, service } from '../src/service.svelte.js';
import { Work } from '../src/work.svelte.js';

/** A label map of one voxel, and the version in which it is stored. */
interface Saved { version: number; value: number; kind?: 'prediction' }
const taken = () => new Problem('', '', 'precondition_failed', [], { status: 412 });
const silence = () => new Problem('no answer', '');

/** A service that keeps the versions of one image; `answers`: what becomes of the next calls, instead of an answer. */
class Service {
  versions: Saved[] = [];
  answers: ((signal: AbortSignal) => Promise<unknown>)[] = [];
  bases: number[] = [];

  parcel(value: number, base: number): Parcel<Saved> {
    return {
      image: 'a', name: 'a.png', base, labels: new Uint8Array([value]), slices: ['2:0'],
      save: async (on, signal) => {
        this.bases.push(on);
        await this.answers.shift()?.(signal);
        return this.put(value, on);
      },
      newest: async () => {
        const version = this.versions.at(-1);
        return version && { version, labels: new Uint8Array([version.value]) };
      },
    };
  }

  put(value: number, base: number, more: Pick<Saved, 'kind'> = {}): Saved {
    if (base !== this.versions.length) throw taken();
    const saved = { version: base + 1, value, ...more };
    this.versions.push(saved);
    return saved;
  }
}

describe('a label map that is sent', () => {
  beforeEach(() => {
    vi.useFakeTimers();
    const slots: Record<string, string> = {};
    const store = { getItem: (slot: string) => slots[slot] ?? null, setItem: (slot: string, text: string) => { slots[slot] = text; }, removeItem: (slot: string) => { delete slots[slot]; } };
    vi.stubGlobal('sessionStorage', store);
    vi.spyOn(AbortSignal, 'timeout').mockImplementation((ms) => {
      const late = new AbortController();
      setTimeout(() => late.abort(), ms);
      return late.signal;
    });
  });
  afterEach(() => {
    forgetDraft('a');
    vi.restoreAllMocks();
    vi.unstubAllGlobals();
    vi.useRealTimers();
  });
  /** No answer, as long as one is wanted. */
  const never = (signal: AbortSignal) => new Promise((_, fail) => { signal.addEventListener('abort', () => fail(signal.reason)); });

  it('is a draft until it has arrived, and sent again until then', async () => {
    const [outbox, to] = [new Outbox<Saved>(), new Service()];
    to.answers = [() => Promise.reject(silence()), () => Promise.reject(silence())];
    const sent = outbox.send(to.parcel(7, 0));
    expect([outbox.waiting, draftOf('a')?.labels]).toEqual([{ a: { name: 'a.png', silent: false } }, new Uint8Array([7])]);
    await vi.advanceTimersByTimeAsync(999);
    expect([to.bases.length, outbox.waiting.a?.silent]).toEqual([1, true]);
    await vi.advanceTimersByTimeAsync(2001);
    expect(await sent).toEqual({ saved: { version: 1, value: 7 } });
    expect([to.bases, outbox.waiting, draftOf('a')]).toEqual([[0, 0, 0], {}, undefined]);
  });
  it('is sent again if there is no answer for a minute', async () => {
    const [outbox, to] = [new Outbox<Saved>(), new Service()];
    to.answers = [never];
    const sent = outbox.send(to.parcel(7, 0));
    await vi.advanceTimersByTimeAsync(59_999);
    expect(outbox.waiting.a?.silent).toBe(false);
    await vi.advanceTimersByTimeAsync(1001);
    expect((await sent)?.saved?.version).toBe(1);
  });
  it('has twice as long each time, until a slow line has taken it', async () => {
    const [outbox, to] = [new Outbox<Saved>(), new Service()];
    const slow = (signal: AbortSignal) => new Promise<void>((sent, fail) => {
      setTimeout(sent, 150_000);
      signal.addEventListener('abort', () => fail(signal.reason));
    });
    to.answers = [() => Promise.reject(silence()), slow, slow, slow, slow];
    const sent = outbox.send(to.parcel(7, 0));
    await vi.advanceTimersByTimeAsync(350_000);
    expect([to.bases.length, to.versions.length]).toEqual([4, 1]);
    expect((await sent)?.saved?.version).toBe(1);
  });
  it('is saved once, whether or not its answer was lost', async () => {
    const [outbox, to] = [new Outbox<Saved>(), new Service()];
    to.answers = [() => { to.put(7, 0); return Promise.reject(silence()); }];
    const sent = outbox.send(to.parcel(7, 0));
    await vi.advanceTimersByTimeAsync(1000);
    expect([(await sent)?.saved?.version, to.versions.length]).toEqual([1, 1]);
  });
  it('gives way to a newer one, on top of it if it has arrived', async () => {
    const [outbox, to] = [new Outbox<Saved>(), new Service()];
    to.answers = [(signal) => { to.put(7, 0); return never(signal); }];
    const first = outbox.send(to.parcel(7, 0));
    const second = outbox.send(to.parcel(8, 0));
    expect([await first, await second]).toEqual([undefined, { saved: { version: 2, value: 8 } }]);
    expect(to.bases).toEqual([0, 0, 1]);
    expect(outbox.waiting).toEqual({});
  });
  it('is not saved over what somebody else has saved, and stays a draft', async () => {
    const [outbox, to] = [new Outbox<Saved>(), new Service()];
    to.put(5, 0);
    expect(await outbox.send(to.parcel(7, 0))).toEqual({ theirs: { version: { version: 1, value: 5 }, labels: new Uint8Array([5]) } });
    expect([draftOf('a')?.version, to.versions.length, outbox.waiting]).toEqual([0, 1, {}]);
  });
  it('is saved over a prediction that nobody has seen, and over the same one', async () => {
    const to = new Service();
    let outbox = new Outbox<Saved>();
    to.put(5, 0, { kind: 'prediction' });
    expect((await outbox.send(to.parcel(7, 0)))?.theirs?.version.version).toBe(1);
    outbox.unseen.add('a');
    outbox = new Outbox<Saved>(); // after a reload
    expect((await outbox.send(to.parcel(7, 0)))?.saved?.version).toBe(2);
    to.put(5, 2, { kind: 'prediction' });
    expect((await outbox.send(to.parcel(7, 2)))?.theirs?.version.version).toBe(3);
    expect((await outbox.send(to.parcel(5, 2)))?.saved?.version).toBe(4);
    expect(to.versions.map(({ value }) => value)).toEqual([5, 7, 5, 5]);
  });
  it('leaves what was painted meanwhile a draft of the new version', async () => {
    const [outbox, to] = [new Outbox<Saved>(), new Service()];
    const sent = outbox.send(to.parcel(7, 0));
    keepDraft('a', { version: 0, slices: [], labels: new Uint8Array([9]) });
    await sent;
    expect([draftOf('a')?.version, draftOf('a')?.labels]).toEqual([1, new Uint8Array([9])]);
  });
  it('is not sent again once it is refused, and stays a draft', async () => {
    const [outbox, to] = [new Outbox<Saved>(), new Service()];
    to.answers = [() => Promise.reject(new Problem('', '', 'unknown_label', [], { status: 422 }))];
    await expect(outbox.send(to.parcel(7, 0))).rejects.toThrow(Problem);
    expect([draftOf('a')?.labels, outbox.waiting]).toEqual([new Uint8Array([7]), {}]);
  });
});

describe('a key', () => {
  const refused = () => new Response('{"code":"unauthorized","status":401}', { status: 401 });
  /** What a call ends with. */
  const end = (path: string) => call(path).then((answer) => answer.status, (error) => error.code);

  it('is asked for once, and then only if somebody wants to give one', async () => {
    const fetched = vi.fn(async (_: string, { headers }: { headers: Record<string, string> }) =>
      (headers.Authorization === 'Bearer right' ? new Response('{}') : refused()));
    vi.stubGlobal('fetch', fetched);
    const both = Promise.all([end('v1/models'), end('v1/samples')]);
    await vi.waitFor(() => expect(key.asked).toBe(''));
    key.give('');
    expect([await both, key.asked, key.refused]).toEqual([['unauthorized', 'unauthorized'], undefined, true]);
    expect([await end('v1/models'), key.asked]).toEqual(['unauthorized', undefined]);
    key.enter();
    expect([key.asked, key.refused]).toEqual(['', false]);
    key.give('wrong');
    const told = end('v1/models');
    await vi.waitFor(() => expect(key.asked).toBe('The key is unknown or was revoked.'));
    key.give('right');
    expect([await told, key.refused, fetched.mock.calls.length]).toEqual([200, false, 5]);
    key.text = '';
    vi.unstubAllGlobals();
  });
});

describe('a service that is silent for a while', () => {
  it('is told so, until it answers again', async () => {
    const work = new Work();
    const fetched = vi.fn<() => Promise<Response>>().mockRejectedValueOnce(new TypeError('failed')).mockResolvedValue(new Response('{}'));
    vi.stubGlobal('fetch', fetched);
    await work.quick(call('v1/models'));
    expect([service.silent, work.state, work.error?.message]).toEqual([true, 'failed', expect.stringContaining('not responding')]);
    await work.quick(call('v1/models'));
    expect([service.silent, work.state]).toEqual([false, 'idle']);
    await work.quick(Promise.reject(new Problem('', 'no such job', 'job_not_found', [], { status: 404 })));
    await work.quick(call('v1/models'));
    expect([work.state, work.error?.message]).toEqual(['failed', 'no such job']);
    vi.unstubAllGlobals();
  });
});
