import { afterEach, describe, expect, it, vi } from 'vitest';
import { later, leftBehind } from '../src/background.js';
import { call, inAddress, Problem, post, service } from '../src/service.svelte.js';

afterEach(() => {
  vi.unstubAllGlobals();
  service.silent = false;
});

describe('a job', () => {
  const LOST = { title: 'job not found', detail: 'there is no such job', code: 'job_not_found', status: 404 };
  /** Jobs of which the first `lost` ones are gone once they are asked for; the methods and paths that were called. */
  async function followed(lost: number): Promise<{ answer: unknown; said: string[]; posts: number }> {
    const said: string[] = [];
    let posts = 0;
    const answer = (path: string, method: string): Response => {
      if (method === 'POST') {
        posts += 1;
        return Response.json({ id: String(posts) }, { status: 202 });
      }
      if (Number(/jobs\/(\d+)/.exec(path)?.[1]) <= lost) return Response.json(LOST, { status: 404 });
      if (path.endsWith('/result')) return new Response('the label map');
      return Response.json({ state: 'succeeded', progress: { done: 1, total: 1 } });
    };
    vi.stubGlobal('sessionStorage', { getItem: () => null, setItem: () => undefined, removeItem: () => undefined });
    vi.stubGlobal('fetch', vi.fn(async (path: string, { method = 'GET' } = {}) => answer(path, method)));
    const result = await later('v1/x?format=zip', {}, { name: 'a.nii', model: 'm' }, new AbortController().signal, (text) => said.push(text))
      .then((found) => found.text(), (error) => (error as Problem).code);
    return { answer: result, said, posts };
  }

  it('that a service does not have is answered at once', async () => {
    const notes = new Map<string, string>();
    const [getItem, setItem, removeItem] = [(name: string) => notes.get(name) ?? null, notes.set.bind(notes), notes.delete.bind(notes)];
    vi.stubGlobal('sessionStorage', { getItem, setItem, removeItem });
    vi.stubGlobal('fetch', vi.fn(async () => new Response('the label map')));
    const answer = await later('v1/x?format=zip', {}, { name: 'a.nii', model: 'm' }, new AbortController().signal, () => undefined);
    expect(await answer.text()).toBe('the label map');
    expect(notes.size).toBe(0);
  });
  it('that a restart of the service has lost is sent once more', async () => {
    const { answer, said, posts } = await followed(1);
    expect([answer, posts]).toEqual(['the label map', 2]);
    expect(said).toContain('The service has restarted; segmenting a.nii again');
  });
  it('is not sent again and again: it may be what ends the service', async () => {
    const { answer, posts } = await followed(9);
    expect([answer, posts]).toEqual(['job_not_found', 2]);
  });
  it('that is stopped leaves the next one in the tab', async () => {
    const kept = new Map<string, string>();
    vi.stubGlobal('sessionStorage', { getItem: (slot: string) => kept.get(slot) ?? null, setItem: (slot: string, text: string) => kept.set(slot, text), removeItem: (slot: string) => kept.delete(slot) });
    let posts = 0;
    let answer: (found: Response) => void = () => undefined;
    vi.stubGlobal('fetch', vi.fn(async (path: string, { method = 'GET', signal }: RequestInit = {}) => {
      signal?.throwIfAborted();
      if (method === 'POST') {
        posts += 1;
        return Response.json({ id: String(posts) }, { status: 202 });
      }
      return path.includes('/1') ? new Promise((found) => { answer = found; }) : new Promise(() => undefined); // a slow service
    }));
    const stop = new AbortController();
    const begin = (name: string, signal: AbortSignal) => later('v1/x?format=zip', {}, { name, model: 'm' }, signal, () => undefined).catch(() => undefined);
    const first = begin('a.nii', stop.signal);
    await vi.waitFor(() => expect(leftBehind()?.id).toBe('1'));
    stop.abort();
    void begin('b.nii', new AbortController().signal);
    await vi.waitFor(() => expect(leftBehind()?.id).toBe('2'));
    answer(Response.json({ state: 'running', progress: { done: 1, total: 2 } }));
    await first;
    expect(leftBehind()?.name).toBe('b.nii');
  });
});

