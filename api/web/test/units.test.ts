import { describe, expect, it } from 'vitest';
import { largest, npy, part } from '../src/arrays.js';
import { points } from '../src/curve.js';
import { ramp } from '../src/maps.js';
import { deltas } from '../src/move.js';
import { parsed, Problem } from '../src/service.js';
import { nearest } from '../src/strip.js';

/** As NumPy writes version 1.0 of the format. */
function saved(header: string, values: number[]): Uint8Array {
  const text = `${header.padEnd(117)}\n`;
  const bytes = new Uint8Array(10 + text.length + 4 * values.length);
  bytes.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, text.length, 0]);
  bytes.set(new TextEncoder().encode(text), 10);
  bytes.set(new Uint8Array(new Float32Array(values).buffer), 10 + text.length);
  return bytes;
}

describe('arrays of NumPy', () => {
  it('have their shape and values', () => {
    const found = npy(saved("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", [1, 2, 3, -4, 5, 6]));
    expect(found.shape).toEqual([2, 3]);
    expect([...part(found, 1).data]).toEqual([-4, 5, 6]);
    expect(part(found, 1).shape).toEqual([3]);
    expect(largest(part(found, 0).data)).toBe(3);
    expect(largest(found.data)).toBe(6);
  });
  it('are float32 in C order, or refused', () => {
    expect(() => npy(saved("{'descr': '<f8', 'fortran_order': False, 'shape': (0,), }", []))).toThrow('no float32');
    expect(() => npy(saved("{'descr': '<f4', 'fortran_order': True, 'shape': (0,), }", []))).toThrow('no float32');
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

describe('colours and curves', () => {
  it('meet their stops', () => {
    expect(ramp([[0, 0, 0], [100, 200, 50]], 0.5)).toEqual([50, 100, 25]);
    expect(ramp([[0, 0, 0], [100, 200, 50]], -3)).toEqual([0, 0, 0]);
  });
  it('fill their box, the largest value on top', () => {
    expect(points([1, 3, 2])).toBe('0.0,114.0 160.0,6.0 320.0,60.0');
    expect(points([7])).toBe('160.0,114.0');
  });
});

describe('what the service says', () => {
  it('is an event, or a sign of life', () => {
    expect(parsed('event: log\ndata: {"lines": ["a: b"]}')).toEqual(['log', { lines: ['a: b'] }]);
    expect(parsed(': still here')).toBeUndefined();
  });
  it('is a problem with its code, and when to try again', async () => {
    const body = JSON.stringify({ title: 'overloaded', detail: 'too much waits', code: 'overloaded' });
    const problem = await Problem.of(new Response(body, { status: 503, headers: { 'Retry-After': '2' } }));
    expect([problem.code, problem.message]).toEqual(['overloaded', 'too much waits Try again in 2 s.']);
  });
  it('is a problem even where it says nothing', async () => {
    expect((await Problem.of(new Response('', { status: 502 }))).message).toBe('The service answered 502.');
  });
});
