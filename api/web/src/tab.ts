/** Small things that a tab keeps over a reload. They go with the tab. */

/** Where a tab may keep nothing: its storage is always full. */
class Nowhere {
  getItem(_: string): null { return null; }
  setItem(slot: string): never { throw new Error(`no storage for ${slot}`); }
  removeItem(_: string): void { /* there is nothing */ }
}
const nowhere = new Nowhere() as unknown as Storage;

/** What a tab keeps; a browser that lets this page keep nothing, such as one without cookies, throws at the word alone. */
export const storage = (): Storage => {
  try {
    return sessionStorage;
  } catch {
    return nowhere;
  }
};

/** Keep a text, unless there is no room, such as where corrections and paintings have filled the storage: then a reload forgets it, and nothing else fails. */
export function note(slot: string, text: string, store: Storage = storage()): void {
  try {
    store.setItem(slot, text);
  } catch { // the quota
    store.removeItem(slot); // what was kept before is not true any more
  }
}

/** Work for which the storage has no room, as it would hold it. */
const large = new Map<string, string>();

/** Whether a reload would lose any. */
export const loses = (): boolean => large.size > 0;

/** Keep somebody's work; false if there is no room to keep it over a reload, or it is longer than `most`. */
export function hold(slot: string, text: string, store: Storage = storage(), most = Number.POSITIVE_INFINITY): boolean {
  drop(slot, store);
  try {
    if (text.length > most) throw new RangeError(`${text.length} characters`);
    store.setItem(slot, text);
    return true;
  } catch { // the quota
    large.set(slot, text);
    return false;
  }
}

export const held = (slot: string, store: Storage = storage()): string | undefined => large.get(slot) ?? store.getItem(slot) ?? undefined;

export function drop(slot: string, store: Storage = storage()): void {
  large.delete(slot);
  store.removeItem(slot);
}

/** The slots that begin so and hold something. */
export const slotsOf = (begin: string, store: Storage = storage()): string[] => [...large.keys(), ...Object.keys(store)].filter((slot) => slot.startsWith(begin));
