/** What was painted in this tab, so that a reload loses nothing. It goes with the tab: patients' data stay in no browser. */
import { gunzipSync, gzipSync } from 'fflate';
import { drop, held, hold, note, storage } from './tab.js';

/** One label map: as it came, as it was painted, and the image that it is of; `geometry`: whether left and right mean anything in it. */
export interface Painting { name: string; source: Uint8Array; painted: Uint8Array; image?: Uint8Array | undefined; geometry: boolean }

/** Whether there is a painting: it was painted in this tab before, it is kept now, or there is no room for that. */
export type Kept = 'none' | 'restored' | 'kept' | 'not kept';

const SLOT = 'caps-med-painting:';
const LAST = 'caps-med-painted-last';
const MOST = 4e6; // characters; browsers give a tab about five million

/** Which label map this is, by its content. */
export async function keyOf(content: Uint8Array): Promise<string> {
  const digest = globalThis.crypto?.subtle ? new Uint8Array(await crypto.subtle.digest('SHA-256', new Uint8Array(content))) : fnv(content); // none over plain HTTP
  return [...digest.slice(0, 12)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Fowler, Noll, Vo: three times 32 bits. */
function fnv(content: Uint8Array): Uint8Array {
  const hashes = new Uint32Array([0x811c9dc5, 0x811c9dc4, 0x811c9dc3]);
  for (const byte of content) for (let k = 0; k < 3; k++) hashes[k] = Math.imul((hashes[k] as number) ^ byte, 0x01000193);
  return new Uint8Array(hashes.buffer);
}

/** Source and image stay the same from stroke to stroke. */
const known = new WeakMap<Uint8Array, string>();
const CHUNK = 8192;

/** Compressed, as text. */
export const packed = (bytes: Uint8Array | undefined): string | undefined => {
  if (!bytes) return undefined;
  const before = known.get(bytes);
  if (before !== undefined) return before;
  const small = gzipSync(bytes, { level: 1 });
  const parts = Array.from({ length: Math.ceil(small.length / CHUNK) }, (_, i) => String.fromCharCode(...small.subarray(i * CHUNK, (i + 1) * CHUNK)));
  const text = btoa(parts.join(''));
  known.set(bytes, text);
  return text;
};
export const unpacked = (text: string | undefined): Uint8Array | undefined =>
  text === undefined ? undefined : gunzipSync(Uint8Array.from(atob(text), (character) => character.charCodeAt(0)));

/** Keep a painting, the oldest others giving way; false if it is too large to keep over a reload. */
export function keep(key: string, { name, source, painted, image, geometry }: Painting, store: Storage = storage()): boolean {
  const whole = { name, source: packed(source), painted: packed(painted), image: packed(image), geometry, when: Date.now() };
  const texts = [whole, { ...whole, image: undefined }].map((one) => JSON.stringify(one)) as [string, string];
  const fits = texts.find((text) => text.length <= MOST);
  forget(key, store);
  if (fits) for (const [old, size] of oldest(store)) {
    if (size.total + fits.length <= MOST) break;
    store.removeItem(old);
  }
  note(LAST, key, store);
  return hold(SLOT + key, fits ?? texts[0], store, MOST);
}

/** The paintings in the order of their age, each with what they all take from it on. */
function oldest(store: Storage): [string, { total: number }][] {
  const own = Object.keys(store).filter((slot) => slot.startsWith(SLOT))
    .map((slot) => ({ slot, text: store.getItem(slot) ?? '' })).sort((a, b) => when(a.text) - when(b.text));
  let total = own.reduce((sum, { text }) => sum + text.length, 0);
  return own.map(({ slot, text }) => {
    const entry: [string, { total: number }] = [slot, { total }];
    total -= text.length;
    return entry;
  });
}
const when = (text: string): number => Number(/"when":(\d+)/.exec(text)?.[1] ?? 0);

/** What was painted on a label map. */
export function kept(key: string, store: Storage = storage()): Painting | undefined {
  const text = held(SLOT + key, store);
  if (!text) return undefined;
  const { name, source, painted, image, geometry } = JSON.parse(text);
  return { name, source: unpacked(source) as Uint8Array, painted: unpacked(painted) as Uint8Array, image: unpacked(image), geometry };
}

/** The key of what was painted last, if it is kept. */
export const last = (store: Storage = storage()): string | undefined => store.getItem(LAST) ?? undefined;

export function forget(key: string, store: Storage = storage()): void {
  drop(SLOT + key, store);
  if (store.getItem(LAST) === key) store.removeItem(LAST);
}
