import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Address } from '../src/address.svelte.js';

describe('the address', () => {
  const place = { hash: '' };
  const slots: Record<string, string> = {};
  const store = { getItem: (slot: string) => slots[slot] ?? null, setItem: (slot: string, text: string) => { slots[slot] = text; } } as unknown as Storage;
  beforeEach(() => {
    for (const slot of Object.keys(slots)) delete slots[slot];
    vi.stubGlobal('location', place);
    vi.stubGlobal('history', { state: null, replaceState: (_: unknown, __: string, to: string) => { place.hash = to; } });
  });
  afterEach(() => vi.unstubAllGlobals());
  const at = (hash: string) => {
    place.hash = hash;
    return new Address(store);
  };

  it('names a view and what is open in it', () => {
    const address = at('#annotate/p1/i1');
    expect([address.view, address.place('annotate'), address.place('train')]).toEqual(['annotate', ['p1', 'i1'], []]);
    address.open('annotate', 'p2');
    expect([place.hash, address.place('annotate')]).toEqual(['#annotate/p2', ['p2']]);
    address.tell('annotate', 'p2', 'i2');
    expect(place.hash).toBe('#annotate/p2/i2');
    place.hash = '#annotate';
    address.read();
    expect([address.view, address.place('annotate')]).toEqual(['annotate', []]);
  });
  it('keeps the place of each view, also over a reload', () => {
    const address = at('#annotate/p1/i1');
    place.hash = '#segment';
    address.read();
    address.open('annotate', 'p1', 'i3'); // of what has been made meanwhile
    expect([place.hash, address.view, address.of('annotate')]).toEqual(['#segment', 'segment', '#annotate/p1/i3']);
    address.tell('annotate', 'p1', 'i2'); // of an image that has come meanwhile
    expect([place.hash, address.of('annotate'), address.of('segment')]).toEqual(['#segment', '#annotate/p1/i2', '#segment']);
    expect([at('#segment').of('annotate'), at('').view]).toEqual(['#annotate/p1/i2', '']);
  });
  it('leads on where the storage of the tab is full', () => {
    const full = { ...store, setItem: () => { throw new Error('quota'); }, removeItem: () => undefined } as unknown as Storage;
    place.hash = '#annotate';
    new Address(full).open('annotate', 'p2');
    expect(place.hash).toBe('#annotate/p2');
  });
  it('makes no paths of the service from anything but ids and names', () => {
    for (const hash of ['#annotate/..', '#annotate/p1/%2e%2e', '#annotate/p1?x', '#annotate//']) expect(at(hash).place('annotate')).toEqual([]);
  });
});