describe('an answer', () => {
  const answered = (body: BodyInit, headers: Record<string, string> = {}) => vi.stubGlobal('fetch', vi.fn(async () => new Response(body, { headers })));
  const cut = () => new ReadableStream({
    start(to) { to.enqueue(new Uint8Array(9)); },
    pull(to) { to.error(new TypeError('network error')); },
  });

  it('that breaks off is none', async () => {
    answered(cut());
    await expect(call('v1/models').then((answer) => answer.json())).rejects.toMatchObject({ passes: true, message: expect.stringContaining('not responding') });
    expect(service.silent).toBe(true);
  });
  it('that is empty is none, where a file is wanted', async () => {
    answered('');
    for (const read of [(answer: Response): Promise<unknown> => answer.bytes(), (answer: Response): Promise<unknown> => answer.blob()]) {
      await expect(call('v1/segment').then(read)).rejects.toMatchObject({ passes: true, message: expect.stringContaining('is empty') });
    }
  });
  it('that a proxy gives in place of a service is none, but what it refuses is for good', async () => {
    const refused = (status: number, headers = {}) => vi.stubGlobal('fetch', vi.fn(async () => new Response('<html>', { status, headers: { 'Content-Type': 'text/html', ...headers } })));
    refused(502);
    await expect(call('v1/models')).rejects.toMatchObject({ passes: true, title: 'no answer' });
    expect(service.silent).toBe(true);
    refused(413);
    await expect(call('v1/labels', { method: 'PUT' })).rejects.toMatchObject({ passes: false, ofFile: true, title: 'too large' });
    expect(service.silent).toBe(false);
    refused(429, { 'Retry-After': new Date(Date.now() + 90_000).toUTCString() });
    await expect(call('v1/models')).rejects.toMatchObject({ passes: true, message: expect.stringMatching(/Try again in (89|90) s\.$/) });
  });
  it('that is about the address of this page says so', () => {
    const malformed = new Problem('invalid input', 'project: String should match pattern', 'invalid_input', [], { status: 422 });
    expect(() => inAddress('project')(malformed)).toThrow('The project in the address of this page does not exist.');
    const other = new Problem('no answer', '');
    expect(() => inAddress('project')(other)).toThrow(other);
  });
  it('that is the page of a login is none, unless a page was asked for', async () => {
    answered('<html>', { 'Content-Type': 'text/html; charset=utf-8' });
    await expect(call('v1/models')).rejects.toMatchObject({ passes: true, message: expect.stringContaining('login') });
    expect(service.silent).toBe(true);
    expect(await (await call('v1/report', { headers: { Accept: 'text/html' } })).text()).toBe('<html>');
    expect(service.silent).toBe(false);
  });
});

describe('a file that the browser cannot read', () => {
  class Gone extends File {
    override slice = () => ({ arrayBuffer: () => Promise.reject(new DOMException('gone', 'NotFoundError')) }) as never;
  }
  it('is not taken for a service that does not answer', async () => {
    vi.stubGlobal('fetch', vi.fn(async () => Promise.reject(new TypeError('Failed to fetch'))));
    const file = new Gone(['x'], 'series');
    for (const sent of [() => post('v1/images', { image: file }), () => call('v1/labels', { method: 'PUT', body: file })]) {
      const error = await sent().catch((caught) => caught as Problem);
      expect(error).toMatchObject({ code: 'unreadable_file', ofFile: true, passes: false });
      expect((error as Problem).message).toContain('cannot read series');
      expect(service.silent).toBe(false);
    }
    await expect(post('v1/images', { image: new File(['x'], 'series') })).rejects.toThrow('The service is not responding');
    expect(service.silent).toBe(true);
  });
});
