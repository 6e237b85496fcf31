import { afterEach, describe, expect, it, vi } from 'vitest';
import { catalog } from '../src/catalog.svelte.js';

describe('the list of models', () => {
  afterEach(() => vi.unstubAllGlobals());

  it('is the newest one, also if an older one comes last', async () => {
    const answers: ((names: string[]) => void)[] = [];
    const listed = (names: string[]) => Response.json({ models: names.map((name) => ({ name, task: 'segmentation' })), preloaded: [] });
    vi.stubGlobal('fetch', vi.fn(async (path: string) =>
      (path === 'v1/models' ? new Promise<Response>((answer) => { answers.push((names) => answer(listed(names))); }) : Response.json({ samples: [] }))));
    const names = () => catalog.models.map(({ name }) => name);
    const [older, newer] = [catalog.load(), catalog.load()];
    await vi.waitFor(() => expect(answers.length).toBe(2));
    answers[1]?.(['first', 'just-trained']);
    await newer;
    answers[0]?.(['first']);
    await older;
    expect(names()).toEqual(['first', 'just-trained']);
  });
});
