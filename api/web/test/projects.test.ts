import { afterEach, describe, expect, it, vi } from 'vitest';
import { draftOf, drafts, forgetDraft, keepDraft } from '../src/drafts.js';
import { calledLike, effort, learned, type Round, upload } from '../src/projects.js';
import { loses } from '../src/tab.js';

/** A tab's storage with room for so many characters. */
function storage(room: number): Storage {
  const store = {
    getItem: (slot: string) => (slot in store ? (store as unknown as Record<string, string>)[slot] : null),
    setItem: (slot: string, text: string) => {
      if (text.length > room) throw new Error('quota');
      Object.assign(store, { [slot]: text });
    },
    removeItem: (slot: string) => { delete (store as unknown as Record<string, string>)[slot]; },
  };
  for (const name of Object.keys(store)) Object.defineProperty(store, name, { enumerable: false });
  return store as unknown as Storage;
}

describe('a correction that is not saved', () => {
  const draft = { version: 2, slices: ['2:4'], labels: new Uint8Array([0, 1, 2]) };
  it('comes back as it was, for each image by itself', () => {
    const store = storage(1000);
    expect([keepDraft('a', draft, store), keepDraft('b', { ...draft, version: 0 }, store)]).toEqual([true, true]);
    draft.labels[0] = 3; // painted on in place
    keepDraft('a', draft, store);
    expect([draftOf('a', store), draftOf('b', store)?.labels[0], draftOf('c', store)]).toEqual([draft, 0, undefined]);
    forgetDraft('b', store);
    expect(drafts(store)).toEqual(['a']);
  });
  it('is kept beside the storage if it is too large for that, until the page is loaded again', () => {
    const store = storage(120);
    const noise = { ...draft, labels: crypto.getRandomValues(new Uint8Array(500)) };
    expect([keepDraft('l', draft, store), keepDraft('l', noise, store), loses(), store.getItem('caps-med-draft:l')]).toEqual([true, false, true, null]);
    expect([draftOf('l', store), drafts(store)]).toEqual([noise, ['l']]);
    expect([keepDraft('l', draft, store), loses(), draftOf('l', store)]).toEqual([true, false, draft]);
    forgetDraft('l', store);
    expect([drafts(store), draftOf('l', store)]).toEqual([[], undefined]);
  });
});

describe('images that are added', () => {
  afterEach(() => vi.unstubAllGlobals());
  it('are all but those that are refused, which are told by their names', async () => {
    const refused: Record<string, [status: number, detail: string]> = { 'b.nii': [413, 'the request is too large'], 'c.png': [415, 'c.png: the content is of no known format'] };
    vi.stubGlobal('fetch', vi.fn(async (_path: string, { body }: { body: FormData }) => {
      const [, [status, detail]] = Object.entries(refused).find(([name]) => (body.getAll('images') as File[]).some((file) => file.name === name)) ?? ['', [201, '']];
      return Response.json({ title: 'refused', code: 'refused', status, detail, images: [] }, { status });
    }));
    const files = ['a.png', 'b.nii', 'c.png'].map((name) => new File([name], name));
    const { all, not } = await upload('p', { files, patient: '', known: new Set() }, false, new AbortController().signal, () => undefined);
    expect([all, not]).toEqual([3, ['b.nii: the request is too large', 'c.png: the content is of no known format']]);
  });
  it('are those that have not come, after an interruption', async () => {
    const there: { id: string; name: string }[] = [{ id: 'old', name: 'n16.png' }];
    let lost: 'never' | 'after' | undefined;
    vi.stubGlobal('fetch', vi.fn(async (_path: string, { method, body }: RequestInit) => {
      if (method !== 'POST') return Response.json({ images: there, next: null });
      const images = ((body as FormData).getAll('images') as File[]).map(({ name }) => ({ id: `${there.length}-${name}`, name }));
      if (lost !== 'never') there.push(...images);
      if (lost) throw new TypeError('Failed to fetch');
      lost = 'after'; // the next one comes without an answer
      return Response.json({ images });
    }));
    const files = Array.from({ length: 40 }, (_, i) => new File([`${i}`], `n${i}.png`));
    const given = { files, patient: '', known: new Set(['old']) };
    let left: File[] = [];
    const told = (_done: number, _all: number, rest?: { files: [string, File][] }[]) => { left = rest?.flatMap((one) => one.files.map(([, file]) => file)) ?? left; };
    await expect(upload('p', given, false, new AbortController().signal, told)).rejects.toThrow('not responding');
    expect(left.map(({ name }) => name)).toEqual(files.slice(15).map(({ name }) => name));
    lost = undefined;
    await upload('p', { ...given, files: left }, true, new AbortController().signal, told);
    expect(there.map(({ name }) => name)).toEqual(['n16.png', ...files.map(({ name }) => name)]);
    expect(left).toEqual([]);
  });
});

describe('a label map that there is', () => {
  const images = ['a.nii.gz', 'b_0000.nii.gz', 'c.dcm', 'd.png', 'D.tif'].map((name) => ({ name }));
  it('belongs to the image that it is called like', () => {
    const found = (file: string) => calledLike(images, file).map(({ name }) => name);
    expect(['a.nii', 'b.nii.gz', 'b_0000.nrrd', 'c.seg.nrrd', 'd.png', 'e.png'].map(found))
      .toEqual([['a.nii.gz'], ['b_0000.nii.gz'], ['b_0000.nii.gz'], ['c.dcm'], ['d.png', 'D.tif'], []]);
  });
});

describe('rounds of learning', () => {
  const dice = (mean: number) => ({ mean: { mean, low: null, high: null } });
  const round = { job: '', corrected: 3, trained_on: 2, held_out: 1, model: null, accepted: null, message: null };
  const failed: Round = { ...round, round: 1, state: 'failed', dice: null, before: null, changed: null };
  const finished: Round = { ...round, round: 2, state: 'finished', dice: dice(0.8), before: dice(0.7), changed: 0.02 };
  it('are a curve that begins with the first model', () => {
    expect(learned([failed, finished, { ...finished, round: 3, dice: dice(0.9), before: dice(0.8) }])).toEqual([[0, 0.7], [2, 0.8], [3, 0.9]]);
    expect(learned([failed])).toEqual([]);
  });
  it('tell the share of voxels that was changed, in percent', () => {
    expect(effort([failed, finished])).toEqual([[2, 2]]);
  });
});
