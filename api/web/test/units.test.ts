import { describe, expect, it } from 'vitest';
import { capsuleNames, type Detail, inOrder } from '../src/catalog.svelte.js';
import { BOX, chart, ticks } from '../src/curve.js';
import { part, RISING, SIGNED } from '../src/maps.js';
import { Problem } from '../src/service.svelte.js';
import { deltas, nearest } from '../src/strip.svelte.js';

describe('maps of capsules', () => {
  const maps = { width: 3, height: 1, data: new Float32Array([1, 2, 3, -4, 5, -6]), most: 6 };
  it('are parts of an array, each with its largest magnitude', () => {
    expect(part(maps, 1)).toEqual({ width: 3, height: 1, data: new Float32Array([-4, 5, -6]), most: 6 });
    expect(part(maps, 0, 1).most).toBe(3);
    expect([...part(maps, 0).data]).toEqual([...maps.data]);
  });
  it('rise from dark to bright, and go through dark between two colours', () => {
    expect([...RISING.slice(0, 4), ...RISING.slice(-4)]).toEqual([13, 17, 23, 255, 250, 240, 170, 255]);
    expect([...SIGNED.slice(4 * 128, 4 * 128 + 4)]).toEqual([18, 22, 28, 255]);
  });
});

describe('files of channels', () => {
  const ordered = (names: string[], channels: string[]) => inOrder(names.map((name) => ({ name })), channels).map(({ name }) => name);
  it('are those whose names tell the channels', () => {
    expect(ordered(['p1_t1.nii.gz', 'p1_flair.nii.gz'], ['FLAIR', 'T1'])).toEqual(['p1_flair.nii.gz', 'p1_t1.nii.gz']);
  });
  it('else go by name, numbers as numbers', () => {
    expect(ordered(['a_0010.nii', 'a_0002.nii'], ['FLAIR', 'T1'])).toEqual(['a_0002.nii', 'a_0010.nii']);
    expect(ordered(['t1ce.nii', 't1.nii'], ['T1', 'T1ce'])).toEqual(['t1.nii', 't1ce.nii']);
  });
});

describe('capsules', () => {
  const model = { task: 'segmentation', labels: { 0: 'background', 1: 'axon' }, layers: [{ name: 'first' }, { name: 'last' }] };
  const names = (name: string, types: number) =>
    capsuleNames(model as unknown as Detail, { name, types, atoms: 16, stride: 1 });
  it('of the last layer are called as its labels, the only one as the only class', () => {
    expect(names('first', 3)).toEqual(['type 0', 'type 1', 'type 2']);
    expect(names('last', 2)).toEqual(['background', 'axon']);
    expect(names('last', 1)).toEqual(['axon']);
  });
});

describe('a strip', () => {
  it('shows the picture nearest to the slider, and its ends at the ends', () => {
    expect([0, 0.12, 0.13, 0.5, 1, 2, -1].map((at) => nearest(at, 5))).toEqual([0, 0, 1, 2, 4, 4, 0]);
  });
  it('of an atom runs from -0.25 to 0.25 through nothing', () => {
    expect(deltas(5)).toBe('-0.2500,-0.1250,0.0000,0.1250,0.2500');
  });
});

describe('a curve', () => {
  it('has round numbers at its axes', () => {
    expect(ticks(0, 25)).toEqual([0, 5, 10, 15, 20, 25]);
    expect(ticks(0.12, 0.93)).toEqual([0.2, 0.4, 0.6, 0.8]);
    expect(ticks(-0.25, 0.25)).toEqual([-0.2, -0.1, 0, 0.1, 0.2]);
  });
  it('reaches to the last epoch that there will be, the largest value on top', () => {
    const drawn = chart([[1, 0.9], [2, 0.1]], 4);
    const [[x1 = 0, y1 = 0] = [], [x2 = 0, y2 = 0] = []] = drawn.line.split(' ').map((point) => point.split(',').map(Number));
    expect([x1, x2]).toEqual([BOX.left + 76, BOX.left + 152]);
    expect([y1 > BOX.top, y1 < y2, y2 < BOX.bottom]).toEqual([true, true, true]);
    expect(drawn.across.map(({ at }) => at)).toEqual([0, 1, 2, 3, 4]);
  });
  it('of one value lies in the middle', () => {
    expect(Number(chart([[1, 7]], 1).last[1])).toBeCloseTo((BOX.top + BOX.bottom) / 2, 1);
  });
});

describe('what the service says', () => {
  it('is a problem with its code, and when to try again', async () => {
    const body = JSON.stringify({ title: 'overloaded', detail: 'too much waits', code: 'overloaded' });
    const problem = await Problem.of(new Response(body, { status: 503, headers: { 'Retry-After': '2' } }));
    expect([problem.code, problem.message]).toEqual(['overloaded', 'too much waits Try again in 2 s.']);
  });
  it('is a problem even where it says nothing', async () => {
    expect((await Problem.of(new Response('', { status: 502 }))).message).toBe('The service answered 502.');
  });
});
